"""Reports the tests of a run to Keras callbacks, as `fit` reports its epochs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from syncswitch.storage.errors import Command, CommandHint, OptionHint, Part, WorkloadError
from syncswitch.storage.records.trial import Evaluation, TrialSpec
from syncswitch.trainers.job.keras_parts import build_metric, built_part, metric_of
from syncswitch.trainers.job.workload import Workload, users_code
from syncswitch.trainers.trainer import Observer, Verdict, Watching

_LOG = logging.getLogger(__name__)

_CALLED = (
    "on_train_begin",
    "on_epoch_begin",
    "on_test_begin",
    "on_test_end",
    "on_epoch_end",
    "on_train_end",
)
_DONE_ANYWAY = ("History", "ProgbarLogger", "TerminateOnNaN")
# Their work at the end of an epoch is all that is wanted, or they would be refused.
_BY_EPOCH = ("ModelCheckpoint", "TensorBoard")
_WITH_MODEL = ("EarlyStopping", *_BY_EPOCH)


def _trained(parameter: str, verb: str, value: str | bool = "FOLDER") -> CommandHint:
    return CommandHint(Command.TRAIN, ("WORKLOAD", OptionHint(parameter, value, "")), verb)


_RATES = (
    "set learning_rate_boundaries to pairs of a worker-step and a factor",
    "give the optimizer a schedule over steps (keras.optimizers.schedules)",
)
_OTHERWISE: dict[str, Part | tuple[Part, ...]] = {
    "BackupAndRestore": _trained(
        "resume", "a workload saves its state as it trains; continue it with:", True
    ),
    "EarlyStopping": "all runs of a search are equally long, and the search itself ends those that"
    " have settled; shorten epochs",
    "LearningRateScheduler": _RATES,
    "ModelCheckpoint": _trained("output", "a workload's model is saved by:", "MODEL.keras"),
    "ReduceLROnPlateau": _RATES,
    "SwapEMAWeights": "with use_ema a run evaluates and saves the averages anyway",
    "TensorBoard": _trained("tensorboard", "write logs of a workload with:"),
}


@dataclass(frozen=True)
class ShownModel:
    """A model of the user's in which callbacks see what a run tests."""

    model: Any
    show: Callable[[], None]
    """Gives the model the values that were tested last."""
    epoch_worker_steps: int
    """Length of an epoch; callbacks are told at the first test after each."""


def usable_callbacks(callbacks: Iterable[Any], whose: str, *, has_model: bool = False) -> list[Any]:
    """Selects the callbacks that a run must call, without those whose work it does anyway.

    Raises WorkloadError if one is not a callback, or needs a hook that runs do not have, or a model
    where there is none.
    """
    import keras

    callbacks = list(callbacks)
    for callback in callbacks:
        name = type(callback).__name__
        if not isinstance(callback, keras.callbacks.Callback):
            raise WorkloadError(f"{whose}: {name} is not a callback; give keras.callbacks.Callback")
        of_keras = [one for one in type(callback).__mro__ if one.__module__.startswith("keras")]
        own = [one.__name__ for one in of_keras]
        instead = next((_OTHERWISE[one] for one in own if one in _OTHERWISE), None)
        if instead is not None and not (has_model and not set(own).isdisjoint(_WITH_MODEL)):
            raise WorkloadError(f"{whose}: callback {name} cannot be used here", remedy=instead)
        if getattr(callback, "save_freq", "epoch") != "epoch":
            raise WorkloadError(
                f"{whose}: callback {name} has save_freq {callback.save_freq!r}, and a run has no"
                " batch common to all workers; give save_freq='epoch', which saves at evaluations"
            )
        # Hooks implemented by its class, or set, as a `LambdaCallback` does.
        by_epoch = [one for one in of_keras if one.__name__ in _BY_EPOCH]
        plain = by_epoch[0] if by_epoch else keras.callbacks.Callback
        wanted = [
            one
            for one in dir(plain)
            if one.startswith("on_") and one not in _CALLED
            if getattr(type(callback), one) is not getattr(plain, one) or one in vars(callback)
        ]
        if wanted and name not in _DONE_ANYWAY:
            raise WorkloadError(
                f"{whose}: callback {name} has {wanted[0]}, which a run cannot call, as its workers"
                f" train at the same time; it calls {', '.join(_CALLED)}"
            )
    return [one for one in callbacks if type(one).__name__ not in _DONE_ANYWAY]


def check_callbacks(workload: Workload) -> None:
    """Raises WorkloadError where a callback cannot be used, before data and model are built."""
    if workload.callbacks is not None:
        _built_callbacks(workload, has_model=False)


def _built_callbacks(workload: Workload, *, has_model: bool) -> list[Any]:
    built = built_part(workload, "callbacks", (list, tuple), "return a list of Keras callbacks")
    return usable_callbacks(built, f"workload {workload.name!r}", has_model=has_model)


def logged_name(workload: Workload) -> str:
    """Returns the name of the metric as in the logs of `fit`, without `val_`."""
    name, output = workload.metric, workload.metric_output
    if not isinstance(name, str):
        name = str(getattr(build_metric(workload), "name", "accuracy"))
    return name if output is None else f"{output}_{name}"


@contextmanager
def keras_callbacks(
    workload: Workload, spec: TrialSpec, observer: Observer, shown: ShownModel | None = None
) -> Iterator[Observer]:
    """Reports a run to the workload's callbacks; their epochs last from one test to the next.

    With a `shown` model they see there what was tested, may stop the run, and have its epochs.

    Raises WorkloadError if a callback cannot be used, or fails before the first step. One that
    fails later costs no training: it is called no more.
    """
    if workload.callbacks is None:
        yield observer
        return
    usable = _built_callbacks(workload, has_model=shown is not None)
    telling = _Telling(observer, workload, spec, usable, shown)
    yield telling
    telling.end()


class _Telling(Watching):
    """Calls the callbacks of one run before it passes observations on."""

    def __init__(
        self,
        observer: Observer,
        workload: Workload,
        spec: TrialSpec,
        callbacks: Sequence[Any],
        shown: ShownModel | None,
    ) -> None:
        super().__init__(observer)
        self._shown = shown
        self._workload = workload
        self._callbacks = list(callbacks)
        self._tests = 0
        self._metric = metric_of(workload)
        self._name = logged_name(workload)
        self._interval = workload.evaluation_interval_worker_steps
        if shown is not None:
            self._interval = max(self._interval, shown.epoch_worker_steps)
        self._told_step = 0
        self._total = spec.identity.total_worker_steps
        self._logs: dict[str, float] = {}
        epochs = -(-self._total // self._interval)
        for callback in self._callbacks:
            callback.set_params({"verbose": 0, "epochs": epochs, "steps": self._interval})
            stand_in = _NoModel(workload, type(callback).__name__)
            callback.set_model(stand_in if shown is None else shown.model)
        self._tell("on_train_begin", lambda: ({},))
        self._tell("on_epoch_begin", lambda: (0, {}))

    @override
    def on_evaluation(self, evaluation: Evaluation) -> Verdict:
        tested = {self._name: self._metric.value(evaluation.accuracy), **dict(evaluation.further)}
        validated = {f"val_{name}": value for name, value in tested.items()}
        self._logs = {"loss": evaluation.training_loss, **validated}
        is_last = evaluation.worker_step >= self._total
        step, before = evaluation.worker_step, self._told_step
        if step < before:  # the run went back
            before = step - 1
        is_end = step // self._interval > before // self._interval
        if self._shown is not None and not (is_last or is_end):
            return super().on_evaluation(evaluation)
        self._told_step = step
        # A test follows the first worker-step at or after a multiple of the interval.
        number = (evaluation.worker_step - 1) // self._interval
        number = number if is_last else max(0, evaluation.worker_step // self._interval - 1)
        self._tests += 1
        if self._shown is not None:
            self._shown.show()
        self._tell("on_test_begin", lambda: ({},))
        self._tell("on_test_end", lambda: (dict(tested),))
        self._tell("on_epoch_end", lambda: (number, dict(self._logs)))
        if not is_last:
            self._tell("on_epoch_begin", lambda: (number + 1, {}))
        verdict = super().on_evaluation(evaluation)
        has_stopped = self._shown is not None and bool(self._shown.model.stop_training)
        return Verdict.STOP if has_stopped and not is_last else verdict

    def end(self) -> None:
        self._tell("on_train_end", lambda: (dict(self._logs),))

    def _tell(self, hook: str, arguments: Callable[[], tuple[Any, ...]]) -> None:
        for callback in self._callbacks.copy():
            name = type(callback).__name__
            try:
                with users_code(self._workload, f"{name}.{hook}"):
                    getattr(callback, hook)(*arguments())
            except WorkloadError as error:
                is_unusable = isinstance(error, _NoModelError) and self._tests <= 1
                if is_unusable or not self._tests:
                    raise
                self._callbacks.remove(callback)
                _LOG.warning("%s; the run continues without callback %s", error, name)


class _NoModelError(WorkloadError): ...


class _NoModel:
    """Takes the place of `fit`'s model, and refuses any use of it by a callback."""

    def __init__(self, workload: Workload, callback: str) -> None:
        object.__setattr__(self, "_whose", f"workload {workload.name!r}: callback {callback}")

    def __getattr__(self, name: str, *value: Any) -> Any:
        if name == "stop_training" and not value:
            return False
        whose = object.__getattribute__(self, "_whose")
        raise _NoModelError(
            f"{whose} uses self.model.{name}, but a run has no model that it could read or"
            " change while workers train; use the logs that it is given"
        )

    __setattr__ = __getattr__
