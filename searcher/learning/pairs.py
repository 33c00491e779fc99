"""Chooses the protocols of the next run, by what the runs of a job took in each second phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from syncswitch.searcher.learning.job import JobHistory
from syncswitch.searcher.learning.reading import known_alone, unused_job, used_job
from syncswitch.storage.database.engine import Database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.job import Protocols, ScheduledJob, protocol_text
from syncswitch.storage.records.trial import BASELINE_PERCENT, PhaseRecord
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.storage.uses.store import uses
from syncswitch.trainers.run.fallback import Switch, expected_share

_CLEARLY_LESS = 0.9
"""The share of another pair's time with which a run changes to a pair."""

_WHOLE_PHASE = 0.05
"""The share of a job from which on the pace of a phase counts, with what it took to compile."""


@dataclass(frozen=True, slots=True)
class ExpectedPair:
    """What is expected of the next run with a pair of protocols.

    Attributes:
        switch: Its switch.
        share: Its time, relative to the first protocol alone.
    """

    switch: Switch
    share: float


def best_pair(own: ExpectedPair, others: Sequence[ExpectedPair]) -> ExpectedPair:
    """The pair of the next run: the fastest one, or its own where no other is clearly faster."""
    fastest = min(others, key=lambda one: one.share, default=own)
    return fastest if fastest.share < _CLEARLY_LESS * own.share else own


def pace_in(runs: Sequence[StoredTrial], second_protocol: str) -> float | None:
    """The time of a worker-step relative to the first protocol, in the newest run that tells it."""
    paces = (_pace_in(run, second_protocol) for run in reversed(runs))
    return next((pace for pace in paces if pace is not None), None)


def _pace_in(run: StoredTrial, second_protocol: str) -> float | None:
    names = run.job.first_protocol, second_protocol
    first, second = (_step_seconds(run, name) for name in names)
    return second / first if first and second is not None else None


def _step_seconds(run: StoredTrial, protocol: str) -> float | None:
    phases = [one for one in run.phases if one.protocol == protocol]
    steps = sum(map(_steps, phases))
    if steps >= _WHOLE_PHASE * run.total_worker_steps:
        return sum(one.seconds for one in phases) / steps
    return (run.step_seconds or {}).get(protocol)


def _steps(phase: PhaseRecord) -> int:
    return phase.end_worker_step - phase.start_worker_step


def next_pair(
    database: Database,
    identity: ScheduledJob,
    pairs: Sequence[Protocols],
    expected_runs: int,
    goes_back: bool | None = None,
) -> tuple[Protocols, str | None]:
    """The protocols of the next run of a job, one of the pairs, and why others than its own.

    Raises UserError as `JobHistory.next_percent`.
    """
    own = identity.protocols
    runs = [run for run in uses(database, identity.fingerprint) if not run.under.injections]
    timed = {pair: pace_in(runs, pair.second_protocol) for pair in pairs}
    paces = {pair: pace for pair, pace in timed.items() if pace is not None}
    if own not in paces or len(paces) < 2:
        return own, None
    found = {}
    for pair, pace in paces.items():
        job = _job(database, replace(identity, protocols=pair), goes_back)
        expected = _expected(job, pace, expected_runs)
        if expected is not None:
            found[pair] = expected
    if own not in found:
        return own, None
    best = best_pair(found[own], [one for pair, one in found.items() if pair != own])
    if best.switch.protocols == own:
        return own, None
    names = [protocol_text(one.second_protocol) for one in (best.switch.protocols, own)]
    return best.switch.protocols, (
        f"by what its runs took, this job is expected to take {best.share:.2f} of the time of"
        f" {protocol_text(own.first_protocol)} alone with {names[0]}, and"
        f" {found[own].share:.2f} with {names[1]}"
    )


def _job(database: Database, identity: ScheduledJob, goes_back: bool | None) -> JobHistory:
    protocols = identity.protocols
    policy = PolicyRegistry(database).current(identity.fingerprint, protocols)
    if policy is not None:
        return used_job(database, policy, goes_back)
    known = known_alone(database, identity.fingerprint, protocols)
    return unused_job(database, identity, goes_back, known)


def _expected(job: JobHistory, pace: float, expected_runs: int) -> ExpectedPair | None:
    """None where nothing is known of it, or the run is to measure the first protocol alone."""
    percent = job.next_percent(expected_runs)
    switch, expected = Switch(job.policy.protocols, percent), job.expected(percent)
    if percent >= BASELINE_PERCENT:
        return None if job.is_trying(expected_runs) else ExpectedPair(switch, 1.0)
    if expected is None or expected.promise.kept_share is None:
        return None
    return ExpectedPair(switch, expected_share(switch, pace, expected.promise.kept_share))
