"""A workload's loss, as Keras' `compile` would resolve it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.keras_parts import built_part
from syncswitch.trainers.job.workload import Workload

_HINT = "give a name such as 'mse', a Keras loss, or a function without arguments that builds one"
_CHOSEN_BY_SHAPE = ("crossentropy", "ce")


def build_loss(workload: Workload) -> Any:
    """Makes the loss; its result for a batch is the mean over the examples, or one for each.

    Of several outputs a dict or list, with None for those without a loss.
    """
    loss = _resolved(workload, workload.loss)
    if workload.class_weight:
        if isinstance(loss, dict | list):
            raise WorkloadError(
                f"workload {workload.name!r}: class_weight is for a single output, and loss has"
                f" {len(loss)}; give train_weights in the data"
            )
        plain = workload.loss if isinstance(workload.loss, str) else loss
        return ClassWeightedLoss(plain, workload.class_weight)
    return loss


def _resolved(workload: Workload, loss: Any) -> Any:
    import keras

    if isinstance(loss, Mapping):
        return {name: _resolved(workload, loss[name]) for name in sorted(loss)}
    if isinstance(loss, tuple | list):
        return [_resolved(workload, one) for one in loss]
    if loss is None or isinstance(loss, keras.losses.Loss):
        return loss
    if isinstance(loss, str):
        try:
            return named_loss(loss)
        except ValueError as error:
            raise WorkloadError(
                f"workload {workload.name!r}: Keras has no loss {loss!r}; {_HINT}"
            ) from error
    if callable(loss) and not _takes_nothing(loss):
        return loss
    kinds = (Callable, str, Mapping, tuple, list)
    found = built_part(workload, "loss", kinds, _HINT, loss)
    return found if _is_function(found) else _resolved(workload, found)


def _takes_nothing(function: Callable[..., Any]) -> bool:
    """Whether it builds a loss, rather than being one."""
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    except ValueError:  # what is written in C may not say
        pass
    return True


def _is_function(found: Any) -> bool:
    return callable(found) and not isinstance(found, str)


def named_loss(name: str) -> Callable[[Any, Any], Any]:
    """The loss that Keras has of this name, which takes labels and outputs as one of `compile`.

    Such a one brings labels of shape [batch] and outputs of shape [batch, 1] to the same rank.
    Raises ValueError where there is none.
    """
    import keras

    if name.lower() in _CHOSEN_BY_SHAPE:
        return _crossentropy
    known = keras.losses.get(name)
    if isinstance(known, keras.losses.Loss):
        return known  # type: ignore[no-any-return]

    def loss(labels: Any, outputs: Any) -> Any:
        rank, difference = len(outputs.shape), len(outputs.shape) - len(labels.shape)
        if difference == 1 and outputs.shape[-1] == 1 and rank == 2:
            labels = keras.ops.expand_dims(labels, -1)
        return known(labels, outputs)

    loss.__name__ = name
    return loss


def _crossentropy(labels: Any, outputs: Any) -> Any:
    """The one that fits the shapes, as `compile` chooses it."""
    if outputs.shape[-1] == 1:
        kind = "binary"
    elif len(labels.shape) < len(outputs.shape) or labels.shape[-1] == 1:
        kind = "sparse_categorical"
    else:
        kind = "categorical"
    return named_loss(f"{kind}_crossentropy")(labels, outputs)


def loss_settings(loss: Any) -> dict[str, Any]:
    """Settings of a loss; some leave one out of their configuration, such as Huber's delta."""
    config = loss.get_config() if hasattr(loss, "get_config") else {}
    return {**getattr(loss, "_fn_kwargs", {}), **config}


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
        import keras

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
