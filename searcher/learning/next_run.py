"""Decides where the next training of a job switches."""

from __future__ import annotations

from dataclasses import dataclass, replace

from syncswitch.searcher.learning.publishing import with_allowed_loss
from syncswitch.searcher.learning.reading import known_alone, simulated_policy, unused_job, used_job
from syncswitch.searcher.strategies.base import Decided
from syncswitch.storage.database.engine import Database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.goal import AllowedLoss
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.job import Protocols, ScheduledJob
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.trials.store import TrialStore


@dataclass(frozen=True, slots=True)
class NextRun:
    """The switch of a training, and what its guard compares it with.

    Attributes:
        policy: The policy that it uses; None for a switch point of the user's own, and for the
            first run of a job that is learnt from its runs.
        band: What its guard compares it with; None without a guard.
        begins_from: The policy of simulated runs from which the first real one begins.
        learns: Whether what it measures decides where later runs switch.
        expected: What is expected of it while no target is measured; None where one is.
        runs_left: Trainings to come with this one, as far as it learns.
        own_jobs: See `Explanation`.
        allowed: How much accuracy may be lost, where learning decides.
        goes_back: As in `JobHistory`.
        may_begin: Whether it may be the first recorded run of its job.
        known_from: The policy with another second protocol from which it is known what the first
            one alone reaches; None where the policy itself says it, or nobody knows.
        candidates: As in `TrialSpec`.
        fallbacks: As in `TrialSpec`.
        is_first_switch: Whether no earlier run of the job is known to have had a second phase.
    """

    policy: TimingPolicy | None
    switch_percent: float
    band: Band | None = None
    begins_from: TimingPolicy | None = None
    learns: bool = False
    expected: Decided | None = None
    runs_left: int = 1
    own_jobs: int = 0
    allowed: AllowedLoss | None = None
    goes_back: bool = True
    may_begin: bool = True
    known_from: TimingPolicy | None = None
    candidates: tuple[Protocols, ...] = ()
    fallbacks: tuple[Protocols, ...] = ()
    is_first_switch: bool = False


def next_run(
    database: Database,
    identity: ScheduledJob,
    expected_runs: int,
    goes_back: bool | None = None,
    allowed: AllowedLoss | None = None,
) -> NextRun:
    """Decides where the next training of a job switches, of which there are `expected_runs` in all.

    Where a user has allowed a loss, a policy with another one gets a new version. Raises UserError
    as `JobHistory.next_percent`.
    """
    policy = PolicyRegistry(database).current(identity.fingerprint, identity.protocols)
    begins_anew = policy or (allowed is not None and allowed.is_from_runs)
    known = None if policy else known_alone(database, identity.fingerprint, identity.protocols)
    begin = None if begins_anew or known else simulated_policy(database, identity)
    if begin is not None:
        begun = begin.stated_band
        if allowed is not None:
            begun = replace(begun, threshold=allowed.threshold)
        return NextRun(None, begin.switch_percent, begun, begin, learns=True)
    if policy is not None:
        job = with_allowed_loss(database, used_job(database, policy, goes_back), allowed)
        band = job.band(TrialStore(database).curves(identity.fingerprint, of_uses=True))
    else:
        job = unused_job(database, identity, goes_back, known).held_to(allowed)
        band = job.policy.band
    percent = job.next_percent(expected_runs)
    is_measured = band is None or band.target_accuracy is not None
    experience = None if is_measured else job.experience()
    return NextRun(
        None if policy is None else job.policy,
        percent,
        band,
        learns=True,
        expected=None if is_measured else job.expected(percent),
        runs_left=max(1, expected_runs - len(job.uses)),
        own_jobs=0 if is_measured or experience is None else experience.jobs,
        allowed=job.policy.allowed,
        goes_back=job.goes_back,
        known_from=known,
        is_first_switch=known is None and job.has_no_second_phase,
    )
