"""Builds a workload's Keras parts, and refuses what is none."""

from __future__ import annotations

import logging
import math
from functools import cache
from typing import Any

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.embeddings import thin_embeddings
from syncswitch.trainers.job.workload import Workload, users_code

_LOG = logging.getLogger(__name__)


def build_model(workload: Workload, *, is_whole: bool = False) -> Any:
    """Makes the model, with fresh initial values.

    Args:
        workload: Whose.
        is_whole: Build large embeddings as well, which take memory; by default their layers
            have a single row, see `embeddings`.
    """
    if is_whole or workload.least_embedding_values is None:
        return _built_model(workload)
    but: set[int] = set()
    while True:
        with thin_embeddings(workload.least_embedding_values, but) as building:
            try:
                model = _built_model(workload)
            except WorkloadError:
                # Perhaps because there is a single row.
                if not building.wanted:
                    raise
        if not building.wanted:
            for text in building.whole:
                _warn_once(f"workload {workload.name!r}: {text}")
            return model
        but |= building.wanted


@cache
def _warn_once(text: str) -> None:
    _LOG.warning("%s", text)


def _built_model(workload: Workload) -> Any:
    import keras

    model = built_part(workload, "model", keras.Model, "return a keras.Model")
    # What calls itself built may hold layers that are not.
    if not (model.built and model.weights):
        raise WorkloadError(
            f"workload {workload.name!r}: the model has no variables yet; "
            "give it an Input, or call it once on a batch before you return it"
        )
    check_precision(model, f"workload {workload.name!r}")
    check_own_training(model, f"workload {workload.name!r}")
    return model


def check_own_training(model: Any, whose: str) -> None:
    """Refuses a model that says itself how it is trained: workers compute gradients of a loss."""
    import keras

    for name in ("train_step", "compute_loss"):
        if getattr(type(model), name) is not getattr(keras.Model, name):
            raise WorkloadError(
                f"{whose}: the model, a {type(model).__name__}, has a {name} of its own, which no"
                " run would call; say it as a loss, or with add_loss in a layer, or search the"
                " script as it is with syncswitch-search run --trainer command"
            )


def check_precision(model: Any, whose: str) -> None:
    """Refuses a model whose gradients would have to be scaled."""
    for layer in model._flatten_layers():
        if layer.compute_dtype == "float16":
            raise WorkloadError(
                f"{whose}: layer {layer.name!r} computes in float16 ({layer.dtype_policy.name}), "
                "and the loss is not scaled for it, so that small gradients would become 0; "
                "take mixed_bfloat16 or float32"
            )


def check_unscaled(optimizer: Any, whose: str) -> None:
    """Refuses an optimizer that expects the gradients of a scaled loss."""
    import keras

    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        raise WorkloadError(
            f"{whose}: the optimizer is a LossScaleOptimizer, and the loss is not scaled; take the "
            "optimizer in it"
        )


def built_part(workload: Workload, part: str, kind: Any, hint: str, builder: Any = None) -> Any:
    """What a function of the workload makes, which has to be of this kind."""
    builder = builder or getattr(workload, part)
    if not callable(builder) or (isinstance(kind, type) and isinstance(builder, kind)):
        shown = repr(builder) if isinstance(builder, str) else f"a {type(builder).__name__}"
        like = "; of a compiled model, from_compiled makes a workload" if part == "model" else ""
        raise WorkloadError(
            f"workload {workload.name!r}: {part} is {shown}; give a function that builds one, such"
            f" as lambda: ..., as each run needs its own{like}"
        )
    with users_code(workload, part):
        built = builder()
    if not isinstance(built, kind):
        raise WorkloadError(
            f"workload {workload.name!r}: {part}() returned a {type(built).__name__}; {hint}"
        )
    return built


def build_optimizer(workload: Workload) -> Any:
    """Makes the optimizer; the workload must have one."""
    import keras

    assert workload.optimizer is not None
    built = built_part(
        workload, "optimizer", keras.optimizers.Optimizer, "return a Keras optimizer"
    )
    check_unscaled(built, f"workload {workload.name!r}")
    if isinstance(built._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
        raise WorkloadError(
            f"workload {workload.name!r}: the optimizer has a "
            f"{type(built._learning_rate).__name__}; give a plain learning rate there, and the "
            "workload a learning_rate that is a function which builds the schedule"
        )
    return built


def build_schedule(workload: Workload) -> Any:
    """Makes the learning-rate schedule; None where the workload's rate is a number."""
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
        raise WorkloadError(
            f"workload {workload.name!r}: the schedule {type(built).__name__} has no get_config(); "
            "add it, since its settings are part of what a policy is for"
        ) from error
    return built


def check_rate(workload: Workload, rate: float, worker_step: int) -> None:
    """Checks that what a schedule gives is a learning rate."""
    if not (math.isfinite(rate) and rate >= 0):
        raise WorkloadError(
            f"workload {workload.name!r}: learning_rate() gives {rate} at worker-step "
            f"{worker_step:,}; give 0 or more"
        )


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
    """The factor as people write it: 0.01 / 0.1 is 0.1, not 0.09999999999999999.

    The same job said in rates and in factors has to have the same fingerprint.
    """
    for digits in range(1, 17):
        factor = float(f"{rate / first:.{digits}g}")
        if math.isclose(factor * first, rate, rel_tol=4e-16):
            return factor
    return rate / first
