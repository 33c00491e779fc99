"""The pictures of CIFAR, and their preprocessing.

Shifts by up to 4 pixels and mirror images, as in He et al., "Deep Residual Learning for Image
Recognition" (CVPR 2016), section 4.2; each picture to mean 0 and standard deviation 1, as in
Tensor2Tensor, with which the Sync-Switch paper trained.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from syncswitch.trainers.job.data import Data

PADDING = 4
"""Black pixels added on each side before a picture is cut to its old size."""


def load_pictures(name: str) -> Data:
    """A data set in bytes; a batch becomes float32 on the worker that trains on it.

    Keras downloads it, once, into the folder that `KERAS_HOME` names.

    Args:
        name: `cifar10` or `cifar100`, of which the labels are the fine ones.
    """
    from keras import datasets

    (train, train_labels), (test, test_labels) = getattr(datasets, name).load_data()
    labels = [one.reshape(-1).astype(np.int32) for one in (train_labels, test_labels)]
    return Data(train, labels[0], test, labels[1], transform=augment, test_transform=standardize)


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
