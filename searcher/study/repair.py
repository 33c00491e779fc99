"""Sets right what killed searchers left behind, so that nothing is lost, stuck or counted twice."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from syncswitch.searcher.study.liveness import HEARTBEAT_SECONDS, is_alive, is_run_by_anyone
from syncswitch.searcher.study.study import SearchState, SearchStudy, owner_of
from syncswitch.storage.database.engine import RESTART_SECONDS
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a search waits for what.

    Attributes:
        heartbeat_seconds: A searcher on another machine that is silent for longer is dead.
        stale_seconds: A trial that nobody has begun for longer has no owner.
        heartbeat_interval_seconds: Least time between two heartbeats of a run.
        retry_seconds: Between a failed run and the next attempt.
        attempts: Failed runs in a row before the search gives up.
        restart_seconds: How long the database may be away before it does.
    """

    heartbeat_seconds: float = HEARTBEAT_SECONDS
    stale_seconds: float = 15.0
    heartbeat_interval_seconds: float = 1.0
    poll_seconds: float = 0.5
    retry_seconds: float = 2.0
    attempts: int = 3
    restart_seconds: float = RESTART_SECONDS


@dataclass
class Repairer:
    """Finishes the trials that Optuna has as running and nobody runs.

    Optuna knows which trial ran, the store what it measured. The store is written first, so the two
    differ only in trials that Optuna still has as running:

    - complete in the store: its value is told;
    - failed in the store: its failure is told;
    - running in the store, and its owner is dead: failed in both;
    - unknown to the store: failed, once its owner is dead or too long has passed.

    Optuna's own `fail_stale_trials` would fail the first kind too, and they would be made again.
    """

    study: SearchStudy
    store: TrialStore
    patience: Patience

    def __post_init__(self) -> None:
        self._first_seen: dict[int, float] = {}

    def repaired(self) -> tuple[SearchState, int]:
        """The search once its running trials were looked at, and how many of them were stale."""
        state = self.study.read(self.store)
        running = [trial for trial in state.trials if trial.state == OptunaState.RUNNING]
        settled = [self._settle(trial, state.rows.get(trial.number)) for trial in running]
        if not any(settled):
            return state, 0
        return self.study.read(self.store), settled.count("stale")

    def _settle(
        self, trial: FrozenTrial, row: StoredTrial | None
    ) -> Literal["told", "stale"] | None:
        if (
            row is not None
            and row.state == TrialState.COMPLETE
            and row.converged_accuracy is not None
        ):
            self.study.note_result(trial.number, bool(row.diverged), row.training_seconds)
            self.study.complete(trial.number, row.converged_accuracy)
            return "told"
        if not self._is_stale(trial, row) or self.store.get(self.study.name, trial.number) != row:
            return None  # the next look decides about what ended meanwhile
        # The store first: were this process killed in between, the next repair sees it.
        self.store.fail(self.study.name, trial.number, "its process ended")
        self.study.fail(trial.number)
        return "stale"

    def _is_stale(self, trial: FrozenTrial, row: StoredTrial | None) -> bool:
        if trial.number in self.study.stale:
            return True
        if row is None:
            return self._is_never_begun(trial)
        return row.state == TrialState.FAILED or not is_run_by_anyone(
            row, self.patience.heartbeat_seconds
        )

    def _is_never_begun(self, trial: FrozenTrial) -> bool:
        """Whether whoever asked for a trial is gone, or never began it."""
        owner = owner_of(trial)
        if owner is not None and owner.host == socket.gethostname():
            return not is_alive(owner)
        now = time.monotonic()
        seen = now - self._first_seen.setdefault(trial.number, now)
        return max(seen, _age_seconds(trial)) > self.patience.stale_seconds


def _age_seconds(trial: FrozenTrial) -> float:
    if trial.datetime_start is None:
        return 0.0
    # Optuna writes local time without a zone.
    return (datetime.now() - trial.datetime_start).total_seconds()
