"""Builds the Keras parts of a workload: model, optimizer, learning-rate schedule, loss and metric.

Each is built as Keras' `compile` would build it; what cannot be used is refused in one line.
"""

from __future__ import annotations

import inspect
import logging
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from syncswitch.storage.errors import OptionHint, WorkloadError
from syncswitch.storage.records.metric import Metric, shown_name
from syncswitch.trainers.job.embeddings import ThinBuilding, thin_embeddings
from syncswitch.trainers.job.workload import LOSS_METRIC, Workload, users_code

_LOG = logging.getLogger(__name__)


def build_model(workload: Workload) -> Any:
    """Builds the model, with fresh values; large embeddings have a single row, see `embeddings`."""
    if workload.least_embedding_values is None:
        return _built_model(workload)
    but: set[int] = set()
    while True:
        model, building, error = _thinly_built(workload, but)
        if building.wanted:
            but |= building.wanted
        elif error is None:
            break
        elif not building.thin:
            raise error
        else:
            but |= _with_values(workload, but, set(building.thin))
    for number, text in building.whole.items():
        # Keras numbers layers through, so that texts differ between builds.
        if (workload.name, number) not in _TOLD:
            _TOLD.add((workload.name, number))
            _LOG.warning("workload %r: %s", workload.name, text)
    return model


_TOLD: set[tuple[str, int]] = set()
"""Large layers of which was told that they are moved whole, by their workload."""


def _thinly_built(
    workload: Workload, but: set[int]
) -> tuple[Any, ThinBuilding, WorkloadError | None]:
    with thin_embeddings(workload.least_embedding_values or 0, but) as building:
        try:
            return _built_model(workload), building, None
        except WorkloadError as error:
            return None, building, error


def _with_values(workload: Workload, but: set[int], thin: set[int]) -> set[int]:
    """Finds the layers for whose whole tables a model brings values, which fails with single rows.

    All of them if it fails for another reason, too, which is then said.
    """
    if len(thin) == 1:
        return thin
    builds = {one: _thinly_built(workload, but | (thin - {one})) for one in sorted(thin)}
    failed = {one for one, (_, building, error) in builds.items() if error or building.wanted}
    return failed or thin


@cache
def warn_once(text: str) -> None:
    """Logs a warning, once in a process."""
    _LOG.warning("%s", text)


def _built_model(workload: Workload) -> Any:
    import keras

    model = built_part(workload, "model", keras.Model, "return a keras.Model")
    # A model that claims to be built may hold layers that are not.
    if not (model.built and model.weights):
        raise workload.error(
            "the model has no variables yet; give it an Input, or call it once on a batch before"
            " you return it"
        )
    check_model(model, f"workload {workload.name!r}")
    return model


def check_model(model: Any, whose: str) -> None:
    """Refuses a model with its own training step, or whose gradients would have to be scaled."""
    import keras

    for name in ("train_step", "compute_loss"):
        if getattr(type(model), name) is not getattr(keras.Model, name):
            raise WorkloadError(
                f"{whose}: the model, a {type(model).__name__}, has its own {name}, which no"
                " run would call",
                remedy=(
                    "write it as a loss, or with add_loss in a layer",
                    OptionHint("trainer", "command", "search the script as it is with"),
                ),
            )
    for layer in model._flatten_layers():
        if getattr(layer, "stateful", False):
            raise WorkloadError(
                f"{whose}: layer {layer.name!r} is stateful, and workers do not share a sequence;"
                " leave out stateful=True, and give whole sequences"
            )
        if layer.compute_dtype == "float16":
            raise WorkloadError(
                f"{whose}: layer {layer.name!r} computes in float16 ({layer.dtype_policy.name}), "
                "and the loss is not scaled for it, so that small gradients would become 0; "
                "take mixed_bfloat16 or float32"
            )
    for one in getattr(model, "inputs", None) or ():
        if one.shape[0] is not None:
            raise WorkloadError(
                f"{whose}: input {one.name!r} has a fixed batch of {one.shape[0]}, and evaluations"
                " have smaller ones; give a shape alone, without batch_size or batch_shape"
            )


def check_optimizer(optimizer: Any, whose: str) -> None:
    """Refuses an optimizer whose updates would not be those of `fit`."""
    import keras

    optimizers, problem = keras.optimizers, None
    if isinstance(optimizer, optimizers.LossScaleOptimizer):
        problem = "and the loss is not scaled; take the optimizer in it"
    elif isinstance(optimizer, getattr(optimizers, "MultiOptimizer", ())):
        problem = "whose parts have learning rates of their own; take one optimizer for all"
    elif callable(optimizer._learning_rate) and not isinstance(
        optimizer._learning_rate, optimizers.schedules.LearningRateSchedule
    ):
        problem = "whose learning rate is a function; give a number or a Keras schedule"
    elif not re.fullmatch(r"[A-Za-z0-9.][\w.\\/>-]*", str(optimizer.name), re.ASCII):
        problem = f"called {optimizer.name!r}; give letters, digits and _ alone"
    if problem is not None:
        raise WorkloadError(f"{whose}: the optimizer is a {type(optimizer).__name__}, {problem}")


def moves_alone(workload: Workload) -> bool:
    """Whether the optimizer moves a variable without a gradient, as weight decay does."""
    if workload.optimizer is None:
        return False
    built = build_optimizer(workload)
    settings = built.get_config()
    has_decay = settings.get("weight_decay") or settings.get("adam_weight_decay")
    return bool(has_decay) or type(built).__name__ == "Ftrl"


# Where an optimizer made of a compiled one keeps the positions of variables without weight decay.
EXCLUDED = "syncswitch_excluded"


def excluded_variables(optimizer: Any) -> tuple[int, ...]:
    """Returns the positions of trained variables that `from_compiled` excludes from decay."""
    return tuple(getattr(optimizer, EXCLUDED, ()))


def built_part(workload: Workload, part: str, kind: Any, hint: str, builder: Any = None) -> Any:
    """Calls a function of the workload and checks the type of its result."""
    builder = builder or getattr(workload, part)
    if not callable(builder) or (isinstance(kind, type) and isinstance(builder, kind)):
        shown = repr(builder) if isinstance(builder, str) else f"a {type(builder).__name__}"
        like = "; from_compiled makes a workload of a compiled model" if part == "model" else ""
        raise workload.error(
            f"{part} is {shown}; give a function that builds one, such as lambda: ..., as each run"
            f" needs its own{like}"
        )
    with users_code(workload, part):
        built = builder()
    if not isinstance(built, kind):
        raise workload.error(f"{part}() returned a {type(built).__name__}; {hint}")
    return built


def build_optimizer(workload: Workload) -> Any:
    """Builds the optimizer of a workload that has one."""
    import keras

    assert workload.optimizer is not None
    built = built_part(
        workload, "optimizer", keras.optimizers.Optimizer, "return a Keras optimizer"
    )
    if isinstance(built._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
        raise workload.error(
            f"the optimizer has a {type(built._learning_rate).__name__}; give a plain learning rate"
            " there, and the workload a learning_rate that is a function which builds the schedule"
        )
    check_optimizer(built, f"workload {workload.name!r}")
    if getattr(built, "_exclude_from_weight_decay", None):
        raise workload.error(
            f"the {type(built).__name__} excludes variables of another model from weight decay;"
            " give their names, as in exclude_from_weight_decay(var_names=['bias'])"
        )
    return built


def build_schedule(workload: Workload) -> Any:
    """Builds the learning-rate schedule; None if the workload's rate is a number."""
    if not callable(workload.learning_rate):
        return None
    import keras

    built = built_part(
        workload,
        "learning_rate",
        keras.optimizers.schedules.LearningRateSchedule,
        "return a keras.optimizers.schedules.LearningRateSchedule over worker-steps",
    )
    with users_code(workload, "learning_rate"):
        first = float(built(0))
    check_rate(workload, first, 0)
    try:
        built.get_config()
    except NotImplementedError as error:
        raise workload.error(
            f"the schedule {type(built).__name__} has no get_config(); add it, since its settings"
            " are part of what a policy is for"
        ) from error
    return built


def check_rate(workload: Workload, rate: float, worker_step: int) -> None:
    """Refuses a value of a schedule that is not a learning rate."""
    if not (math.isfinite(rate) and rate >= 0):
        raise workload.error(
            f"learning_rate() gives {rate} at worker-step {worker_step:,}; give 0 or more"
        )


def schedule_boundaries(schedule: Any) -> tuple[float, tuple[tuple[int, float], ...]] | None:
    """Returns the first rate and `(worker_step, factor)` pairs; None for a rate without steps."""
    import keras

    if type(schedule) is not keras.optimizers.schedules.PiecewiseConstantDecay:
        return None
    first, *later = map(float, schedule.values)
    if first <= 0:
        return None
    # Keras keeps the value before a boundary at the boundary itself.
    starts = (int(boundary) + 1 for boundary in schedule.boundaries)
    factors = (_plain_ratio(rate, first) for rate in later)
    return first, tuple(zip(starts, factors, strict=True))


def _plain_ratio(rate: float, first: float) -> float:
    """Returns the quotient as people write it: 0.01 / 0.1 is 0.1, not 0.09999999999999999."""
    for digits in range(1, 17):
        factor = float(f"{rate / first:.{digits}g}")
        if math.isclose(factor * first, rate, rel_tol=4e-16):
            return factor
    return rate / first


_LOSS_HINT = (
    "give a name such as 'mse', a Keras loss, or a function without arguments that builds one"
)


def build_loss(workload: Workload) -> Any:
    """Builds the loss, for `keras_loss`.

    For several outputs it is a dict or list, with None for outputs without a loss.
    """
    loss = _resolved_loss(workload, workload.loss)
    if workload.class_weight and isinstance(loss, dict | list):
        raise workload.error(
            f"class_weight is for a single output, and loss has {len(loss)}; give train_weights"
            " in the data"
        )
    return loss


def _resolved_loss(workload: Workload, loss: Any) -> Any:
    import keras

    if isinstance(loss, Mapping):
        return {name: _resolved_loss(workload, loss[name]) for name in sorted(loss)}
    if isinstance(loss, tuple | list):
        return [_resolved_loss(workload, one) for one in loss]
    if loss is None or isinstance(loss, keras.losses.Loss):
        return loss
    if isinstance(loss, str):
        try:
            return named_loss(loss)
        except ValueError as error:
            raise workload.error(f"Keras has no loss {loss!r}; {_LOSS_HINT}") from error
    if callable(loss) and not _takes_nothing(loss):
        return loss
    kinds = (Callable, str, Mapping, tuple, list)
    built = built_part(workload, "loss", kinds, _LOSS_HINT, loss)
    return built if callable(built) else _resolved_loss(workload, built)


def _takes_nothing(function: Callable[..., Any]) -> bool:
    """Whether a function builds a loss, rather than being one."""
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    except ValueError:  # a function written in C may have no signature
        pass
    return True


def named_loss(name: str) -> Callable[[Any, Any], Any]:
    """Finds a Keras loss, which accepts the same labels and outputs as in `compile`.

    Raises ValueError if there is none of this name.
    """
    import keras

    if name.lower() in ("crossentropy", "ce"):
        return _crossentropy
    return keras.losses.get(name)  # type: ignore[no-any-return]


def keras_loss(loss: Any) -> Any:
    """Returns a loss as `compile` takes it: with its reduction, and for weights and masks."""
    import keras

    if isinstance(loss, keras.losses.Loss):
        return loss
    # The class behind all losses that are functions, which has no public name.
    return keras.losses.MeanSquaredError.__base__(loss)


def _crossentropy(labels: Any, outputs: Any) -> Any:
    """Computes the cross-entropy that fits the shapes, as `compile` chooses it."""
    if outputs.shape[-1] == 1:
        kind = "binary"
    elif len(labels.shape) < len(outputs.shape) or labels.shape[-1] == 1:
        kind = "sparse_categorical"
    else:
        kind = "categorical"
    return named_loss(f"{kind}_crossentropy")(labels, outputs)


def loss_settings(loss: Any) -> dict[str, Any]:
    """Settings of a loss, including those missing from its configuration, such as Huber's delta."""
    config = loss.get_config() if hasattr(loss, "get_config") else {}
    return {**getattr(loss, "_fn_kwargs", {}), **config}


def class_weights(weights: Mapping[int, float], labels: Any) -> Any:
    """Computes the weight of each example by its class, like `class_weight` of `fit`."""
    import keras

    is_one_hot = len(labels.shape) > 1 and labels.shape[-1] != 1
    classes = keras.ops.argmax(labels, axis=-1) if is_one_hot else labels
    if not is_one_hot and len(labels.shape) > 1:
        classes = keras.ops.squeeze(classes, axis=-1)
    if "float" in str(classes.dtype):
        classes = keras.ops.round(classes)
    classes = keras.ops.cast(classes, "int32")
    factors = keras.ops.ones_like(classes, dtype="float32")
    for number, weight in weights.items():
        factors = keras.ops.where(classes == int(number), float(weight), factors)
    return factors


_Range = tuple[float | None, float | None]

_RANGES: dict[str, _Range] = {
    **dict.fromkeys(
        ("ConcordanceCorrelation", "CosineSimilarity", "PearsonCorrelation"), (-1.0, 1.0)
    ),
    **dict.fromkeys(
        ("FalseNegatives", "FalsePositives", "TrueNegatives", "TruePositives"), (0.0, None)
    ),
    "Poisson": (None, None),
    "R2Score": (None, 1.0),
    "Sum": (None, None),
}
"""Ranges of Keras metrics that are neither errors, from 0 up, nor shares, from 0 to 1."""

_TAKEN = ("training_loss", "elapsed_seconds")
_FALSE = ("FalseNegatives", "FalsePositives")
_UNITS = {"MeanAbsolutePercentageError": "%"}


def metric_of(workload: Workload) -> Metric:
    """Returns direction, range and unit of the metric, from the workload or else from Keras.

    A metric of the user's own, of which Keras knows no direction, is assumed to be a share, more of
    which is better, unless the workload says otherwise.
    """
    built = build_metric(workload)
    if built is None:
        return Metric()
    name = LOSS_METRIC if workload.metric == LOSS_METRIC else metric_class(built)
    kind = next((one for one in type(built).__mro__ if one.__module__.startswith("keras.")), None)
    keras_name = name if kind is None else kind.__name__
    is_down = getattr(built, "_direction", None) == "down" or keras_name in _FALSE
    goal = workload.metric_goal or ("min" if is_down or name == LOSS_METRIC else "max")
    usual: _Range = None, None
    if workload.metric != LOSS_METRIC:
        # A user's metric may be below 0; errors that come with Keras are not.
        of_errors: _Range = (None, None) if workload.metric_goal else (0.0, None)
        usual = _RANGES.get(keras_name, (0.0, 1.0) if goal == "max" else of_errors)
    limits = workload.metric_range or usual
    # As a database returns them: the fingerprint distinguishes 1 from 1.0.
    lowest, highest = (None if one is None else float(one) for one in limits)
    unit = workload.metric_unit or _UNITS.get(keras_name)
    return Metric(shown_name(name), goal, unit, lowest, highest)


def metric_class(built: Any) -> str:
    """Name of a metric's class, or of the user's function that it wraps."""
    import keras

    is_function = type(built) is keras.metrics.MeanMetricWrapper
    return str(built.name) if is_function else type(built).__name__


def further_workloads(workload: Workload) -> dict[str, Workload]:
    """Returns, for each further metric by its name, the workload with that as its only metric.

    Raises WorkloadError if two have the same name, or one has a reserved name.
    """
    plain = replace(
        workload, further_metrics=(), metric_goal=None, metric_unit=None, metric_range=None
    )
    by_name: dict[str, Workload] = {}
    for metric in workload.further_metrics:
        measuring = replace(plain, metric=metric)
        name = metric if isinstance(metric, str) else build_metric(measuring).name
        if name in by_name or name in _TAKEN:
            raise workload.error(
                f"a further metric is called {name!r}, like something else; give it another name"
            )
        by_name[name] = measuring
    return by_name


def build_metric(workload: Workload) -> Any:
    """Builds the metric; None for accuracy as it fits the labels."""
    import keras

    if workload.metric is None or str(workload.metric).lower() in ("accuracy", "acc"):
        return None
    if workload.metric == LOSS_METRIC:
        return _test_loss(workload)
    name = workload.metric
    if not isinstance(name, str):
        return built_part(workload, "metric", keras.metrics.Metric, "return a keras.metrics.Metric")
    try:
        metric = keras.metrics.get(name)
    except (TypeError, ValueError) as error:
        raise workload.error(
            f"Keras has no metric {name!r}; give a name such as 'mae', {LOSS_METRIC!r} for the loss"
            " on the test set, or a function that builds a Keras metric"
        ) from error
    is_metric = isinstance(metric, keras.metrics.Metric)
    return metric if is_metric else keras.metrics.MeanMetricWrapper(metric, name=name)


def _test_loss(workload: Workload) -> Any:
    """Makes a metric that is the mean loss over the test set, as Keras' `evaluate` computes it."""
    import keras

    loss: Any = build_loss(workload)
    if workload.metric_output is not None:
        loss = loss.get(workload.metric_output) if isinstance(loss, dict) else loss
        if not callable(loss):
            raise workload.error(
                f"metric is {LOSS_METRIC!r}, and output {workload.metric_output!r} has no loss;"
                " give loss as a dict by output, and the metric_output by whose loss a run is"
                " judged, or none for the loss of all"
            )

    class TestLoss(keras.metrics.Mean):  # type: ignore[misc]
        def update_state(self, labels: Any, outputs: Any, sample_weight: Any = None) -> None:
            self.add(keras_loss(loss)(labels, outputs, sample_weight), outputs)

        def add(self, value: Any, outputs: Any) -> None:
            # The last batch may be smaller.
            examples = keras.ops.shape(keras.tree.flatten(outputs)[0])[0]
            super().update_state(value, sample_weight=examples)

    return TestLoss(name=LOSS_METRIC)
