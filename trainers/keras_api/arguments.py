"""Arguments of Keras' `fit`: which have a meaning in a run, and what is said of the others."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import keras

from syncswitch.storage.errors import Command, CommandHint, OptionHint, Part, WorkloadError
from syncswitch.trainers.job.workload import Workload


def _trained(parameter: str, value: str | float) -> CommandHint:
    given = ("WORKLOAD", OptionHint(parameter, value, ""))
    return CommandHint(Command.TRAIN, given, "train a workload in a file with:")


_ELSEWHERE: dict[str, tuple[str, Part | Sequence[Part]]] = {
    "checkpoint_every": ("is for runs that can be continued", _trained("checkpoint_every", 10)),
    "checkpoints": ("is for runs that can be continued", _trained("checkpoints", "FOLDER")),
    "max_queue_size": ("is an argument of keras.utils.PyDataset in Keras 3", "leave it out"),
    "output": (
        "is for runs that save their model",
        ("save the trained model yourself, with its save()", _trained("output", "MODEL.keras")),
    ),
    "resume": ("is for runs that can be continued", _trained("resume", True)),
    "tensorboard": (
        "is for runs of a workload in a file",
        (
            "give fit callbacks=[keras.callbacks.TensorBoard(FOLDER)]",
            _trained("tensorboard", "FOLDER"),
        ),
    ),
    "use_multiprocessing": ("is an argument of keras.utils.PyDataset in Keras 3", "leave it out"),
}


def check_fields(names: Iterable[str], known: Iterable[str]) -> None:
    """Raises WorkloadError for an argument that is neither known nor a field of `Workload`."""
    allowed = {*known, *(field.name for field in fields(Workload)), "steps_per_epoch"}
    for name in names:
        if name in _ELSEWHERE:
            what, remedy = _ELSEWHERE[name]
            raise WorkloadError(
                f"the argument {name} {what}", remedy=remedy, code="parameter-invalid"
            )
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise WorkloadError(
                f"there is no argument {name}; {hint}give arguments of Keras' fit, or fields of"
                " Workload such as learning_rate",
                code="parameter-invalid",
            )


def check_unchanged(shuffle: Any, initial_epoch: Any, validation_freq: Any) -> None:
    """Raises WorkloadError where arguments of Keras' `fit` ask for what no run does."""
    if not shuffle:
        raise WorkloadError(
            f"shuffle is {shuffle!r}, and workers share the examples in an order that follows from"
            " the seed; leave it out",
            code="parameter-invalid",
        )
    if initial_epoch:
        raise WorkloadError(
            f"initial_epoch is {initial_epoch!r}, and a run begins with its first step; leave it"
            " out, and give epochs, the number that are to be trained",
            code="parameter-invalid",
        )
    if not isinstance(validation_freq, int) or validation_freq < 1:
        raise WorkloadError(
            f"validation_freq is {validation_freq!r}; give a whole number from 1 on, the epochs"
            " between two evaluations, or evaluation_interval_worker_steps",
            code="parameter-invalid",
        )


def scheduled_rate(
    callbacks: Sequence[Any], first: Any, epoch_steps: int, total_steps: int
) -> tuple[Any, list[Any]]:
    """Turns a `LearningRateScheduler` into a schedule over worker-steps.

    Args:
        callbacks: The callbacks of a `fit`.
        first: The learning rate that the model is compiled with, or a function for a schedule.
        epoch_steps: Worker-steps of an epoch.
        total_steps: Worker-steps of the job.

    Returns:
        The learning rate as `Workload` takes it, and the other callbacks.
    """
    kind = keras.callbacks.LearningRateScheduler
    schedulers = [one for one in callbacks if isinstance(one, kind)]
    others = [one for one in callbacks if not isinstance(one, kind)]
    if not schedulers:
        return first, others
    if callable(first):
        raise WorkloadError(
            "there are a LearningRateScheduler and an optimizer with a schedule, and both set the"
            " learning rate; leave out one of them",
            code="parameters-conflict",
        )
    rates, rate = [], first
    for epoch in range(-(-total_steps // epoch_steps)):
        for one in schedulers:
            rate = _asked(one.schedule, epoch, rate)
        rates.append(rate)
    changes = [epoch for epoch in range(1, len(rates)) if rates[epoch] != rates[epoch - 1]]
    if not changes and rates[0] > 0:
        return rates[0], others
    values = [rates[0], *(rates[epoch] for epoch in changes)]
    # Keras keeps the value before a boundary at the boundary itself.
    boundaries = [epoch * epoch_steps - 1 for epoch in changes]

    def build() -> Any:
        if not boundaries:
            return keras.optimizers.schedules.PiecewiseConstantDecay([total_steps], values * 2)
        return keras.optimizers.schedules.PiecewiseConstantDecay(boundaries, values)

    return build, others


def _asked(schedule: Callable[..., Any], epoch: int, rate: float) -> float:
    try:
        try:
            return float(schedule(epoch, rate))
        except TypeError:
            return float(schedule(epoch))
    except Exception as error:
        raise WorkloadError(
            f"the LearningRateScheduler failed for epoch {epoch} and the rate {rate:g} with"
            f" {type(error).__name__}: {error}; its function takes an epoch and perhaps a rate"
        ) from error


def watched_metrics(
    callbacks: Sequence[Any], measured: Mapping[str, Any], metric: str
) -> list[Any]:
    """Finds the metrics that callbacks watch and that a run would not evaluate otherwise.

    Args:
        callbacks: Callbacks with or without a `monitor`.
        measured: Metrics of `compile` and the loss, by their names in the logs without `val_`.
        metric: The name there of the metric by which the run is judged.

    Raises:
        WorkloadError: A callback watches what no run measures.
    """
    wanted = []
    for one in callbacks:
        name = getattr(one, "monitor", None)
        if name is None or name in ("loss", f"val_{metric}"):
            continue
        plain = str(name).removeprefix("val_")
        if plain == name or plain not in measured:
            known = sorted({"loss", f"val_{metric}", *(f"val_{each}" for each in measured)})
            raise WorkloadError(
                f"callback {type(one).__name__} watches {name!r}, which a run does not measure;"
                f" give monitor, one of {', '.join(known)}"
            )
        if measured[plain] not in wanted:
            wanted.append(measured[plain])
    return wanted
