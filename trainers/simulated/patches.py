"""Convolutions as matrix products, which many can be computed of at once."""

from __future__ import annotations

from typing import Any

from syncswitch.trainers.model.tensorflow_api import tf


def with_patches(model: Any) -> Any:
    """The same model with `Conv2D` layers that multiply patches of the picture by the kernel.

    A compiler cannot join convolutions with kernels of their own, but it joins matrix products.

    Returns:
        A model with the same variables in the same order.

    Raises:
        ValueError: The model is neither sequential nor functional, so its layers are not known.
    """
    import keras

    return keras.models.clone_model(model, clone_function=_clone)


def _clone(layer: Any) -> Any:
    from keras import layers

    config = layer.get_config()
    if type(layer) is layers.Conv2D and _is_plain(layer):
        return _patch_layer().from_config(config)
    return type(layer).from_config(config)


def _is_plain(layer: Any) -> bool:
    return (
        layer.data_format == "channels_last"
        and layer.groups == 1
        and tuple(layer.dilation_rate) == (1, 1)
        and layer.padding in ("same", "valid")
    )


def _patch_layer() -> Any:
    from keras import layers

    class PatchConv2D(layers.Conv2D):  # type: ignore[misc]  # Keras has no types
        """A convolution as one matrix product."""

        def convolution_op(self, inputs: Any, kernel: Any) -> Any:
            """Replaces the operation, which Keras offers for this."""
            patches = _patches(inputs, self.kernel_size, self.strides, self.padding)
            depth = patches.shape[-1]
            product = tf.matmul(tf.reshape(patches, [-1, depth]), tf.reshape(kernel, [depth, -1]))
            return tf.reshape(product, [-1, *patches.shape[1:3], self.filters])

    return PatchConv2D


def _patches(inputs: Any, size: tuple[int, int], strides: tuple[int, int], padding: str) -> Any:
    """Shape [batch, rows, columns, size * channels], in the order of a kernel's values."""
    lengths = [int(length) for length in inputs.shape[1:3]]
    if padding == "same":
        paddings = [
            _same_padding(length, one, stride)
            for length, one, stride in zip(lengths, size, strides, strict=True)
        ]
        inputs = tf.pad(inputs, [(0, 0), *paddings, (0, 0)])
        lengths = [length + sum(pad) for length, pad in zip(lengths, paddings, strict=True)]
    ends = [length - one + 1 for length, one in zip(lengths, size, strict=True)]
    return tf.concat(
        [
            inputs[:, row : row + ends[0] : strides[0], column : column + ends[1] : strides[1], :]
            for row in range(size[0])
            for column in range(size[1])
        ],
        axis=-1,
    )


def _same_padding(length: int, size: int, stride: int) -> tuple[int, int]:
    """As TensorFlow pads: evenly, and what is left over at the end."""
    outputs = -(-length // stride)
    total = max((outputs - 1) * stride + size - length, 0)
    return total // 2, total - total // 2
