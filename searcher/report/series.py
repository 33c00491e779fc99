"""What the figures and tables of a report show of its runs; pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from syncswitch.searcher.report.data import ReportData, ReportRun
from syncswitch.storage.records.trial import BASELINE_PERCENT, PhaseRecord
from syncswitch.trainers.replay.recording import RecordedRun
from syncswitch.trainers.run.event_text import is_remarkable

_MOST_POINTS = 300
_MOST_CURVES = 5  # of a switch point
_MOST_EVENTFUL_RUNS = 20


@dataclass(frozen=True, slots=True)
class DrawnCurve:
    """One run of one of the switch points that are compared.

    Attributes:
        role: `first` (the first protocol alone), `policy` (or what may become it), or `early` (the
            earliest switch tried).
        is_typical: It has the median accuracy of its switch point, or is next to it.
        seconds: Training time of each test.
        switch: Time and accuracy when its second protocol began; None where it never did.
    """

    role: str
    candidate_percent: float
    trial_id: int
    name: str
    is_typical: bool
    diverged: bool
    seconds: tuple[float, ...]
    accuracies: tuple[float, ...]
    switch: tuple[float, float] | None


def drawn_curves(data: ReportData) -> list[DrawnCurve]:
    """Of each switch point that is compared at most 5 runs, the typical ones last."""
    by_switch_point: dict[float, list[tuple[ReportRun, RecordedRun]]] = {}
    for run in data.compared:
        if run.whole is not None and len(run.whole.evaluations) > 1:
            percent = run.trial.candidate_percent or 0.0
            by_switch_point.setdefault(percent, []).append((run, run.whole))
    return [
        curve
        for role, percent in _roles(data, sorted(by_switch_point))
        for curve in _curves(role, percent, by_switch_point[percent])
    ]


def _roles(data: ReportData, percents: Sequence[float]) -> list[tuple[str, float]]:
    """What is compared, of the switch points that have curves."""
    middle = _middle(data)
    roles: dict[float, str] = {}
    if BASELINE_PERCENT in percents:
        roles[BASELINE_PERCENT] = "first"
    if middle is not None and middle in percents:
        roles.setdefault(middle, "policy")
    if percents:
        roles.setdefault(percents[0], "early")
    return [(role, percent) for percent, role in roles.items()]


def _middle(data: ReportData) -> float | None:
    """The policy; where there is none, the earliest switch whose mean is accepted."""
    if data.answer is not None:
        return data.answer.switch_percent
    least = math.inf if data.acceptance is None else data.acceptance.least_accuracy
    kept = (
        one.candidate_percent
        for one in data.switch_points
        if not one.diverged_runs and (one.mean_accuracy or 0.0) >= least
    )
    return min(kept, default=None)


def _curves(
    role: str, percent: float, runs: Sequence[tuple[ReportRun, RecordedRun]]
) -> list[DrawnCurve]:
    ordered = sorted(runs, key=lambda run: run[1].accuracy)
    typical = ordered[(len(runs) - 1) // 2 : len(runs) // 2 + 1]
    others = [run for run in runs if run not in typical][len(typical) - _MOST_CURVES :]
    return [
        _curve(role, percent, run, whole, is_typical=number >= len(others))
        for number, (run, whole) in enumerate([*others, *typical])
    ]


def _curve(
    role: str, percent: float, run: ReportRun, whole: RecordedRun, *, is_typical: bool
) -> DrawnCurve:
    tests = [one for one in whole.evaluations if math.isfinite(one.accuracy)]
    every = math.ceil(len(tests) / _MOST_POINTS) or 1
    shown = [*tests[:-1:every], *tests[-1:]]
    return DrawnCurve(
        role=role,
        candidate_percent=percent,
        trial_id=run.trial.trial_id,
        name=run.name,
        is_typical=is_typical,
        diverged=whole.diverged,
        seconds=tuple(one.elapsed_seconds for one in shown),
        accuracies=tuple(one.accuracy for one in shown),
        switch=_switch(whole),
    )


def _switch(whole: RecordedRun) -> tuple[float, float] | None:
    """On the curve, between the tests before and after."""
    if len(whole.phases) < 2 or not whole.evaluations:
        return None
    seconds = whole.clock().seconds_at(whole.switch_worker_step)
    times = [one.elapsed_seconds for one in whole.evaluations]
    accuracies = [one.accuracy for one in whole.evaluations]
    return seconds, float(np.interp(seconds, times, accuracies))


@dataclass(frozen=True, slots=True)
class SwitchPointCost:
    """The runs of a search at one switch point.

    Attributes:
        runs: How many were begun.
        needed_seconds: Training time of runs that the search asked for.
        unneeded_seconds: Of speculative runs that the answer did not need, cancelled ones included.
        shared_seconds: That runs did not need to train because they began with a checkpoint of
            another run.
        stopped_seconds: That runs were spared because their accuracy was known early.
        failed_runs: That failed or whose process died; nobody counted their time.
    """

    candidate_percent: float
    runs: int
    needed_seconds: float
    unneeded_seconds: float
    shared_seconds: float
    stopped_seconds: float
    failed_runs: int

    @property
    def paid_seconds(self) -> float:
        """Training time that was spent."""
        return self.needed_seconds + self.unneeded_seconds


def switch_point_costs(data: ReportData) -> tuple[SwitchPointCost, ...]:
    """Of the search that is shown, the longest first protocol first."""
    by_switch_point: dict[float, list[ReportRun]] = {}
    for run in data.search_runs:
        by_switch_point.setdefault(run.trial.switch_percent, []).append(run)
    # Until the answer is known, a speculative run may still be asked for.
    unasked = {step.trial_number for step in data.path if not step.is_needed}
    in_vain = unasked if data.is_found_here else set()
    return tuple(
        _cost(percent, by_switch_point[percent], in_vain)
        for percent in sorted(by_switch_point, reverse=True)
    )


def _cost(percent: float, runs: list[ReportRun], in_vain: set[int]) -> SwitchPointCost:
    def is_in_vain(run: ReportRun) -> bool:
        return run.outcome == "cancelled" or run.trial.trial_number in in_vain

    return SwitchPointCost(
        candidate_percent=percent,
        runs=len(runs),
        needed_seconds=_sum(run.trial.paid_seconds for run in runs if not is_in_vain(run)),
        unneeded_seconds=_sum(run.trial.paid_seconds for run in runs if is_in_vain(run)),
        shared_seconds=_sum(run.trial.inherited_seconds for run in runs if run.is_complete),
        stopped_seconds=_sum(_spared(run) for run in runs),
        failed_runs=sum(run.outcome in {"failed", "stale"} for run in runs),
    )


def _spared(run: ReportRun) -> float | None:
    """What the rest of a run that was stopped would have taken."""
    whole, done = run.trial.whole_run_seconds, run.trial.training_seconds
    return None if whole is None or done is None else max(0.0, whole - done)


def _sum(values: Iterable[float | None]) -> float:
    return math.fsum(value for value in values if value is not None)


@dataclass(frozen=True, slots=True)
class SwitchPointPhase:
    """What the runs of one switch point measured in one protocol.

    Attributes:
        runs: That used it for worker-steps of their own.
        worker_steps_per_second: All their worker-steps in it over all their seconds; None where
            nobody measured the time.
        mean_staleness: Mean over the worker-steps, in updates; None where nobody counted.
        is_shared: Measured by the runs whose start they share; none has worker-steps of its own.
    """

    candidate_percent: float
    protocol: str
    runs: int
    worker_steps_per_second: float | None
    mean_staleness: float | None
    max_staleness: int | None
    is_shared: bool = False


def switch_point_phases(data: ReportData) -> tuple[SwitchPointPhase, ...]:
    """Of the completed runs, the longest first protocol first.

    What forks inherited counts only where no run of the switch point has its own.
    """
    own: dict[tuple[float, str], list[PhaseRecord]] = defaultdict(list)
    whole: dict[tuple[float, str], list[PhaseRecord]] = defaultdict(list)
    for run in data.compared:
        for found, phases in ((own, run.trial.phases), (whole, run.whole and run.whole.phases)):
            for phase in phases or ():
                if phase.end_worker_step > phase.start_worker_step:
                    found[run.trial.candidate_percent or 0.0, phase.protocol].append(phase)
    order = {data.identity.first_protocol: 0, data.identity.second_protocol: 1}
    keys = sorted({*own, *whole}, key=lambda key: (-key[0], order.get(key[1], 2)))
    return tuple(_phase(key, own.get(key) or whole[key], key not in own) for key in keys)


def _phase(
    key: tuple[float, str], phases: Sequence[PhaseRecord], is_shared: bool
) -> SwitchPointPhase:
    seconds = math.fsum(phase.seconds for phase in phases)
    counted = [(p, p.mean_staleness) for p in phases if p.mean_staleness is not None]
    most = [phase.max_staleness for phase in phases if phase.max_staleness is not None]
    steps = sum(map(_steps, phases))
    counted_steps = sum(_steps(phase) for phase, _ in counted)
    mean = math.fsum(_steps(phase) * staleness for phase, staleness in counted)
    return SwitchPointPhase(
        candidate_percent=key[0],
        protocol=key[1],
        runs=len(phases),
        worker_steps_per_second=steps / seconds if seconds > 0 else None,
        mean_staleness=mean / counted_steps if counted_steps else None,
        max_staleness=max(most, default=None),
        is_shared=is_shared,
    )


def _steps(phase: PhaseRecord) -> int:
    return phase.end_worker_step - phase.start_worker_step


def eventful_runs(data: ReportData) -> tuple[ReportRun, ...]:
    """The newest 20 of them, with the events that are more than the switch that was asked for.

    These are runs under all conditions, disturbed ones included.
    """
    runs = (replace(run, events=tuple(filter(is_remarkable, run.events))) for run in data.runs)
    return tuple(run for run in runs if run.events)[-_MOST_EVENTFUL_RUNS:]
