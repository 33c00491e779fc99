"""The workloads of the Sync-Switch paper: ResNets on CIFAR.

Lengths, decays and tests are those of the authors' logs. At least 8 tests follow the last decay, of
which 5 determine the converged accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload

WEIGHT_DECAY = 1e-4
"""Share of a kernel, times the learning rate, by which a step of plain SGD shrinks it."""

_SHAPE = (32, 32, 3)


def basic_network(blocks_per_stage: int, classes: int) -> Any:
    """Builds the paper's network for CIFAR (section 4.2) with 6 * `blocks_per_stage` + 2 layers.

    Three stages with 16, 32 and 64 filters. Where the shape changes, the shortcut has no parameters
    (the paper's option A): every other pixel, and zeros for the new channels.
    """
    return _network(_basic_block, 16, [blocks_per_stage] * 3, classes)


def bottleneck_network(blocks: Sequence[int], classes: int) -> Any:
    """Builds the paper's network of bottlenecks (table 1) with a stem for small pictures.

    The stem is one 3 x 3 convolution with 64 filters that keeps the size; the paper's stem would
    leave 8 x 8 pixels. Where the shape changes, the shortcut is a 1 x 1 convolution
    (option B). A stage halves the size in its first 3 x 3 convolution, as in Tensor2Tensor.
    The stages have 64, 128, 256, ... filters.
    """
    return _network(_bottleneck, 64, blocks, classes)


def _network(
    block: Callable[[Any, int, int, bool], Any], filters: int, blocks: Sequence[int], classes: int
) -> Any:
    from keras import Input, Model, layers

    inputs = Input(_SHAPE)
    outputs = layers.ReLU()(_convolution(inputs, filters, 3))
    for stage, count in enumerate(blocks):
        for number in range(count):
            strides = 2 if stage and not number else 1
            outputs = block(outputs, filters * 2**stage, strides, number == 0)
    pooled = layers.GlobalAveragePooling2D()(outputs)
    classified = layers.Dense(classes, activation="softmax", kernel_regularizer=_decay())(pooled)
    return Model(inputs, classified)


def _basic_block(inputs: Any, filters: int, strides: int, _: bool) -> Any:
    from keras import layers

    outputs = layers.ReLU()(_convolution(inputs, filters, 3, strides))
    outputs = _convolution(outputs, filters, 3)
    shortcut = inputs
    if strides > 1:
        shortcut = layers.MaxPooling2D(1, strides=strides)(shortcut)
        new = filters - inputs.shape[-1]
        # Called so, the layer pads the last two axes: columns and channels.
        shortcut = layers.ZeroPadding2D(
            ((0, 0), (new // 2, new - new // 2)), data_format="channels_first"
        )(shortcut)
    return layers.ReLU()(layers.Add()([outputs, shortcut]))


def _bottleneck(inputs: Any, filters: int, strides: int, projects: bool) -> Any:
    from keras import layers

    outputs = layers.ReLU()(_convolution(inputs, filters, 1))
    outputs = layers.ReLU()(_convolution(outputs, filters, 3, strides))
    outputs = _convolution(outputs, 4 * filters, 1)
    shortcut = _convolution(inputs, 4 * filters, 1, strides) if projects else inputs
    return layers.ReLU()(layers.Add()([outputs, shortcut]))


def _convolution(inputs: Any, filters: int, size: int, strides: int = 1) -> Any:
    from keras import layers

    outputs = layers.Conv2D(
        filters,
        size,
        strides=strides,
        padding="same",
        use_bias=False,
        kernel_initializer="he_normal",
        kernel_regularizer=_decay(),
    )(inputs)
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(outputs)


def _decay() -> Any:
    from keras import regularizers

    # Keras leaves out the half, whose gradient is the kernel itself.
    return regularizers.L2(WEIGHT_DECAY / 2)


PADDING = 4  # black pixels added on each side before a picture is cropped to its old size


def load_pictures(name: str) -> Data:
    """Loads a data set as bytes; a batch becomes float32 on the worker that trains on it.

    It is `cifar10` or `cifar100`, with the fine labels, which Keras downloads once.
    """
    from keras import datasets

    (train, train_labels), (test, test_labels) = getattr(datasets, name).load_data()
    labels = [one.reshape(-1).astype(np.int32) for one in (train_labels, test_labels)]
    return Data(train, labels[0], test, labels[1], transform=augment, test_transform=standardize)


def augment(inputs: Any, labels: Any, seed: Any) -> tuple[Any, Any]:
    """Shifts and mirrors each picture at random, then standardizes it.

    The same seed, shape [2], gives the same pictures, shape [batch, height, width, channels].
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
    """Scales each picture to mean 0 and standard deviation 1, as float32."""
    import tensorflow as tf

    return tf.image.per_image_standardization(tf.cast(inputs, tf.float32)), labels


resnet32_cifar10 = Workload(
    name="resnet32-cifar10",
    model=partial(basic_network, blocks_per_stage=5, classes=10),
    data=partial(load_pictures, "cifar10"),
    data_set="CIFAR-10, shifted by 4, mirrored, standardized by picture",
    total_worker_steps=64_000,
    batch_size=128,
    learning_rate=0.1,
    momentum=0.9,
    learning_rate_boundaries=((32_000, 0.1), (48_000, 0.01)),
    evaluation_interval_worker_steps=2_000,
)
"""Setups 1 (8 workers) and 3 (16 workers)."""

resnet50_cifar100 = Workload(
    name="resnet50-cifar100",
    model=partial(bottleneck_network, (3, 4, 6, 3), classes=100),
    data=partial(load_pictures, "cifar100"),
    data_set="CIFAR-100, shifted by 4, mirrored, standardized by picture",
    total_worker_steps=128_000,
    batch_size=128,
    learning_rate=0.1,
    momentum=0.9,
    learning_rate_boundaries=((64_000, 0.1), (96_000, 0.01)),
    evaluation_interval_worker_steps=4_000,
)
"""Setup 2 (8 workers), with fine labels."""
