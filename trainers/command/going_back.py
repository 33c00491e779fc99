"""What comes of a command that failed after its switch, and was run once more; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from syncswitch.storage.records.guard import FailedSwitch
from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialSpec
from syncswitch.trainers.job.schedule import switch_worker_step
from syncswitch.trainers.run.guard import Guard
from syncswitch.trainers.run.guarding import Guarding, accuracy_since, next_switch_text
from syncswitch.trainers.run.record import RunResult


class CommandGuard:
    """Looks at the results of a guarded run.

    Args:
        spec: The trial; it has a band, and switches before its end.
    """

    def __init__(self, spec: TrialSpec) -> None:
        assert spec.band is not None
        self._total = spec.identity.total_worker_steps
        self._switch = switch_worker_step(spec)
        self._guard = Guard(spec.band, self._total, spec.identity.decided_by)

    @classmethod
    def of(cls, spec: TrialSpec) -> CommandGuard | None:
        """None for a run without a band, or without a switch to go back to."""
        return cls(spec) if spec.band is not None and spec.switch_percent < 100 else None

    def alarm(self, evaluations: Sequence[Evaluation], *, is_over: bool = False) -> str | None:
        """Why the run fails, as a clause; None while it does not.

        Args:
            evaluations: So far.
            is_over: The command has ended; what it tested last may be of a step before its last.
        """
        tests = list(evaluations)
        if is_over and tests:
            tests[-1] = replace(tests[-1], worker_step=self._total)
        return self._guard.alarm(tests, self._switch)

    def diverged(self, step: int | None) -> str | None:
        """The same of a run that said so at a step; None where that was before its switch."""
        if step is not None and step < self._switch:
            return None
        return "it diverged"


@dataclass(frozen=True)
class FailedRun:
    """A run of a command that was ended at an alarm.

    Attributes:
        plan: The trial as it was carried out.
        result: Up to the alarm; its clock began with the run, perhaps at the switch of another one.
        alarm: Why it failed.
        is_kept: The next run goes on from its switch; else that begins anew.
    """

    plan: TrialSpec
    result: RunResult
    alarm: str
    is_kept: bool

    @property
    def switch_worker_step(self) -> int:
        """Where it was left, and the next run began."""
        return switch_worker_step(self.plan) if self.is_kept else 0

    @property
    def kept_seconds(self) -> float:
        """Those of the part before its switch, where that is not made again."""
        return sum(one.seconds for one in self.result.phases[:1]) if self.is_kept else 0.0

    @property
    def evaluations(self) -> list[Evaluation]:
        """Those that count."""
        tests = self.result.evaluations
        return [one for one in tests if self.is_kept and one.worker_step <= self.switch_worker_step]


def failed_switch(runs: Sequence[FailedRun]) -> FailedSwitch:
    """What is known of the last of these runs."""
    *_, last = runs
    result = last.result
    return FailedSwitch(
        last.plan.switch_percent,
        last.alarm,
        result.worker_steps,
        sum(one.result.training_seconds for one in runs),
        result.training_seconds - last.kept_seconds,
        accuracy_since(result.evaluations, switch_worker_step(last.plan)),
    )


def alarm_event(guarding: Guarding, *, is_kept: bool) -> RunEvent:
    """What is told of a switch that has just failed."""
    plan, failed = guarding.plan, guarding.failed[-1]
    first = plan.identity.first_protocol + (" alone" if plan.switch_percent >= 100 else "")
    whence = "from its checkpoint at the switch" if is_kept else "from its start"
    reason = f"{failed.alarm}; it goes on with {first}, {whence}{next_switch_text(plan)}"
    seconds = failed.elapsed_seconds
    return RunEvent("alarmed", failed.worker_step, seconds, reason, seconds=failed.lost_seconds)


def whole_result(failed: Sequence[FailedRun], last: RunResult) -> RunResult:
    """One run of all: what was lost stays on the clock, and its results are left out.

    Args:
        failed: In their order.
        last: Of the run that came to its end; its clock began with it.
    """
    evaluations: list[Evaluation] = []
    start, before_seconds, kept_seconds = 0, 0.0, 0.0
    for one in failed:
        evaluations += _later(one.evaluations, start, before_seconds)
        start, before_seconds = one.switch_worker_step, before_seconds + one.result.training_seconds
        kept_seconds += one.kept_seconds
    return replace(
        last,
        evaluations=(*evaluations, *_later(last.evaluations, start, before_seconds)),
        phases=tuple(
            replace(one, seconds=one.seconds + kept_seconds * (number == 0))
            for number, one in enumerate(last.phases)
        ),
        training_seconds=before_seconds + last.training_seconds,
    )


def _later(tests: Iterable[Evaluation], start: int, seconds: float) -> list[Evaluation]:
    """Those of a run that began at a step, so many seconds after the first run."""
    return [
        replace(one, elapsed_seconds=seconds + one.elapsed_seconds)
        for one in tests
        if not start or one.worker_step > start
    ]
