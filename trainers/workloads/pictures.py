"""Preprocessing of the pictures of CIFAR.

Shifts by up to 4 pixels and mirror images, as in He et al., "Deep Residual Learning for Image
Recognition" (CVPR 2016), section 4.2; each picture to mean 0 and standard deviation 1, as in
Tensor2Tensor, with which the Sync-Switch paper trained.
"""

from __future__ import annotations

from typing import Any

from syncswitch.trainers.job.data import Data
from syncswitch.trainers.workloads.cifar import CifarFiles, read_cifar

PADDING = 4
"""Black pixels added on each side before a picture is cut to its old size."""


def load_pictures(files: CifarFiles) -> Data:
    """The data set in bytes; a batch becomes float32 on the worker that trains on it."""
    return Data(*read_cifar(files), transform=augment, test_transform=standardize)


def augment(inputs: Any, labels: Any, seed: Any) -> tuple[Any, Any]:
    """Shifts and mirrors each picture at random, then standardizes it.

    Args:
        inputs: Uint8, shape [batch, height, width, channels].
        labels: Passed on.
        seed: Shape [2]; the same seed gives the same pictures.
    """
    import tensorflow as tf

    height, width = inputs.shape[1:3]
    shifts = 2 * PADDING + 1
    # One draw decides all three, so that they are independent.
    draw = tf.random.stateless_uniform(
        tf.shape(inputs)[:1], seed, maxval=2 * shifts * shifts, dtype=tf.int32
    )
    down, right, mirror = draw // (2 * shifts), draw // 2 % shifts, draw % 2
    rows = down[:, None] + tf.range(height)
    columns = tf.range(width)
    columns = right[:, None] + tf.where(mirror[:, None] == 1, columns[::-1], columns)
    sides = [PADDING, PADDING]
    padded = tf.pad(inputs, [[0, 0], sides, sides, [0, 0]])
    cut = tf.gather(padded, rows, axis=1, batch_dims=1)
    return standardize(tf.gather(cut, columns, axis=2, batch_dims=1), labels)


def standardize(inputs: Any, labels: Any) -> tuple[Any, Any]:
    """Each picture as float32 with mean 0 and standard deviation 1."""
    import tensorflow as tf

    return tf.image.per_image_standardization(tf.cast(inputs, tf.float32)), labels
