"""Copies of a model do what the model does, with what it has learned of the data beforehand."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError

AGES = np.array([[20.0], [40.0], [60.0]], "float32")
TOWNS = np.array([["Bern"], ["Rom"], ["Bern"]], object)
WORDS = np.array(["good good film", "bad film", "good"], object)


def adapted(keras: Any) -> Any:
    """Numbers, categories and text, brought to one row that a layer of ones adds up."""
    of = keras.layers
    scaled, known, counted = (
        of.Normalization(),
        of.StringLookup(output_mode="one_hot"),
        of.TextVectorization(output_mode="tf_idf"),
    )
    for layer, values in ((scaled, AGES), (known, TOWNS), (counted, WORDS)):
        layer.adapt(values)
    age, town = keras.Input((1,)), keras.Input((1,), dtype="string")
    text = keras.Input((), dtype="string")
    row = of.concatenate([scaled(age), known(town), counted(text)])
    model = keras.Model([age, town, text], [row, of.Dense(1, kernel_initializer="ones")(row)])
    model.compile("sgd", "mse")
    return model


@pytest.mark.parametrize("is_fresh", [True, False])
def test_what_was_adapted_is_copied(keras: Any, is_fresh: bool) -> None:
    from syncswitch.trainers.keras_api.compiled import copies

    model = adapted(keras)
    inputs = [keras.ops.convert_to_tensor(one.tolist()) for one in (AGES, TOWNS, WORDS)]
    expected, total = model(inputs)
    assert np.asarray(expected)[:, 0] == pytest.approx([-1.2247, 0.0, 1.2247], abs=1e-3)
    build = copies(model, is_fresh=is_fresh)
    assert model.compiled
    for copy in (build(), build()):
        rows, sums = copy(inputs)
        assert (np.asarray(rows) == np.asarray(expected)).all()
        assert (np.asarray(sums) == np.asarray(total)).all()


def own_model(keras: Any) -> Any:
    """A model as people write them: it has variables once `fit` has seen a batch."""

    class Own(keras.Model):  # type: ignore[misc]
        def __init__(self, units: int) -> None:
            super().__init__()
            self.layer = keras.layers.Dense(units)

        def call(self, inputs: Any) -> Any:
            return self.layer(inputs)

    model = Own(1)
    model.compile("sgd", "mse")
    return model


def test_a_class_of_ones_own_is_given_as_a_function_that_builds_it(keras: Any) -> None:
    from syncswitch.trainers.keras_api.from_compiled import from_compiled

    x = np.ones((8, 3), "float32")
    rest: Any = {"y": x[:, :1], "validation_split": 0.5, "name": "own"}
    with pytest.raises(WorkloadError) as error:
        from_compiled(own_model(keras), x, **rest)
    assert re.match("Keras cannot copy model 'own.*', a Own [(]", str(error.value))
    assert "give a function that builds and compiles it" in str(error.value)
    made = from_compiled(lambda: own_model(keras), x, **rest)
    one, other = made.model(), made.model()
    assert [tuple(value.shape) for value in one.weights] == [(3, 1), (1,)]
    assert not one.compiled
    assert (np.asarray(one.weights[0]) != np.asarray(other.weights[0])).any()
    with pytest.raises(WorkloadError, match="the model is not compiled"):
        from_compiled(lambda: 3, x, **rest)


def test_variables_that_wait_for_the_first_batch_are_made(keras: Any) -> None:
    from syncswitch.trainers.keras_api.from_compiled import from_compiled

    model = keras.Sequential([keras.layers.Dense(2, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    x = np.ones((8, 3), "float32")
    made = from_compiled(model, x, np.arange(8) % 2, validation_split=0.5)
    assert [tuple(one.shape) for one in made.model().weights] == [(3, 2), (2,)]


@pytest.mark.parametrize("name", ["train_step", "compute_loss"])
def test_a_training_of_ones_own_is_refused(keras: Any, name: str) -> None:
    from syncswitch.trainers.keras_api.from_compiled import from_compiled

    kind = type("Own", (keras.Model,), {name: lambda *_: {}})
    inputs = keras.Input((3,))
    model = kind(inputs, keras.layers.Dense(1)(inputs))
    model.compile("sgd", "mse")
    x = np.ones((8, 3), "float32")
    with pytest.raises(WorkloadError, match=f"a Own, has its own {name}, which no run would"):
        from_compiled(model, x, x[:, :1], validation_split=0.5)
