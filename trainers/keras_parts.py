"""What a Keras model, loss or optimizer is, said in plain values that outlive one process."""

from __future__ import annotations

import json
import math
from types import FunctionType
from typing import Any

import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.workload import Workload, users_code

__all__ = [
    "build_loss",
    "build_metric",
    "build_model",
    "build_optimizer",
    "build_schedule",
    "describe_learning_rate",
    "describe_loss",
    "describe_metric",
    "describe_model",
    "describe_optimizer",
    "loss_settings",
    "schedule_boundaries",
]

# Names are counted up in a process, seeds do not matter, connections are described apart.
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


def build_model(workload: Workload) -> Any:
    """Makes the model, with fresh initial values.

    Raises:
        WorkloadError: It is no Keras model, or has no variables yet.
    """
    import keras

    with users_code(workload, "model"):
        model = workload.model()
    if not isinstance(model, keras.Model):
        raise WorkloadError(
            f"workload {workload.name!r}: model() returned a {type(model).__name__}; "
            "return a keras.Model"
        )
    if not model.built:
        raise WorkloadError(
            f"workload {workload.name!r}: the model has no variables yet; "
            "give it an Input, or build it before you return it"
        )
    return model


def build_loss(workload: Workload) -> Any:
    """Makes the loss; its result for a batch is the mean over the examples.

    Raises:
        WorkloadError: No Keras loss has this name, or what the function makes is no loss.
    """
    from keras import losses

    hint = "give a name such as 'mse', or a function without arguments that builds a Keras loss"
    loss = workload.loss
    if isinstance(loss, str):
        try:
            return losses.get(loss)
        except ValueError as error:
            raise WorkloadError(
                f"workload {workload.name!r}: Keras has no loss {loss!r}; {hint}"
            ) from error
    with users_code(workload, "loss"):
        built = loss()
    if not callable(built):
        raise WorkloadError(
            f"workload {workload.name!r}: loss() returned a {type(built).__name__}; {hint}"
        )
    return built


def build_optimizer(workload: Workload) -> Any:
    """Makes the optimizer; the workload must have one.

    Raises:
        WorkloadError: It is no Keras optimizer, or has a learning-rate schedule of its own.
    """
    import keras

    assert workload.optimizer is not None
    with users_code(workload, "optimizer"):
        built = workload.optimizer()
    if not isinstance(built, keras.optimizers.Optimizer):
        raise WorkloadError(
            f"workload {workload.name!r}: optimizer() returned a {type(built).__name__}; "
            "return a Keras optimizer"
        )
    if isinstance(built._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
        raise WorkloadError(
            f"workload {workload.name!r}: the optimizer has a "
            f"{type(built._learning_rate).__name__}; give a plain learning rate there, and the "
            "workload a learning_rate that is a function which builds the schedule"
        )
    return built


def build_schedule(workload: Workload) -> Any:
    """Makes the learning-rate schedule; None where the workload's rate is a number.

    Raises:
        WorkloadError: It is no Keras schedule, or gives no rate above 0 at the start.
    """
    if not callable(workload.learning_rate):
        return None
    import keras

    with users_code(workload, "learning_rate"):
        built = workload.learning_rate()
        is_schedule = isinstance(built, keras.optimizers.schedules.LearningRateSchedule)
        first = float(built(0)) if is_schedule else math.nan
    if not is_schedule:
        raise WorkloadError(
            f"workload {workload.name!r}: learning_rate() returned a {type(built).__name__}; "
            "return a keras.optimizers.schedules.LearningRateSchedule over worker-steps"
        )
    if not (math.isfinite(first) and first >= 0):
        raise WorkloadError(
            f"workload {workload.name!r}: learning_rate() gives {first} at worker-step 0; "
            "give 0 or more"
        )
    return built


def schedule_boundaries(schedule: Any) -> tuple[float, tuple[tuple[int, float], ...]] | None:
    """First rate, and from which worker-step on which factor; None for a rate without steps."""
    import keras

    if type(schedule) is not keras.optimizers.schedules.PiecewiseConstantDecay:
        return None
    first, *later = map(float, schedule.values)
    if first <= 0:
        return None
    # Keras keeps the value before a boundary at the boundary itself.
    starts = [int(boundary) + 1 for boundary in schedule.boundaries]
    return first, tuple(
        (start, _plain_ratio(rate, first)) for start, rate in zip(starts, later, strict=True)
    )


def _plain_ratio(rate: float, first: float) -> float:
    """The factor that people mean: 0.01 / 0.1 is 0.1, not 0.09999999999999999.

    The same job said in rates and in factors has to have the same fingerprint.
    """
    for digits in range(1, 17):
        factor = float(f"{rate / first:.{digits}g}")
        if math.isclose(factor * first, rate, rel_tol=4e-16):
            return factor
    return rate / first


def build_metric(workload: Workload) -> Any:
    """Makes the metric; None where the workload leaves the choice to its labels.

    Raises:
        WorkloadError: It is no Keras metric.
    """
    import keras

    if workload.metric is None:
        return None
    with users_code(workload, "metric"):
        metric = workload.metric()
    if not isinstance(metric, keras.metrics.Metric):
        raise WorkloadError(
            f"workload {workload.name!r}: metric() returned a {type(metric).__name__}; "
            "return a keras.metrics.Metric"
        )
    return metric


def describe_model(model: Any) -> list[Any]:
    """The structure of a model: each layer's class, settings and variables' shapes, in order.

    A model of connected layers also says how they are connected.
    """
    layers = model._flatten_layers(include_self=False)
    return [_connections(model), *(_describe_layer(layer) for layer in layers)]


def describe_loss(workload: Workload) -> str:
    """The loss as canonical text."""
    if isinstance(workload.loss, str):
        return workload.loss
    built = build_loss(workload)
    if not hasattr(built, "get_config"):
        return str(getattr(built, "__name__", type(built).__name__))
    return _canonical({"class": type(built).__name__, **_settings(loss_settings(built))})


def describe_optimizer(workload: Workload, workers: int) -> str:
    """The optimizer and its settings, without a learning rate in numbers, as canonical text.

    What else makes its updates is told where it matters with so many workers: a schedule without
    steps, a momentum that changes at the switch, a limit of the linear scaling. What is usual is
    left out, so that fingerprints outlive new settings.
    """
    if workload.optimizer is None:
        described: dict[str, Any] = {"class": "SGD"}
    else:
        described = _description(build_optimizer(workload))
    schedule = build_schedule(workload)
    if schedule is not None and schedule_boundaries(schedule) is None:
        described["learning_rate_schedule"] = _description(schedule)
    if workload.momentum_after_switch != "same":
        described["momentum_after_switch"] = workload.momentum_after_switch
    if workload.largest_scaling is not None and workers > workload.largest_scaling:
        described["largest_scaling"] = workload.largest_scaling
    return _canonical(described)


def describe_learning_rate(
    workload: Workload,
) -> tuple[float, tuple[tuple[int, float], ...] | None]:
    """First learning rate, and its steps; None for steps where it changes in another way."""
    schedule = build_schedule(workload)
    if schedule is None:
        assert not callable(workload.learning_rate)
        boundaries = ((int(step), float(f)) for step, f in workload.learning_rate_boundaries)
        return float(workload.learning_rate), tuple(boundaries)
    return schedule_boundaries(schedule) or (float(schedule(0)), None)


def describe_metric(workload: Workload) -> str:
    """The metric and its settings as canonical text."""
    metric = build_metric(workload)
    return "accuracy" if metric is None else _describe(metric)


def loss_settings(loss: Any) -> dict[str, Any]:
    """Settings of a loss; some leave one out of their configuration, such as Huber's delta."""
    config = loss.get_config() if hasattr(loss, "get_config") else {}
    return {**getattr(loss, "_fn_kwargs", {}), **config}


def _describe(built: Any) -> str:
    return _canonical(_description(built))


def _description(built: Any) -> dict[str, Any]:
    return {"class": type(built).__name__, **_settings(built.get_config())}


def _describe_layer(layer: Any) -> list[Any]:
    try:
        config = _settings(layer.get_config())
    except NotImplementedError:
        config = {}
    function = getattr(layer, "function", None)
    if isinstance(function, FunctionType):
        # A Lambda layer: its own configuration holds the path of the file.
        config = _describe_function(function)
    variables = [[list(variable.shape), bool(variable.trainable)] for variable in layer.variables]
    return [type(layer).__name__, config, variables, _connections(layer)]


def _describe_function(function: FunctionType) -> list[Any]:
    """What a function uses, without where it stands and how this Python compiles it."""
    constants = [value for value in function.__code__.co_consts if isinstance(value, float | int)]
    return [function.__name__, sorted(function.__code__.co_names), sorted(constants)]


def _connections(model: Any) -> list[Any]:
    """For each layer of a functional model, which outputs of which layers it is called with."""
    try:
        layers = model.get_config()["layers"]
        numbers = {layer["config"]["name"]: number for number, layer in enumerate(layers)}
        return [_sources(layer["inbound_nodes"], numbers) for layer in layers]
    except (AttributeError, KeyError, NotImplementedError, TypeError):
        return []  # one layer after the other, or code of its own


def _sources(value: Any, numbers: dict[str, int]) -> list[Any]:
    if isinstance(value, dict):
        if "keras_history" in value:
            name, node, tensor = value["keras_history"]
            return [[numbers[name], node, tensor]]
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [source for part in value for source in _sources(part, numbers)]
    return []


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
    if isinstance(config, np.generic):
        return config.item()
    return getattr(config, "__name__", None) or type(config).__name__


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
