"""The papers' workloads as a whole."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.trainers.job.data import chance_accuracy, class_numbers
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.job.schedule import decay_factor
from syncswitch.trainers.model.checkpoint import read_checkpoint
from syncswitch.trainers.workloads.resnets import (
    PADDING,
    WEIGHT_DECAY,
    augment,
    basic_network,
    bottleneck_network,
    load_pictures,
    standardize,
)
from syncswitch.trainers.workloads.resnets import resnet32_cifar10 as resnet32
from syncswitch.trainers.workloads.resnets import resnet50_cifar100 as resnet50
from tests.trainers.jobs import RecordingObserver, spec_of

BOTH = pytest.mark.parametrize("workload", [resnet32, resnet50], ids=lambda job: job.name)


@BOTH
class TestBoth:
    def test_have_the_schedule_of_the_paper(self, workload: Any) -> None:
        """Its length, and a test as often as in the authors' logs."""
        half = {"resnet32-cifar10": 32_000, "resnet50-cifar100": 64_000}[workload.name]
        assert (workload.total_worker_steps, workload.batch_size) == (2 * half, 128)
        assert workload.evaluation_interval_worker_steps == half // 16
        assert (workload.learning_rate, workload.momentum) == (0.1, 0.9)
        factors = [
            decay_factor(workload.learning_rate_boundaries, step)
            for decay in (half, half * 3 // 2)
            for step in (decay - 1, decay)
        ]
        assert factors == [1.0, 0.1, 0.1, 0.01]
        rest = workload.total_worker_steps - half * 3 // 2
        assert rest // workload.evaluation_interval_worker_steps >= 5, "the converged accuracy"

    def test_that_cannot_be_downloaded_say_so_in_one_line(
        self, keras: Any, workload: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def load_data() -> None:
            raise OSError("URL fetch failure on https://www.cs.toronto.edu")

        for module in (keras.datasets.cifar10, keras.datasets.cifar100):
            monkeypatch.setattr(module, "load_data", load_data)
        with pytest.raises(WorkloadError, match="URL fetch failure on") as error:
            workload.load_data()
        assert "\n" not in str(error.value)

    @pytest.mark.usefixtures("small_cifar")
    def test_labels_fit_the_outputs(self, request: pytest.FixtureRequest, workload: Any) -> None:
        network = "resnet_32" if workload is resnet32 else "resnet_50"
        data = workload.data()
        classes = request.getfixturevalue(network).output.shape[-1]
        assert max(data.train_labels.max(), data.test_labels.max()) == classes - 1


@pytest.mark.parametrize(
    "model", [partial(basic_network, 1, 10), partial(bottleneck_network, (1, 1), 10)]
)
def test_describe_themselves_the_same_every_time(keras: Any, model: Callable[[], Any]) -> None:
    """Though the names of layers count up in a process."""

    def identity() -> WorkloadIdentity:
        return workload_identity(replace(resnet32, model=model), 8, "bsp", "asp")

    assert identity() == identity()


@pytest.mark.usefixtures("small_cifar")
def test_trains_on_the_cluster(make_trainer: Any, tmp_path: Path) -> None:
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
    observer = RecordingObserver()
    spec = spec_of(workload, 2, 50.0, checkpoint_percents=(100.0,), checkpoint_directory=tmp_path)
    record = make_trainer(workload, 2).train(spec, observer)
    assert record.worker_steps == 16
    assert not record.diverged
    assert [phase.protocol for phase in record.phases] == ["bsp", "asp"]
    losses = [evaluation.training_loss for evaluation in observer.evaluations]
    assert all(math.isfinite(loss) for loss in losses)
    # Of 16 small batches it learns little; on which ones it is good differs in the last bits.
    assert losses[-1] < losses[0] + 0.1
    statistics = read_checkpoint(record.checkpoints[100.0]).statistics
    assert len(statistics) == 2 * 7
    for name, values in statistics.items():
        assert np.isfinite(values).all(), name
        assert not np.isin(values, (0.0, 1.0)).any(), f"{name} has values as it was built with"


def size(variables: list[Any]) -> int:
    return sum(int(np.prod(variable.shape)) for variable in variables)


def convolutions(blocks: int, sizes: list[tuple[int, int, int]]) -> int:
    """Parameters of `blocks` rows of convolutions (size, from, to) with their two per filter."""
    return blocks * sum(k * k * a * b + 2 * b for k, a, b in sizes)


# Counted from the papers' tables, layer by layer.
RESNET_32 = (
    convolutions(1, [(3, 3, 16)])
    + convolutions(5, [(3, 16, 16), (3, 16, 16)])
    + convolutions(1, [(3, 16, 32), (3, 32, 32)])
    + convolutions(4, [(3, 32, 32), (3, 32, 32)])
    + convolutions(1, [(3, 32, 64), (3, 64, 64)])
    + convolutions(4, [(3, 64, 64), (3, 64, 64)])
    + 64 * 10
    + 10
)
RESNET_50 = (
    convolutions(1, [(3, 3, 64)])
    + convolutions(1, [(1, 64, 64), (3, 64, 64), (1, 64, 256), (1, 64, 256)])
    + convolutions(2, [(1, 256, 64), (3, 64, 64), (1, 64, 256)])
    + convolutions(1, [(1, 256, 128), (3, 128, 128), (1, 128, 512), (1, 256, 512)])
    + convolutions(3, [(1, 512, 128), (3, 128, 128), (1, 128, 512)])
    + convolutions(1, [(1, 512, 256), (3, 256, 256), (1, 256, 1024), (1, 512, 1024)])
    + convolutions(5, [(1, 1024, 256), (3, 256, 256), (1, 256, 1024)])
    + convolutions(1, [(1, 1024, 512), (3, 512, 512), (1, 512, 2048), (1, 1024, 2048)])
    + convolutions(2, [(1, 2048, 512), (3, 512, 512), (1, 512, 2048)])
    + 2048 * 100
    + 100
)


class TestSize:
    @pytest.mark.parametrize(
        ("name", "trained", "moving", "layers"),
        # Layers with weights: those that the name counts, and the shortcuts.
        [("resnet_32", RESNET_32, 2_272, 32), ("resnet_50", RESNET_50, 53_120, 50 + 4)],
    )
    def test_is_that_of_the_papers_table(
        self, request: Any, keras: Any, name: str, trained: int, moving: int, layers: int
    ) -> None:
        model = request.getfixturevalue(name)
        assert size(model.trainable_variables) == trained
        assert size(model.non_trainable_variables) == moving
        weighted = (keras.layers.Conv2D, keras.layers.Dense)
        assert sum(isinstance(layer, weighted) for layer in model.layers) == layers

    @pytest.mark.parametrize(
        ("model", "sizes"),
        [("resnet_32", [32, 16, 8]), ("resnet_50", [32, 16, 8, 4])],
    )
    def test_each_stage_after_the_first_halves_the_picture(
        self, request: pytest.FixtureRequest, keras: Any, model: str, sizes: list[int]
    ) -> None:
        layers = request.getfixturevalue(model).layers
        seen = [layer.output.shape[1] for layer in layers if isinstance(layer, keras.layers.Add)]
        assert sorted(set(seen), reverse=True) == sizes
        assert seen == sorted(seen, reverse=True)


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
    candidates = [
        (down, right, mirrored)
        for down in range(2 * PADDING + 1)
        for right in range(2 * PADDING + 1)
        for mirrored in (False, True)
    ]
    cuts = []
    for down, right, mirrored in candidates:
        cut = padded[:, down : down + height, right : right + width]
        cuts.append(cut[:, :, ::-1] if mirrored else cut)
    # Shape [candidates, pictures, height, width, channels].
    expected = standardized(np.concatenate(cuts)).reshape(len(cuts), *outputs.shape)
    matches = np.abs(expected - outputs).max(axis=(2, 3, 4)) < 1e-4
    assert (matches.sum(axis=0) == 1).all(), "no part of the padded picture, or one of several"
    return [candidates[match] for match in matches.argmax(axis=0)]


class TestAugment:
    def test_the_seed_alone_decides(self) -> None:
        inputs = pictures()
        first = augmented(inputs, 1, 2)
        assert (first.shape, first.dtype) == ((256, 32, 32, 3), np.float32)
        np.testing.assert_array_equal(augmented(inputs, 1, 2), first)
        for seed in ((1, 3), (2, 2), (2, 1)):
            other = augmented(inputs, *seed)
            assert np.mean([np.array_equal(*pair) for pair in zip(first, other, strict=True)]) < 0.1

    def test_each_is_cut_from_its_padded_picture_and_half_are_mirrored(self) -> None:
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
