"""The training of a compiled Keras model as fields of a workload, and copies of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import keras
import numpy as np

from syncswitch.storage.errors import WorkloadError, one_line
from syncswitch.storage.files import OwnedFolder
from syncswitch.trainers.job.keras_parts import check_model, check_unscaled


def compiled_fields(model: Any) -> dict[str, Any]:
    """Returns the optimizer, learning rate, loss and loss weights of a compiled model."""
    if not isinstance(model, keras.Model) or not getattr(model, "compiled", False):
        raise WorkloadError("the model is not compiled; call its compile() before")
    whose = f"model {model.name!r}"
    check_model(model, whose)
    check_unscaled(model.optimizer, whose)
    if model.loss is None:
        raise WorkloadError(f"{whose} is compiled without a loss; compile it with one")
    optimizer, rate = _optimizer(model)
    return {
        "optimizer": optimizer,
        "learning_rate": rate,
        "loss": model.loss,
        "loss_weights": _loss_weights(model),
    }


def _optimizer(model: Any) -> tuple[Callable[[], Any], float | Callable[[], Any]]:
    """Returns a function that builds such optimizers, and the learning rate, which they lack."""
    config = model.optimizer.get_config()
    rate = config["learning_rate"]
    plain = {**config, "learning_rate": 1.0}
    build = type(model.optimizer).from_config
    if isinstance(rate, dict):
        return lambda: build(dict(plain)), lambda: keras.optimizers.schedules.deserialize(rate)
    # Keras keeps 0.02 in float32, which is 0.019999999552965164: the same job needs the same rate.
    return lambda: build(dict(plain)), float(str(np.float32(rate)))


def _loss_weights(model: Any) -> Any:
    factors = (model.get_compile_config() or {}).get("loss_weights")
    values = list(factors.values()) if isinstance(factors, dict) else factors
    if any(isinstance(one, str) for one in (values if isinstance(values, list) else [values])):
        raise WorkloadError(
            f"model {model.name!r} is compiled with loss_weights {values}, which are not numbers;"
            " the third argument of compile is loss_weights, so write metrics=[...]"
        )
    return factors


def compiled_metric(model: Any) -> tuple[Any, str | None, bool]:
    """Finds the first metric of a model, the output that it judges, and whether it is weighted."""
    outputs = list(getattr(model, "output_names", None) or ())
    # The configuration would only name functions and classes of the user's own.
    compiled = getattr(model, "_compile_metrics", None)
    for kind in ("metrics", "weighted_metrics"):
        for output, metric in _metrics(getattr(compiled, f"_user_{kind}", None), outputs):
            build = metric if isinstance(metric, str) else partial(_built_metric, metric)
            return build, output, kind == "weighted_metrics"
    return None, outputs[0] if len(outputs) > 1 else None, False


def _metrics(given: Any, outputs: list[str]) -> Iterator[tuple[str | None, Any]]:
    """Yields the metrics given to `compile`, each with its output if there are several."""
    parts = [(outputs[0] if outputs else None, given)]
    if isinstance(given, dict):
        names = sorted(given, key=lambda one: outputs.index(one) if one in outputs else -1)
        parts = [(name, given[name]) for name in names]
    elif isinstance(given, list | tuple) and len(given) == len(outputs):
        # A list has an entry for each output, unless there is only one output.
        parts = list(zip(outputs, given, strict=True)) if len(outputs) > 1 else parts
    for output, part in parts:
        for metric in keras.tree.flatten(part):
            if metric is not None:
                yield (output if len(outputs) > 1 else None), metric


def _built_metric(given: Any) -> Any:
    """Builds a metric like the one given to `compile`, which holds the values of another run."""
    try:
        if isinstance(given, keras.metrics.Metric):
            return type(given).from_config(given.get_config())
    except (TypeError, ValueError) as error:
        raise WorkloadError(
            f"the metric {given!r} that the model is compiled with cannot be built again; give"
            " metric, the name of one or a function that builds one"
        ) from error
    name = getattr(given, "__name__", type(given).__name__)
    return keras.metrics.MeanMetricWrapper(given, name=name)


def copies(model: Any, *, is_fresh: bool) -> Callable[[], Any]:
    """Returns a function that builds copies of a model, trained values drawn anew if `is_fresh`."""
    values = [np.asarray(one) for one in model.weights]
    is_kept = [not (is_fresh and one.trainable) for one in model.weights]
    # A compiled model is copied with its loss and metrics, which works for registered ones only.
    model.compiled = False
    try:
        plain = _clone(model)
        if len(plain.weights) != len(values):
            raise ValueError("the copy has no variables")
    except Exception as error:
        raise WorkloadError(
            f"Keras cannot copy model {model.name!r}, a {type(model).__name__} ({one_line(error)});"
            " give a function that builds and compiles it instead of the model itself"
        ) from error
    finally:
        model.compiled = True

    def build() -> Any:
        copy = _clone(plain)
        for variable, value, keep in zip(copy.weights, values, is_kept, strict=True):
            if keep:
                variable.assign(value)
        for layer in copy._flatten_layers():
            # Normalization computes with what it derives from its variables here.
            if hasattr(layer, "finalize_state"):
                layer.finalize_state()
        return copy

    return build


def _clone(model: Any) -> Any:
    """Copies a model, with variables of its own and the vocabularies of its layers."""
    copy = keras.models.clone_model(model)
    for one, other in zip(model._flatten_layers(), copy._flatten_layers(), strict=True):
        if not hasattr(one, "save_assets"):
            continue
        # The way to a file and back: no configuration has a vocabulary that was adapted.
        known: dict[str, Any] = {}
        one.save_own_variables(known)
        other.load_own_variables(known)
        with OwnedFolder("syncswitch-copy-") as folder:
            one.save_assets(folder)
            other.load_assets(folder)
    return copy


def ensure_built(model: Any, sample: Any) -> None:
    """Gives a model its variables, as `fit` does with its first batch."""
    if not (model.built and model.weights):
        model(sample)
