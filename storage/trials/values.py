"""The values that the trial store takes and returns, besides the records of runs."""

from __future__ import annotations

import math
import os
import socket
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from syncswitch.storage.columns import ConditionColumns, TrialFacts
from syncswitch.storage.errors import FatalError
from syncswitch.storage.records.guard import FailedSwitch
from syncswitch.storage.records.job import Protocols, RunConditions
from syncswitch.storage.records.trial import BASELINE_PERCENT, PhaseRecord, TrialRecord, TrialState

CANCELLED = "no longer needed: the search is decided"
INTERRUPTED = "interrupted"
"""Why a run was stopped although nothing was wrong: it is stored as failed, with what it cost."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that runs a trial.

    Operating systems reuse process identifiers; together with the start time one is unique.
    """

    host: str
    process_id: int
    process_started_at: float

    @classmethod
    def current(cls) -> Owner:
        """Returns the current process."""
        import psutil  # readers do not need it

        return cls(socket.gethostname(), os.getpid(), psutil.Process().create_time())


@dataclass(frozen=True, slots=True)
class Fork:
    """The run of the same search that a fork left, and the percent of W that they share."""

    trial_number: int
    percent: float


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint that a complete trial of a search left; the file may be gone by now.

    Attributes:
        trial_number: Number of the trial in its search.
        replicate: The trial's index among the repeats of its switch point, from 0.
        percent: Percent of W that were done.
        path: Absolute path of the file.
        host: Name of the machine that has the file.
    """

    trial_number: int
    replicate: int
    percent: float
    path: Path
    host: str


@dataclass(frozen=True, slots=True)
class StoredTrial(TrialFacts):
    """One trial as the database has it; times are in UTC.

    Attributes:
        parent_trial_number: Number of the run that it was forked from; None for none.
        heartbeat_at: When the owner last reported its progress, `worker_steps`.
        process_id: Identifier of the owner's process.
        process_started_at: Start of that process, in seconds since 1970.
        phases: The phases that it ran itself, in their order.
        failed: The switches that it went back to, in their order.
        step_seconds: As in `TrialRecord`; None where it timed nothing.
    """

    parent_trial_number: int | None
    heartbeat_at: datetime | None
    process_id: int | None
    process_started_at: float | None
    step_seconds: dict[str, float] | None
    phases: tuple[PhaseRecord, ...]
    failed: tuple[FailedSwitch, ...]

    @property
    def owner(self) -> Owner | None:
        """The process that runs or ran it; None for an imported run."""
        if self.host is None or self.process_id is None or self.process_started_at is None:
            return None
        return Owner(self.host, self.process_id, self.process_started_at)

    @property
    def fork(self) -> Fork | None:
        """Where it left another run of its search; None for a run from fresh parameters."""
        if self.parent_trial_number is None or self.fork_percent is None:
            return None
        return Fork(self.parent_trial_number, self.fork_percent)

    @property
    def held_percent(self) -> float:
        """The switch with which it came to its end; that with which it began if it is unknown."""
        held = self.guard.held_percent
        return self.switch_percent if held is None else held

    def is_with(self, protocols: Protocols) -> bool:
        """Whether it was made with these protocols, or with the first one alone."""
        job = self.job
        is_alike = (job.second_protocol, job.momentum_after_switch) == (
            protocols.second_protocol,
            protocols.momentum_after_switch,
        )
        never_switches = self.switch_percent == BASELINE_PERCENT
        return job.first_protocol == protocols.first_protocol and (never_switches or is_alike)

    def failed_with(self, second_protocol: str) -> tuple[FailedSwitch, ...]:
        """The switches to this protocol that it went back to."""
        own = self.job.second_protocol
        return tuple(one for one in self.failed if (one.second_protocol or own) == second_protocol)

    def counts_with(self, first_protocol: str, second_protocol: str) -> bool:
        """Whether it trained with these protocols, or with the first one alone."""
        return self.job.first_protocol == first_protocol and (
            self.switch_percent == BASELINE_PERCENT or self.job.second_protocol == second_protocol
        )

    @property
    def conditions(self) -> RunConditions:
        """The conditions under which it trains or trained."""
        return conditions_of(self.under)

    @property
    def is_cancelled(self) -> bool:
        """Whether it was stopped because the search no longer needed it."""
        return self.failure == CANCELLED

    @property
    def is_interrupted(self) -> bool:
        """Whether whoever made it stopped it with Ctrl-C."""
        return self.failure == INTERRUPTED

    @property
    def end(self) -> str | None:
        """How it ended; None for a run that failed or still runs.

        `whole`, `stopped` or `diverged`; `cancelled` if it was no longer needed, `interrupted` if
        somebody pressed Ctrl-C.
        """
        if self.is_cancelled or self.is_interrupted:
            return "cancelled" if self.is_cancelled else "interrupted"
        if self.state != TrialState.COMPLETE:
            return None
        if self.result.diverged:
            return "diverged"
        return "stopped" if self.result.stopped_early else "whole"


_SEPARATOR = "; "


def condition_values(conditions: RunConditions) -> dict[str, str | None]:
    """Returns the columns of a trial that say under which conditions it runs.

    Raises FatalError if the text of an injection contains what separates them.
    """
    if any(_SEPARATOR in text or not text for text in conditions.injections):
        raise FatalError(f"injections {conditions.injections} cannot be told apart when joined")
    return {
        "online": conditions.online,
        "switch_mechanism": conditions.switch_mechanism,
        "injections": _SEPARATOR.join(conditions.injections) or None,
    }


def conditions_of(columns: ConditionColumns) -> RunConditions:
    """Returns the conditions that these columns stand for."""
    separate = tuple(columns.injections.split(_SEPARATOR)) if columns.injections else ()
    return RunConditions(columns.online, columns.switch_mechanism, separate)


def storable_text(text: str) -> str:
    """Makes a text that may quote binary output, or an undecodable file name, fit any column."""
    return text.encode(errors="replace").decode().replace("\0", "?")


def check_times(record: TrialRecord) -> None:
    """Raises FatalError for a time that is not finite: PostgreSQL would store it, SQLite not."""
    failed = record.failed
    times = [
        record.training_seconds,
        record.inherited_seconds,
        record.switch_overhead_seconds,
        *(phase.seconds for phase in record.phases),
        *(evaluation.elapsed_seconds for evaluation in record.evaluations),
        *(event.elapsed_seconds for event in record.events),
        *(event.seconds for event in record.events if event.seconds is not None),
        *(one.elapsed_seconds for one in failed),
        *(one.lost_seconds for one in failed),
        *record.step_seconds.values(),
    ]
    wrong = [seconds for seconds in times if not math.isfinite(seconds)]
    if wrong:
        raise FatalError(f"the trainer reported a time of {wrong[0]} seconds; allowed: from 0 on")
