from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.workloads.resnets import (
    WEIGHT_DECAY,
    basic_network,
)


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
    def test_of_resnet_32(self, resnet_32: Any) -> None:
        assert size(resnet_32.trainable_variables) == RESNET_32 == 464_154
        assert size(resnet_32.non_trainable_variables) == 2_272

    def test_of_resnet_50(self, resnet_50: Any) -> None:
        assert size(resnet_50.trainable_variables) == RESNET_50 == 23_705_252
        assert size(resnet_50.non_trainable_variables) == 53_120

    @pytest.mark.parametrize(("model", "layers"), [("resnet_32", 32), ("resnet_50", 50 + 4)])
    def test_the_name_counts_the_layers_with_weights_beside_the_shortcuts(
        self, request: pytest.FixtureRequest, keras: Any, model: str, layers: int
    ) -> None:
        weighted = (keras.layers.Conv2D, keras.layers.Dense)
        found = request.getfixturevalue(model).layers
        assert sum(isinstance(layer, weighted) for layer in found) == layers

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
class TestVariables:
    def test_are_float32(self, request: pytest.FixtureRequest, name: str) -> None:
        model = request.getfixturevalue(name)
        assert {str(variable.dtype) for variable in model.variables} == {"float32"}

    def test_weight_decay_adds_the_kernel_to_its_gradient(
        self, request: pytest.FixtureRequest, name: str
    ) -> None:
        """The kernels alone: neither biases nor what normalizes a batch."""
        import tensorflow as tf

        model = request.getfixturevalue(name)
        kernels = [value for value in model.trainable_variables if value.name == "kernel"]
        with tf.GradientTape() as tape:
            decay = tf.add_n(model.losses)
        expected = WEIGHT_DECAY / 2 * sum(float(np.sum(np.square(value))) for value in kernels)
        assert float(decay) == pytest.approx(expected, rel=1e-4)
        values = [variable.value for variable in model.trainable_variables]
        for variable, gradient in zip(
            model.trainable_variables, tape.gradient(decay, values), strict=True
        ):
            if variable.name == "kernel":
                np.testing.assert_allclose(gradient, WEIGHT_DECAY * variable.numpy(), rtol=1e-4)
            else:
                assert gradient is None


class TestShortcut:
    def test_of_resnet_32_has_no_parameters(self, keras: Any) -> None:
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


@pytest.mark.parametrize(("name", "classes"), [("resnet_32", 10), ("resnet_50", 100)])
def test_a_gradient_reaches_every_variable(
    request: pytest.FixtureRequest, keras: Any, name: str, classes: int
) -> None:
    import tensorflow as tf

    model = request.getfixturevalue(name)
    inputs = tf.constant(np.random.default_rng(0).normal(size=(2, 32, 32, 3)), tf.float32)
    before = [variable.numpy() for variable in model.non_trainable_variables]
    with tf.GradientTape() as tape:
        outputs = model(inputs, training=True)
        loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(np.arange(2), outputs))
    assert outputs.shape == (2, classes)
    np.testing.assert_allclose(tf.reduce_sum(outputs, 1), 1.0, rtol=1e-5)
    assert np.isfinite(float(loss))
    values = [variable.value for variable in model.trainable_variables]
    for gradient in tape.gradient(loss, values):
        assert np.isfinite(gradient).all()
        assert np.any(gradient)
    for variable, old in zip(model.non_trainable_variables, before, strict=True):
        assert not np.array_equal(variable, old)
