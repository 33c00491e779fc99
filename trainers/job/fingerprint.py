"""The identity of a job, in plain values that are the same in every process."""

from __future__ import annotations

import hashlib
import json
from types import FunctionType
from typing import Any

import numpy as np

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import Job, Protocols, Recipe, ScheduledJob
from syncswitch.storage.records.metric import DescribedMetric
from syncswitch.trainers.job.embeddings import embeddings_of, true_shape
from syncswitch.trainers.job.hyperparameters import momentum_rule
from syncswitch.trainers.job.keras_parts import (
    build_loss,
    build_metric,
    build_model,
    build_optimizer,
    build_schedule,
    excluded_variables,
    loss_settings,
    metric_class,
    metric_of,
    schedule_boundaries,
)
from syncswitch.trainers.job.workload import LOSS_METRIC, Workload
from syncswitch.trainers.protocols import Exchange, choose_protocol

# Names are numbered within a process, seeds do not matter, connections are described separately.
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

_DIGEST = "_model_digest"
_BY_ROWS = "_trains_rows"


def workload_identity(
    workload: Workload, workers: int, first_protocol: str, second_protocol: str
) -> ScheduledJob:
    """Describes the job on a cluster of `workers`, as policies know it; builds the model once.

    Raises:
        UserError: The second protocol does not support the workload's batch after the switch.
    """
    batch = workload.batch_after_switch
    if batch != "same" and choose_protocol(second_protocol).exchange is not Exchange.PUSH:
        raise UserError(
            f"workload {workload.name!r}: batch_after_switch is {batch!r}, which is for protocols"
            " that apply each gradient by itself, and after the switch comes"
            f" {second_protocol!r}; switch to asp, ssp or dssp, or leave batch_after_switch out",
            code="workload-unsuitable",
        )
    boundaries: tuple[tuple[int, float], ...] | None
    schedule, rate = build_schedule(workload), workload.learning_rate
    if schedule is None:
        assert not callable(rate)
        boundaries = tuple((int(s), float(f)) for s, f in workload.learning_rate_boundaries)
    else:
        # There are none where the rate changes in another way than by steps.
        rate, boundaries = schedule_boundaries(schedule) or (float(schedule(0)), None)
    _look_at_model(workload)
    metric = metric_of(workload)
    job = Job(
        name=workload.name,
        total_worker_steps=workload.total_worker_steps,
        workers=workers,
        recipe=Recipe(
            model=vars(workload)[_DIGEST],
            data_set=workload.data_set,
            loss=_describe_loss(workload),
            optimizer=_describe_optimizer(workload, workers),
            batch_size=workload.batch_size,
            learning_rate=float(rate),
            momentum=0.0 if workload.optimizer else float(workload.momentum),
            learning_rate_boundaries=boundaries,
            evaluation_interval_worker_steps=workload.evaluation_interval_worker_steps,
        ),
        described_metric=DescribedMetric(
            _describe_metric(workload), metric.goal, metric.unit, metric.lowest, metric.highest
        ),
    )
    rule = momentum_rule(workload, second_protocol)
    return ScheduledJob(job, Protocols(first_protocol, second_protocol, rule))


def trains_rows(workload: Workload) -> bool:
    """Whether tables of the model are trained by their rows, which no replica has."""
    _look_at_model(workload)
    return bool(vars(workload)[_BY_ROWS])


def _look_at_model(workload: Workload) -> None:
    """Keeps what is to be known of the model with the workload, as it takes building one."""
    if _DIGEST not in vars(workload):
        model = build_model(workload)
        described = _canonical(describe_model(model))
        vars(workload)[_DIGEST] = hashlib.sha256(described.encode()).hexdigest()
        vars(workload)[_BY_ROWS] = bool(embeddings_of(model))


def describe_model(model: Any) -> list[Any]:
    """Describes a model's connections, and each layer's class, settings and variable shapes."""
    layers = model._flatten_layers(include_self=False)
    return [_connections(model), *(_describe_layer(layer) for layer in layers)]


def _describe_loss(workload: Workload) -> str:
    if isinstance(workload.loss, str) and not (workload.class_weight or workload.loss_weights):
        return workload.loss
    described = _description_of_loss(build_loss(workload))
    if workload.class_weight:
        weights = {
            str(int(one)): float(workload.class_weight[one]) for one in workload.class_weight
        }
        described = {"loss": described, "class_weight": weights}
    if workload.loss_weights:
        described = {"loss": described, "loss_weights": _settings(workload.loss_weights)}
    return described if isinstance(described, str) else _canonical(described)


def _description_of_loss(built: Any) -> Any:
    if isinstance(built, dict):
        return {name: _description_of_loss(one) for name, one in built.items()}
    if isinstance(built, list):
        return [_description_of_loss(one) for one in built]
    if built is None or not hasattr(built, "get_config"):
        return built and str(getattr(built, "__name__", type(built).__name__))
    return {"class": type(built).__name__, **_settings(loss_settings(built))}


def _describe_optimizer(workload: Workload, workers: int) -> str:
    """Describes the optimizer and its settings as canonical text, without a numeric learning rate.

    Whatever else affects the updates of this many workers is included: a schedule without steps, a
    momentum or batch that changes at the switch, a limit on linear scaling. Defaults are left out,
    so that fingerprints survive the addition of settings.
    """
    if workload.optimizer is None:
        described: dict[str, Any] = {"class": "SGD"}
    else:
        built = build_optimizer(workload)
        described = _description(built)
        pattern = getattr(built, "_exclude_from_weight_decay_pattern", None)
        undecayed = [*(pattern.pattern.split("|") if pattern else ()), *excluded_variables(built)]
        if undecayed:
            described["without_weight_decay"] = undecayed
    schedule = build_schedule(workload)
    if schedule is not None and schedule_boundaries(schedule) is None:
        described["learning_rate_schedule"] = _description(schedule)
    if workload.batch_after_switch != "same" and workers > 1:
        described["batch_after_switch"] = workload.batch_after_switch
    if workload.momentum_stage_worker_steps is not None:
        described["momentum_stage_worker_steps"] = workload.momentum_stage_worker_steps
    if workload.largest_scaling is not None and workers > workload.largest_scaling:
        described["largest_scaling"] = workload.largest_scaling
    return _canonical(described)


def _describe_metric(workload: Workload) -> str:
    if workload.metric == LOSS_METRIC:
        described = LOSS_METRIC
    else:
        metric = build_metric(workload)
        named = metric and {**_description(metric), "class": metric_class(metric)}
        described = "accuracy" if metric is None else _canonical(named)
    if workload.metric_output is None:
        return described
    return _canonical({"output": workload.metric_output, "metric": described})


def _description(built: Any) -> dict[str, Any]:
    return {"class": type(built).__name__, **_settings(built.get_config())}


def _describe_layer(layer: Any) -> list[Any]:
    try:
        config = _settings(layer.get_config())
    except NotImplementedError:
        config = {}
    function = getattr(layer, "function", None)
    if isinstance(function, FunctionType):
        # The configuration of a Lambda layer would hold the path of the file.
        code = function.__code__
        constants = sorted(value for value in code.co_consts if isinstance(value, float | int))
        config = [function.__name__, sorted(code.co_names), constants]
    variables = [
        [list(true_shape(layer, variable)), bool(variable.trainable)]
        for variable in layer.variables
    ]
    return [type(layer).__name__, config, variables, _connections(layer)]


def _connections(model: Any) -> list[Any]:
    """Lists the outputs of other layers that each layer of a functional model is called with."""
    try:
        layers = model.get_config()["layers"]
        numbers = {layer["config"]["name"]: number for number, layer in enumerate(layers)}
        return [_sources(layer["inbound_nodes"], numbers) for layer in layers]
    except (AttributeError, KeyError, NotImplementedError, TypeError):
        return []  # a sequential model, or a subclass


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
    """Removes the settings that differ between processes, or are off, as new ones of Keras are."""
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
