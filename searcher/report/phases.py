"""Throughput and staleness of each phase, switch point by switch point; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from syncswitch.searcher.report.data import ReportData
from syncswitch.storage.records.trial import PhaseRecord


@dataclass(frozen=True, slots=True)
class SwitchPointPhase:
    """What the runs of one switch point measured in one protocol.

    Attributes:
        candidate_percent: The switch point.
        protocol: The protocol.
        runs: That used it for worker-steps of their own.
        worker_steps_per_second: All their worker-steps in it over all their seconds; None where
            nobody measured the time.
        mean_staleness: Mean over the worker-steps, in updates; None where nobody counted.
        max_staleness: The largest; None where nobody counted.
    """

    candidate_percent: float
    protocol: str
    runs: int
    worker_steps_per_second: float | None
    mean_staleness: float | None
    max_staleness: int | None


def switch_point_phases(data: ReportData) -> tuple[SwitchPointPhase, ...]:
    """Of the completed runs, the longest first protocol first; without what forks inherited."""
    found: dict[tuple[float, str], list[PhaseRecord]] = {}
    for run in data.compared:
        for phase in run.trial.phases:
            if phase.end_worker_step > phase.start_worker_step:
                key = (run.trial.candidate_percent or 0.0, phase.protocol)
                found.setdefault(key, []).append(phase)
    order = {data.identity.first_protocol: 0, data.identity.second_protocol: 1}
    keys = sorted(found, key=lambda key: (-key[0], order.get(key[1], 2)))
    return tuple(_summary(*key, found[key]) for key in keys)


def _summary(percent: float, protocol: str, phases: Sequence[PhaseRecord]) -> SwitchPointPhase:
    seconds = math.fsum(phase.seconds for phase in phases)
    counted = [(p, p.mean_staleness) for p in phases if p.mean_staleness is not None]
    most = [phase.max_staleness for phase in phases if phase.max_staleness is not None]
    steps = sum(map(_steps, phases))
    counted_steps = sum(_steps(phase) for phase, _ in counted)
    mean = math.fsum(_steps(phase) * staleness for phase, staleness in counted)
    return SwitchPointPhase(
        candidate_percent=percent,
        protocol=protocol,
        runs=len(phases),
        worker_steps_per_second=steps / seconds if seconds > 0 else None,
        mean_staleness=mean / counted_steps if counted_steps else None,
        max_staleness=max(most, default=None),
    )


def _steps(phase: PhaseRecord) -> int:
    return phase.end_worker_step - phase.start_worker_step
