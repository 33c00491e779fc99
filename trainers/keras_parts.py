"""What a Keras model, loss or optimizer is, said in plain values that outlive one process."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from syncswitch.storage.errors import WorkloadError

__all__ = ["build_loss", "build_optimizer", "describe_loss", "describe_model", "describe_optimizer"]

# Names are counted up in a process, seeds do not matter, connections are named by layers.
_PASSING = {
    "name",
    "seed",
    "layers",
    "input_layers",
    "output_layers",
    "inbound_nodes",
    "build_config",
    "build_input_shape",
    "registered_name",
    "module",
    "learning_rate",
}


def build_loss(loss: str | Callable[[], Any]) -> Any:
    """Makes the loss; its result for a batch is the mean over the examples.

    Raises:
        WorkloadError: No Keras loss has this name.
    """
    from keras import losses

    try:
        return losses.get(loss) if isinstance(loss, str) else loss()
    except ValueError as error:
        raise WorkloadError(
            f"workload: no loss {loss!r} in Keras; give a name such as 'mse' or a function that "
            "builds a keras.losses.Loss"
        ) from error


def build_optimizer(optimizer: Callable[[], Any]) -> Any:
    """Makes the optimizer.

    Raises:
        WorkloadError: It is no Keras optimizer, or has a learning-rate schedule of its own.
    """
    import keras

    built = optimizer()
    if not isinstance(built, keras.optimizers.Optimizer):
        raise WorkloadError(
            f"workload: optimizer() returned a {type(built).__name__}; return a Keras optimizer"
        )
    if isinstance(built._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
        raise WorkloadError(
            f"workload: the optimizer has a {type(built._learning_rate).__name__}; give a plain "
            "learning rate there and the decays as learning_rate_boundaries"
        )
    return built


def describe_model(model: Any) -> list[Any]:
    """The structure of a model: each layer's class, settings and variables' shapes, in order."""
    return [_describe_layer(layer) for layer in model._flatten_layers(include_self=False)]


def describe_loss(loss: str | Callable[[], Any]) -> str:
    """The loss as canonical text."""
    if isinstance(loss, str):
        return loss
    built = build_loss(loss)
    if not hasattr(built, "get_config"):
        return str(getattr(built, "__name__", type(built).__name__))
    return _canonical({"class": type(built).__name__, **_settings(built.get_config())})


def describe_optimizer(optimizer: Callable[[], Any] | None) -> str:
    """The optimizer and its settings, without the learning rate, as canonical text."""
    if optimizer is None:
        return _canonical({"class": "SGD"})
    built = build_optimizer(optimizer)
    return _canonical({"class": type(built).__name__, **_settings(built.get_config())})


def _describe_layer(layer: Any) -> list[Any]:
    try:
        config = _settings(layer.get_config())
    except NotImplementedError:
        config = {}
    variables = [[list(variable.shape), bool(variable.trainable)] for variable in layer.variables]
    return [type(layer).__name__, config, variables]


def _settings(config: Any) -> Any:
    """Leaves out what differs between processes, and what is off.

    Later versions of Keras add settings that are off by default; with those left out a fingerprint
    outlives an upgrade.
    """
    if isinstance(config, dict):
        cleaned = {
            str(key): _settings(value) for key, value in config.items() if key not in _PASSING
        }
        return {
            key: value for key, value in cleaned.items() if value not in (None, False, {}, [], "")
        }
    if isinstance(config, list | tuple):
        return [_settings(value) for value in config]
    if isinstance(config, bool | int | float | str) or config is None:
        return config
    return getattr(config, "__name__", None) or type(config).__name__


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
