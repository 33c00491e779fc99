"""A compiled Keras model in the words of a workload: its training, and copies of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import numpy as np

from syncswitch.storage.errors import WorkloadError, one_line
from syncswitch.storage.files import OwnedFolder
from syncswitch.trainers.job.keras_parts import check_model, check_unscaled

_ACCURACIES = {"accuracy", "acc"}


def compiled_fields(model: Any, whose: str) -> dict[str, Any]:
    """The fields of a `Workload` that a compiled model determines, but for its metric.

    These are `optimizer`, `learning_rate`, `loss` and `loss_weights`.

    Raises:
        WorkloadError: It is no compiled Keras model, or cannot be trained as it is.
    """
    if not isinstance(model, keras.Model) or not getattr(model, "compiled", False):
        raise WorkloadError(f"{whose}: the model is not compiled; call its compile() before")
    check_model(model, whose)
    check_unscaled(model.optimizer, whose)
    if model.loss is None:
        raise WorkloadError(f"{whose}: the model is compiled without a loss; compile it with one")
    optimizer, rate = _optimizer(model)
    return {
        "optimizer": optimizer,
        "learning_rate": rate,
        "loss": model.loss,
        "loss_weights": _loss_weights(model, whose),
    }


def _optimizer(model: Any) -> tuple[Callable[[], Any], float | Callable[[], Any]]:
    """Builds optimizers like the model's; and its learning rate, which these leave to others."""
    config = model.optimizer.get_config()
    rate = config["learning_rate"]
    plain = {**config, "learning_rate": 1.0}
    build = type(model.optimizer).from_config
    if isinstance(rate, dict):
        return lambda: build(dict(plain)), lambda: keras.optimizers.schedules.deserialize(rate)
    # Keras keeps 0.02 in float32, which is 0.019999999552965164: the same job needs the same rate.
    return lambda: build(dict(plain)), float(str(np.float32(rate)))


def _loss_weights(model: Any, whose: str) -> Any:
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
    """The metric by which a run is judged.

    Attributes:
        build: A function that makes it, or its name in Keras; None for accuracy or no metric.
        output: The output that it is for, where there are several.
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


def copies(model: Any, whose: str, *, is_fresh: bool) -> Callable[[], Any]:
    """Returns a function that builds copies of the model.

    Args:
        model: A Sequential or functional model, or another one that Keras can copy.
        whose: Prefix of errors.
        is_fresh: Draw what is trained anew for each copy, instead of taking its present values;
            what is not trained, such as frozen layers and what was adapted, keeps them.

    Raises:
        WorkloadError: Keras cannot copy it.
    """
    values = [np.asarray(one) for one in model.weights]
    is_kept = [not (is_fresh and one.trainable) for one in model.weights]
    # What is compiled is copied with its loss and metrics, which only registered ones bear.
    model.compiled = False
    try:
        plain = _clone(model)
    except Exception as error:
        raise _no_copy(model, whose, one_line(error)) from error
    finally:
        model.compiled = True
    if len(plain.weights) != len(values):
        raise _no_copy(model, whose, "the copy has no variables")

    def build() -> Any:
        copy = _clone(plain)
        for variable, value, keep in zip(copy.weights, values, is_kept, strict=True):
            if keep:
                variable.assign(value)
        for layer in copy._flatten_layers():
            # Normalization computes with what it has made of its variables.
            if hasattr(layer, "finalize_state"):
                layer.finalize_state()
        return copy

    return build


def built_anew(build: Callable[[], Any], sample: Any) -> Callable[[], Any]:
    """Returns a function that builds models with the user's, as they are before `compile`.

    Args:
        build: Makes a compiled model.
        sample: Inputs of an example, with which a model is called that has no variables before.
    """

    def model() -> Any:
        made = build()
        ensure_built(made, sample)
        # A model is saved with its loss and metrics, which only registered ones bear.
        made.compiled = False
        return made

    return model


def ensure_built(model: Any, sample: Any) -> None:
    """Gives a model its variables, as `fit` does with its first batch."""
    if not (model.built and model.weights):
        model(sample)


def _clone(model: Any) -> Any:
    """A copy with variables of its own, and the vocabularies of its layers."""
    copy = keras.models.clone_model(model)
    for one, other in zip(model._flatten_layers(), copy._flatten_layers(), strict=True):
        if not hasattr(one, "save_assets"):
            continue
        # As a file of the model would have them: a vocabulary that was adapted is in no config.
        known: dict[str, Any] = {}
        one.save_own_variables(known)
        other.load_own_variables(known)
        with OwnedFolder("syncswitch-copy-") as folder:
            one.save_assets(folder)
            other.load_assets(folder)
    return copy


def _no_copy(model: Any, whose: str, why: str) -> WorkloadError:
    return WorkloadError(
        f"{whose}: Keras cannot copy the model, a {type(model).__name__} ({why}); give a function"
        " that builds and compiles it instead of the model itself"
    )
