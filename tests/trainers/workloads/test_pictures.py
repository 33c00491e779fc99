from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.workloads.resnets import PADDING, augment, load_pictures, standardize

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


class TestStandardize:
    def test_each_picture_alone(self) -> None:
        inputs = pictures(8)
        outputs = standardized(inputs)
        assert outputs.dtype == np.float32
        values = inputs.reshape(8, -1).astype(np.float64)
        expected = (values - values.mean(1, keepdims=True)) / values.std(1, keepdims=True)
        np.testing.assert_allclose(outputs.reshape(8, -1), expected, atol=1e-4)

    def test_a_picture_of_one_colour_becomes_zero(self) -> None:
        assert not standardized(np.full((2, 32, 32, 3), 77, np.uint8)).any()


class TestAugment:
    def test_shape_and_type(self) -> None:
        outputs = augmented(pictures(), 1, 2)
        assert (outputs.shape, outputs.dtype) == ((256, 32, 32, 3), np.float32)

    def test_the_same_seed_gives_the_same_pictures_and_others_others(self) -> None:
        inputs = pictures()
        first = augmented(inputs, 1, 2)
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

    def test_in_a_traced_function_as_outside(self) -> None:
        import tensorflow as tf

        inputs = pictures(16)
        traced = tf.function(augment, autograph=False)
        outputs, _ = traced(tf.constant(inputs), LABELS, tf.constant([5, 6], tf.int64))
        np.testing.assert_allclose(outputs.numpy(), augmented(inputs, 5, 6), atol=1e-6)


@pytest.mark.usefixtures("small_cifar")
@pytest.mark.parametrize(("name", "chance"), [("cifar10", 0.1), ("cifar100", 0.05)])
def test_data_stay_bytes_until_a_batch_is_made(name: str, chance: float) -> None:
    data = load_pictures(name)
    assert data.train_inputs.dtype == data.test_inputs.dtype == np.uint8
    assert (len(data.train_inputs), len(data.test_inputs)) == (100, 20)
    assert (data.train_labels.dtype, data.train_labels.shape) == (np.int32, (100,))
    assert data.chance_accuracy == chance
    transforms: list[Any] = [data.transform, data.test_transform]
    assert transforms == [augment, standardize]
