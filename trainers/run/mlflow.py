"""Runs on MLflow while they train, whatever trains them; MLflow is never waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable

from typing_extensions import override

from syncswitch.storage.errors import SyncSwitchError, one_line
from syncswitch.storage.export.mlflow.runs import RunUnderWay
from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialRecord, TrialSpec
from syncswitch.trainers.trainer import Observer, SilentObserver, Trainer, Verdict

_PAUSE_SECONDS = 3.0
_LONGEST_PAUSE_SECONDS = 60.0
_IDLE_SECONDS = 30.0
_PATIENCE_SECONDS = 10.0


class Copier:
    """Copies in a thread of its own whenever there is something new, and once more at the end.

    A failure costs nothing but one line in a row of them, and is followed by further attempts.
    """

    def __init__(
        self, copy: Callable[[], object], tell: Callable[[str], None], advice: str
    ) -> None:
        """Begins at once.

        Args:
            copy: Brings everything up to date; may be called again after any failure.
            tell: Tells people.
            advice: What becomes of that which could not be copied.
        """
        self._copy = copy
        self._tell = tell
        self._advice = advice
        self._is_told = False
        self._is_done = False
        self._is_new = threading.Event()
        self._is_closing = threading.Event()
        # A server that does not answer holds up no end of the process.
        self._thread = threading.Thread(target=self._work, name="mlflow", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is something new."""
        self._is_new.set()

    def close(self, patience_seconds: float | None = None) -> None:
        """Copies what is left, for at most so long."""
        self._is_closing.set()
        self._is_new.set()
        patience = _PATIENCE_SECONDS if patience_seconds is None else patience_seconds
        self._thread.join(patience)
        if not self._is_done:
            self._warn(f"MLflow did not take everything within {patience:g} s")

    def _work(self) -> None:
        pause = _PAUSE_SECONDS
        while True:
            self._is_new.wait(_IDLE_SECONDS)
            is_last = self._is_closing.is_set()
            self._is_new.clear()
            try:
                self._copy()
                pause, self._is_told, self._is_done = _PAUSE_SECONDS, False, is_last
            except Exception as error:  # whatever it is, no run may fail for it
                self._warn(str(error) if isinstance(error, SyncSwitchError) else one_line(error))
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                self._is_new.set()
            if is_last:
                return
            self._is_closing.wait(pause)

    def _warn(self, reason: str) -> None:
        if not self._is_told:
            self._is_told = True
            self._tell(f"{reason}; {self._advice}")


class WatchedTrainer(Trainer):
    """Wraps a trainer, and says of the run that it trains what is known so far."""

    def __init__(
        self, trainer: Trainer, under_way: RunUnderWay, is_new: Callable[[], None]
    ) -> None:
        """Takes the trainer over: it is closed with this one.

        Args:
            trainer: Trains.
            under_way: Is kept up to date.
            is_new: Is called after each change.
        """
        self._trainer = trainer
        self._under_way = under_way
        self._is_new = is_new

    @override
    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        self._under_way.spec, self._under_way.evaluations = None, ()
        self._under_way.spec = spec
        self._is_new()
        try:
            return self._trainer.train(
                spec, _Watcher(self._under_way, self._is_new, observer or SilentObserver())
            )
        finally:
            self._is_new()

    @override
    def close(self) -> None:
        self._trainer.close()


class _Watcher:
    """Notes tests, and passes everything on."""

    def __init__(
        self, under_way: RunUnderWay, is_new: Callable[[], None], observer: Observer
    ) -> None:
        self._under_way = under_way
        self._is_new = is_new
        self._observer = observer

    def on_progress(self, worker_step: int) -> None:
        self._observer.on_progress(worker_step)

    def on_evaluation(self, evaluation: Evaluation) -> Verdict:
        self._under_way.evaluations += (evaluation,)
        self._is_new()
        return self._observer.on_evaluation(evaluation)

    def on_event(self, event: RunEvent) -> None:
        self._observer.on_event(event)
