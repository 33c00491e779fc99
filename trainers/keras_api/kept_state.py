"""The state of a Keras model at one moment, to go back to."""

from __future__ import annotations

from typing import Any

import keras


class KeptState:
    """Copies of a compiled model's weights and of its optimizer's variables, in memory.

    The learning rate is among these, where it is not a schedule; the place in a schedule always is.
    """

    def __init__(self, model: Any) -> None:
        self._weights = model.get_weights()
        self._optimizer_values = [
            keras.ops.convert_to_numpy(variable).copy() for variable in _variables(model)
        ]

    def restore(self, model: Any) -> bool:
        """Puts the values back; says whether the optimizer took its own.

        Another kind of optimizer, with which it was compiled meanwhile, cannot.
        """
        model.set_weights(self._weights)
        variables = _variables(model)
        values = self._optimizer_values
        if [tuple(one.shape) for one in variables] != [value.shape for value in values]:
            return False
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        return True


def _variables(model: Any) -> list[Any]:
    """Those of the optimizer, slots included, which it may not have before its first update."""
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    return list(model.optimizer.variables)
