"""What a compiled Keras model says of its training, in the words of a workload."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.workload import Loss

_ACCURACIES = {"accuracy", "acc"}


def check_compiled(model: Any, whose: str) -> None:
    """Refuses what is no compiled Keras model."""
    if not isinstance(model, keras.Model) or not getattr(model, "compiled", False):
        raise WorkloadError(f"{whose}: the model is not compiled; call its compile() before")


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


def compiled_loss(model: Any, whose: str) -> Loss:
    """The model's loss as a workload says it; of several outputs a dict or list."""
    loss = model.loss
    if loss is None:
        raise WorkloadError(f"{whose}: the model is compiled without a loss; compile it with one")
    found: Loss = loss
    return found


def compiled_loss_weights(model: Any, whose: str) -> Any:
    """Factors of the losses of several outputs; None where there are none."""
    factors = (model.get_compile_config() or {}).get("loss_weights")
    values = list(factors.values()) if isinstance(factors, dict) else factors
    if any(isinstance(one, str) for one in (values if isinstance(values, list) else [values])):
        raise WorkloadError(
            f"{whose}: the model is compiled with loss_weights {values}, which are no numbers; the"
            " third argument of compile is loss_weights, so write metrics=[...]"
        )
    return factors


@dataclass(frozen=True, slots=True)
class CompiledMetric:
    """The metric that a run is judged by.

    Attributes:
        build: Makes it, or names Keras'; None for accuracy, and where there is none.
        output: Of several outputs, whose it is.
        is_weighted: Whether the weights of the tests count.
        is_accuracy: Whether it is accuracy as it fits the labels.
    """

    build: Callable[[], Any] | str | None
    output: str | None
    is_weighted: bool
    is_accuracy: bool = False


def compiled_metric(model: Any, whose: str) -> CompiledMetric:
    """The first metric that the model was compiled with."""
    outputs = list(getattr(model, "output_names", None) or ())
    # A configuration would only name the functions and classes that somebody wrote.
    compiled = getattr(model, "_compile_metrics", None)
    for kind in ("metrics", "weighted_metrics"):
        given = getattr(compiled, f"_user_{kind}", None)
        output, first = _first(given, outputs)
        if first is not None:
            is_weighted = kind == "weighted_metrics"
            if isinstance(first, str) and first.lower() in _ACCURACIES:
                return CompiledMetric(None, output, is_weighted, is_accuracy=True)
            build = first if isinstance(first, str) else partial(_built_metric, first, whose)
            return CompiledMetric(build, output, is_weighted)
    return CompiledMetric(None, outputs[0] if len(outputs) > 1 else None, is_weighted=False)


def _first(metrics: Any, outputs: list[str]) -> tuple[str | None, Any]:
    """Name of the output and description of the first metric."""
    if isinstance(metrics, dict):
        for name in sorted(metrics, key=lambda one: outputs.index(one) if one in outputs else -1):
            _, first = _first(metrics[name], [])
            if first is not None:
                return (name if len(outputs) > 1 else None), first
        return None, None
    if not isinstance(metrics, list | tuple):
        return (outputs[0] if len(outputs) > 1 else None), metrics
    for place, one in enumerate(metrics):
        _, first = _first(one, [])
        if first is not None:
            # A list has an entry for each output, unless there is one output.
            return (outputs[place] if 1 < len(outputs) == len(metrics) else None), first
    return None, None


def _built_metric(given: Any, whose: str) -> Any:
    """A metric like the one that was given to `compile`, which holds the values of another run."""
    try:
        if isinstance(given, keras.metrics.Metric):
            return type(given).from_config(given.get_config())
    except (TypeError, ValueError) as error:
        raise WorkloadError(
            f"{whose}: cannot build the metric {given!r} that the model is compiled with; give"
            " metric, the name of one or a function that builds one"
        ) from error
    name = getattr(given, "__name__", type(given).__name__)
    return keras.metrics.MeanMetricWrapper(given, name=name)
