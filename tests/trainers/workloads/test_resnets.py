"""The papers' workloads as a whole."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.job.data import chance_accuracy, class_numbers
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.model.state import read_checkpoint
from syncswitch.trainers.workloads.resnets import (
    PADDING,
    WEIGHT_DECAY,
    augment,
    basic_network,
    load_pictures,
    standardize,
)
from syncswitch.trainers.workloads.resnets import resnet32_cifar10 as resnet32
from syncswitch.trainers.workloads.resnets import resnet50_cifar100 as resnet50
from tests.trainers.jobs import spec_of


@pytest.fixture(scope="module")
def resnet_32(keras: Any) -> Any:
    return resnet32.model()


@pytest.fixture(scope="module")
def resnet_50(keras: Any) -> Any:
    return resnet50.model()


@pytest.fixture
def small_cifar(keras: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 pictures and 20 to test with, instead of those that Keras would download."""
    for name, classes in (("cifar10", 10), ("cifar100", 100)):
        made = partial(_pictures, classes)
        monkeypatch.setattr(getattr(keras.datasets, name), "load_data", made)


def _pictures(classes: int) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Their class shows in their colours; types and shapes are those of `keras.datasets`."""
    random = np.random.default_rng(0)
    labels = np.arange(120) % classes
    colours = random.integers(0, 200, (classes, 1, 1, 3))
    values = (colours[labels] + random.integers(0, 56, (120, 32, 32, 3))).astype(np.uint8)
    columns = labels[:, None].astype(np.uint8 if classes == 10 else np.int64)
    return (values[:100], columns[:100]), (values[100:], columns[100:])


@pytest.mark.parametrize(("workload", "half"), [(resnet32, 32_000), (resnet50, 64_000)])
def test_a_workload_has_the_schedule_of_the_paper(workload: Any, half: int) -> None:
    """Its length, and a test as often as in the authors' logs."""
    assert (workload.total_worker_steps, workload.batch_size) == (2 * half, 128)
    assert workload.evaluation_interval_worker_steps == half // 16
    assert (workload.learning_rate, workload.momentum) == (0.1, 0.9)
    assert workload.learning_rate_boundaries == ((half, 0.1), (half * 3 // 2, 0.01))


@pytest.mark.usefixtures("small_cifar")
def test_a_workload_trains_on_the_cluster(make_trainer: Any, tmp_path: Path) -> None:
    """Both protocols, real gradients: it learns, and its statistics move.

    With one block in a stage: five take five times as long to trace.
    """
    workload = replace(
        load_workload("resnet32-cifar10"),
        model=partial(basic_network, 1, 10),
        total_worker_steps=16,
        batch_size=8,
        learning_rate=0.003,
        learning_rate_boundaries=(),
        evaluation_interval_worker_steps=8,
    )
    spec = spec_of(workload, 2, 50.0, checkpoint_percents=(100.0,), checkpoint_directory=tmp_path)
    record = make_trainer(workload, 2).train(spec)
    assert [phase.end_worker_step for phase in record.phases] == [8, 16]
    losses = [evaluation.training_loss for evaluation in record.evaluations]
    # Of 16 small batches it learns little; on which ones it is good differs in the last bits.
    assert losses[-1] < losses[0] + 0.1
    statistics = read_checkpoint(record.checkpoints[100.0]).statistics
    assert len(statistics) == 2 * 7
    for name, values in statistics.items():
        assert np.isfinite(values).all(), name
        assert not np.isin(values, (0.0, 1.0)).any(), f"{name} has values as it was built with"


@pytest.mark.usefixtures("small_cifar")
@pytest.mark.parametrize(
    ("name", "workload", "trained", "moving", "layers", "sizes"),
    # Layers with weights: those that the name counts, and the shortcuts. Their values follow from
    # the papers' tables.
    [
        ("resnet_32", resnet32, 464_154, 2_272, 32, [32, 16, 8]),
        ("resnet_50", resnet50, 23_705_252, 53_120, 50 + 4, [32, 16, 8, 4]),
    ],
)
def test_a_network_is_as_large_as_that_of_the_papers_table(
    request: pytest.FixtureRequest,
    keras: Any,
    name: str,
    workload: Any,
    trained: int,
    moving: int,
    layers: int,
    sizes: list[int],
) -> None:
    model = request.getfixturevalue(name)
    assert size(model.trainable_variables) == trained
    assert size(model.non_trainable_variables) == moving
    weighted = (keras.layers.Conv2D, keras.layers.Dense)
    assert sum(isinstance(layer, weighted) for layer in model.layers) == layers
    added = [one.output.shape[1] for one in model.layers if isinstance(one, keras.layers.Add)]
    assert sorted(set(added), reverse=True) == sizes, "each stage halves the picture"
    assert added == sorted(added, reverse=True)
    assert workload.data().train_labels.max() == model.output.shape[-1] - 1


def size(variables: list[Any]) -> int:
    return sum(int(np.prod(variable.shape)) for variable in variables)


@pytest.mark.parametrize("name", ["resnet_32", "resnet_50"])
def test_weight_decay_adds_the_kernel_to_its_gradient(
    request: pytest.FixtureRequest, name: str
) -> None:
    """The kernels alone: neither biases nor what normalizes a batch."""
    import tensorflow as tf

    model = request.getfixturevalue(name)
    values = [variable.value for variable in model.trainable_variables]
    with tf.GradientTape() as tape:
        decay = tf.add_n(model.losses)
    gradients = tape.gradient(decay, values)
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        if variable.name == "kernel":
            np.testing.assert_allclose(gradient, WEIGHT_DECAY * variable.numpy(), rtol=1e-4)
        else:
            assert gradient is None


def test_a_shortcut_of_resnet_32_has_no_parameters(keras: Any) -> None:
    """With all kernels zero but the stem's, the shortcuts alone carry the picture."""
    model = basic_network(1, 10)
    for layer in model.layers:
        if isinstance(layer, keras.layers.Conv2D) and layer is not model.layers[1]:
            layer.kernel.assign(np.zeros(layer.kernel.shape))
    last = [layer for layer in model.layers if isinstance(layer, keras.layers.ReLU)]
    inside = keras.Model(model.input, [last[0].output, last[-1].output])
    inputs = np.random.default_rng(0).normal(size=(2, 32, 32, 3)).astype(np.float32)
    stem, end = (np.asarray(value) for value in inside(inputs, training=False))
    assert stem.any()
    # 16 channels amid 32, these amid 64: 24 of zeros on each side.
    np.testing.assert_array_equal(end[..., 24:40], stem[:, ::4, ::4])
    assert not end[..., :24].any()
    assert not end[..., 40:].any()


LABELS = np.arange(512, dtype=np.int32)


def pictures(count: int = 256, height: int = 32, width: int = 32) -> np.ndarray:
    return np.random.default_rng(3).integers(1, 256, (count, height, width, 3)).astype(np.uint8)


def augmented(inputs: np.ndarray, *seed: int) -> np.ndarray:
    import tensorflow as tf

    outputs, labels = augment(tf.constant(inputs), LABELS, tf.constant(seed, tf.int64))
    assert labels is LABELS
    result: np.ndarray = outputs.numpy()
    return result


def standardized(inputs: np.ndarray) -> np.ndarray:
    outputs, labels = standardize(inputs, LABELS)
    assert labels is LABELS
    result: np.ndarray = outputs.numpy()
    return result


def choices(inputs: np.ndarray, outputs: np.ndarray) -> list[tuple[int, int, bool]]:
    """How far down and right each picture was cut from its padded one, and whether mirrored."""
    height, width = inputs.shape[1:3]
    sides = (PADDING, PADDING)
    padded = np.pad(inputs, [(0, 0), sides, sides, (0, 0)])
    shifts = range(2 * PADDING + 1)
    candidates = list(itertools.product(shifts, shifts, (False, True)))
    cuts = []
    for down, right, mirrored in candidates:
        cut = padded[:, down : down + height, right : right + width]
        cuts.append(cut[:, :, ::-1] if mirrored else cut)
    # Shape [candidates, pictures, height, width, channels].
    expected = standardized(np.concatenate(cuts)).reshape(len(cuts), *outputs.shape)
    matches = np.abs(expected - outputs).max(axis=(2, 3, 4)) < 1e-4
    assert (matches.sum(axis=0) == 1).all(), "no part of the padded picture, or one of several"
    return [candidates[match] for match in matches.argmax(axis=0)]


def test_the_seed_alone_decides() -> None:
    first, *others = (augmented(pictures(), *seed) for seed in ((1, 2), (1, 3), (2, 2), (2, 1)))
    np.testing.assert_array_equal(augmented(pictures(), 1, 2), first)
    for other in others:
        assert (first == other).all(axis=(1, 2, 3)).mean() < 0.1


def test_each_picture_is_cut_from_its_padded_one_and_half_are_mirrored() -> None:
    """Every shift is as likely as any other, and the three choices do not depend."""
    inputs = pictures(512, 6, 5)
    found = np.array(
        [choice for step in range(4) for choice in choices(inputs, augmented(inputs, 1, step))]
    )
    down, right, mirrored = found.T
    for shifts in (down, right):
        counts = np.bincount(shifts, minlength=2 * PADDING + 1)
        # 2048 draws: a standard deviation is 14.
        assert np.abs(counts - len(found) / len(counts)).max() < 5 * 14
    assert abs(mirrored.mean() - 0.5) < 5 * 0.011
    assert np.abs(np.corrcoef(found.T) - np.eye(3)).max() < 5 / np.sqrt(len(found))


@pytest.mark.usefixtures("small_cifar")
@pytest.mark.parametrize(("name", "chance"), [("cifar10", 0.1), ("cifar100", 0.05)])
def test_data_stay_bytes_until_a_batch_is_made(name: str, chance: float) -> None:
    data = load_pictures(name)
    assert data.train_inputs.dtype == data.test_inputs.dtype == np.uint8
    assert (len(data.train_inputs), len(data.test_inputs)) == (100, 20)
    assert (data.train_labels.dtype, data.train_labels.shape) == (np.int32, (100,))
    assert chance_accuracy([class_numbers(data.test_labels)]) == chance
    transforms: list[Any] = [data.transform, data.test_transform]
    assert transforms == [augment, standardize]
