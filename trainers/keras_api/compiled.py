"""What a compiled Keras model says of its training, in the words of a workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.keras_parts import named_loss

_ACCURACIES = {"accuracy", "acc"}


def check_compiled(model: Any, whose: str) -> None:
    """Refuses what is no compiled Keras model."""
    if not isinstance(model, keras.Model) or not getattr(model, "compiled", False):
        raise WorkloadError(f"{whose}: the model is not compiled; call its compile() before")


def copies(model: Any, *, is_fresh: bool) -> Callable[[], Any]:
    """Builds copies of the model.

    Args:
        model: A Sequential or functional model, or another one that Keras can copy.
        is_fresh: Draw what is trained anew for each copy, instead of taking its present values;
            what is not trained, such as frozen layers, keeps them.
    """
    values = [np.asarray(one) for one in model.weights]
    is_kept = [not (is_fresh and one.trainable) for one in model.weights]
    # What is compiled is copied with its loss and metrics, which only registered ones bear.
    model.compiled = False
    try:
        plain = keras.models.clone_model(model)
    finally:
        model.compiled = True

    def build() -> Any:
        copy = keras.models.clone_model(plain)
        for variable, value, keep in zip(copy.weights, values, is_kept, strict=True):
            if keep:
                variable.assign(value)
        return copy

    return build


def compiled_optimizer(model: Any) -> tuple[Callable[[], Any], float | Callable[[], Any]]:
    """Builds optimizers like the model's; and its learning rate, which these leave to others."""
    config = model.optimizer.get_config()
    rate = config["learning_rate"]
    plain = {**config, "learning_rate": 1.0}
    build = type(model.optimizer).from_config
    if isinstance(rate, dict):
        return lambda: build(dict(plain)), lambda: keras.optimizers.schedules.deserialize(rate)
    # Keras keeps 0.02 in float32, which is 0.019999999552965164: the same job needs the same rate.
    return lambda: build(dict(plain)), float(str(np.float32(rate)))


def compiled_loss(model: Any, whose: str) -> str | Callable[[], Any]:
    """The model's one loss as a workload says it."""
    loss = model.loss
    if isinstance(loss, str):
        return loss
    if not callable(loss):
        raise WorkloadError(
            f"{whose}: the model is compiled with loss {loss!r}; compile it with one"
        )
    return lambda: loss


def compiled_metric(model: Any, whose: str) -> Callable[[], Any] | None:
    """Builds the first metric that the model was compiled with; None for accuracy, or for none."""
    config = model.get_compile_config() or {}
    metrics = [one for one in config.get("metrics") or [] if one is not None]
    first = metrics[0] if metrics else None
    if first is None or (isinstance(first, str) and first.lower() in _ACCURACIES):
        return None

    def build() -> Any:
        try:
            if isinstance(first, str):
                return keras.metrics.get(first)
            return keras.metrics.deserialize(first)
        except (TypeError, ValueError) as error:
            raise WorkloadError(
                f"{whose}: cannot build the metric {first!r} that the model is compiled with; give"
                " metric, a function that builds one between 0 and 1 where more is better"
            ) from error

    return build


class ClassWeightedLoss:
    """The loss of each example, times the weight of its class; as `class_weight` of Keras' fit.

    Args:
        loss: Name of a Keras loss, or one.
        weights: By class; 1 for those left out.
    """

    def __init__(self, loss: Any, weights: Mapping[int, float]) -> None:
        self._loss = loss
        self._weights = {int(one): float(weights[one]) for one in sorted(weights)}
        self._of_each = named_loss(loss) if isinstance(loss, str) else getattr(loss, "call", loss)

    def __call__(self, labels: Any, outputs: Any) -> Any:
        """Shape [batch]."""
        losses = self._of_each(labels, outputs)
        while len(losses.shape) > 1:
            losses = keras.ops.mean(losses, axis=-1)
        is_one_hot = len(labels.shape) > 1 and labels.shape[-1] > 1
        classes = keras.ops.argmax(labels, axis=-1) if is_one_hot else labels
        classes = keras.ops.reshape(keras.ops.cast(classes, "int32"), (-1,))
        factors = keras.ops.ones_like(losses)
        for number, weight in self._weights.items():
            factors = keras.ops.where(classes == number, weight, factors)
        return losses * factors

    def get_config(self) -> dict[str, Any]:
        """What it is, as part of what a policy is for."""
        own = self._loss
        if not isinstance(own, str):
            name = getattr(own, "__name__", type(own).__name__)
            own = {"class": name, **(own.get_config() if hasattr(own, "get_config") else {})}
        return {"loss": own, "class_weight": {str(k): v for k, v in self._weights.items()}}
