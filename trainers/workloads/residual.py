"""Residual networks for pictures of 32 x 32 pixels.

He et al., "Deep Residual Learning for Image Recognition" (CVPR 2016): ReLU after the addition, He's
initial values, no biases beside batch normalization. Weight decay is the paper's 1e-4, which is
also that of Tensor2Tensor's `resnet_base`. Momentum and epsilon of the batch normalization are
Tensor2Tensor's: moving averages over 10 updates keep up with the few updates of BSP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

WEIGHT_DECAY = 1e-4
"""What a kernel loses, times the learning rate, in a step of plain SGD."""

_SHAPE = (32, 32, 3)


def basic_network(blocks_per_stage: int, classes: int) -> Any:
    """The paper's network for CIFAR (section 4.2) with 6 * `blocks_per_stage` + 2 layers.

    Three stages with 16, 32 and 64 filters. Where the shape changes, the shortcut has no parameters
    (the paper's option A): every other pixel, and zeros for the new channels.
    """
    from keras import Input, Model, layers

    inputs = Input(_SHAPE)
    outputs = layers.ReLU()(_convolution(inputs, 16, 3))
    for stage, filters in enumerate((16, 32, 64)):
        for block in range(blocks_per_stage):
            strides = 2 if stage and not block else 1
            outputs = _basic_block(outputs, filters, strides)
    return Model(inputs, _classified(outputs, classes))


def bottleneck_network(blocks: Sequence[int], classes: int) -> Any:
    """The paper's network of bottlenecks (table 1) with a stem for small pictures.

    The stem is one 3 x 3 convolution with 64 filters that keeps the size: 7 x 7 with stride 2 and
    pooling would leave 8 x 8 pixels. Where the shape changes, the shortcut is a 1 x 1 convolution
    (option B). A stage halves the size in its first 3 x 3 convolution, as in Tensor2Tensor.

    Args:
        blocks: How many blocks each stage has; the stages have 64, 128, 256, ... filters.
        classes: How many classes there are.
    """
    from keras import Input, Model, layers

    inputs = Input(_SHAPE)
    outputs = layers.ReLU()(_convolution(inputs, 64, 3))
    for stage, count in enumerate(blocks):
        for block in range(count):
            strides = 2 if stage and not block else 1
            outputs = _bottleneck(outputs, 64 * 2**stage, strides, projects=not block)
    return Model(inputs, _classified(outputs, classes))


def _basic_block(inputs: Any, filters: int, strides: int) -> Any:
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


def _bottleneck(inputs: Any, filters: int, strides: int, *, projects: bool) -> Any:
    from keras import layers

    outputs = layers.ReLU()(_convolution(inputs, filters, 1))
    outputs = layers.ReLU()(_convolution(outputs, filters, 3, strides))
    outputs = _convolution(outputs, 4 * filters, 1)
    shortcut = _convolution(inputs, 4 * filters, 1, strides) if projects else inputs
    return layers.ReLU()(layers.Add()([outputs, shortcut]))


def _convolution(inputs: Any, filters: int, size: int, strides: int = 1) -> Any:
    """A convolution that is normalized over the batch."""
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


def _classified(inputs: Any, classes: int) -> Any:
    from keras import layers

    pooled = layers.GlobalAveragePooling2D()(inputs)
    return layers.Dense(classes, activation="softmax", kernel_regularizer=_decay())(pooled)


def _decay() -> Any:
    from keras import regularizers

    # Keras leaves out the half, whose gradient is the kernel itself.
    return regularizers.L2(WEIGHT_DECAY / 2)
