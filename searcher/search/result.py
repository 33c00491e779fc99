"""What a search found and what it cost."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from syncswitch.searcher.search.band import measured_band
from syncswitch.searcher.speed_up import speed_ups
from syncswitch.searcher.strategies.base import Decided, Strategy
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.progress import SwitchPointSummary
from syncswitch.storage.metrics import seconds_at_pace
from syncswitch.storage.provenance import software_versions
from syncswitch.storage.queries.search_costs import SearchCost, search_cost
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import Evidence, TimingPolicy
from syncswitch.storage.records.trial import Evaluation
from syncswitch.storage.trials.values import StoredTrial


@dataclass(frozen=True, slots=True)
class SwitchPointResult:
    """One row of the closing table; seconds are a mean over the runs that did not diverge."""

    summary: SwitchPointSummary
    training_seconds: float | None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The end of a search; `threshold_runs` is that of its strategy."""

    policy: TimingPolicy
    switch_points: tuple[SwitchPointResult, ...]
    cost: SearchCost
    threshold_runs: int = 0


def switch_points_of(
    strategy: Strategy, finished: Sequence[Observation], rows: Mapping[int, StoredTrial]
) -> tuple[SwitchPointResult, ...]:
    """The table of switch points, in the order in which they were tried."""
    return tuple(
        SwitchPointResult(summary, _mean_seconds(summary.switch_percent, finished, rows))
        for summary in strategy.progress(finished).summaries
    )


def cost_of(identity: WorkloadIdentity, trials: Iterable[StoredTrial]) -> SearchCost:
    """What all trials of a search cost."""
    known = list(trials)
    phases = (phase for row in known for phase in row.phases)
    pace = seconds_at_pace(phases, identity.first_protocol, identity.total_worker_steps)
    return search_cost(known, pace)


def draft_policy(
    strategy: Strategy,
    identity: WorkloadIdentity,
    study: str,
    decided: Decided,
    finished: Sequence[Observation],
    rows: Mapping[int, StoredTrial],
    curves: Mapping[int, Sequence[Evaluation]],
) -> TimingPolicy:
    """The policy to publish; its version is given by the registry.

    The curves are all tests of each run by its number, those before it was forked included.
    """
    chosen = [
        summary
        for summary in strategy.progress(finished).summaries
        if summary.switch_percent == decided.switch_percent
    ]
    completed = [
        (run.switch_percent, rows[run.trial_number]) for run in finished if not run.diverged
    ]
    is_guarded: bool = getattr(strategy, "guarded", False)
    speed_up = speed_ups(identity, completed, strategy.highest_percent).get(decided.switch_percent)
    return TimingPolicy(
        fingerprint=identity.fingerprint,
        version=1,
        workload=identity.name,
        workers=identity.workers,
        total_worker_steps=identity.total_worker_steps,
        first_protocol=identity.first_protocol,
        second_protocol=identity.second_protocol,
        switch_percent=decided.switch_percent,
        target_accuracy=decided.target_accuracy,
        threshold=strategy.threshold,
        mean_accuracy=chosen[0].mean_accuracy if chosen else None,
        training_seconds=_mean_seconds(decided.switch_percent, finished, rows),
        baseline_seconds=_mean_seconds(strategy.highest_percent, finished, rows),
        strategy=strategy.name,
        study=study,
        evidence=tuple(
            _evidence(study, run, rows[run.trial_number])
            for run in sorted(finished, key=lambda run: run.trial_number)
        ),
        created_at=datetime.now(timezone.utc).isoformat(),
        software=software_versions(),
        confidence=decided.confidence,
        guarded=is_guarded,
        keep=None if is_guarded else getattr(strategy, "keep", None),
        kept_share=decided.kept_share,
        delivered_share=decided.delivered_share,
        baseline_kept_share=decided.baseline_kept_share,
        expected_time=decided.expected_time,
        speed_up_low=speed_up.low if speed_up else None,
        speed_up_high=speed_up.high if speed_up else None,
        reason=decided.reason,
        band=measured_band(
            decided.target_accuracy,
            strategy.threshold,
            (
                curves.get(run.trial_number, ())
                for run in finished
                if run.switch_percent == strategy.highest_percent and not run.diverged
            ),
        ),
        **identity.decided_by.fields,
    )


def _evidence(study: str, run: Observation, row: StoredTrial) -> Evidence:
    return Evidence(
        study=study,
        trial_number=run.trial_number,
        switch_percent=run.switch_percent,
        replicate=row.replicate,
        converged_accuracy=run.accuracy,
        diverged=run.diverged,
        training_seconds=row.training_seconds or 0.0,
    )


def _mean_seconds(
    percent: float, finished: Sequence[Observation], rows: Mapping[int, StoredTrial]
) -> float | None:
    known = _seconds(percent, finished, rows)
    return statistics.fmean(known) if known else None


def _seconds(
    percent: float, finished: Sequence[Observation], rows: Mapping[int, StoredTrial]
) -> list[float]:
    """Times of whole trainings at a switch point, as far as they are known."""
    seconds = (
        rows[run.trial_number].whole_run_seconds
        for run in finished
        if run.switch_percent == percent and not run.diverged
    )
    return [value for value in seconds if value is not None]
