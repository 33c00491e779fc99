"""Publishes what runs have taught: the first policy of a job, and the versions after it."""

from __future__ import annotations

from dataclasses import replace

from syncswitch.searcher.learning.job import JobHistory, Revision
from syncswitch.searcher.learning.lessons import lessons_of, shown_percent, tried_switches
from syncswitch.searcher.learning.reading import known_alone, stored_version, unused_job, used_job
from syncswitch.searcher.learning.words import diverged_words, spread_words
from syncswitch.searcher.search.policy_words import drift_text
from syncswitch.searcher.search.recorded import measured_band
from syncswitch.searcher.strategies.observation import Observation, TrialCost
from syncswitch.searcher.words import measured_threshold_text
from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import Command, CommandHint, OptionHint, Said, UserError
from syncswitch.storage.metrics import seconds_at_pace
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.policies.unmeasured import unmeasured_policy
from syncswitch.storage.records.goal import AllowedLoss
from syncswitch.storage.records.job import ScheduledJob, protocol_text
from syncswitch.storage.records.policy import Measured, TimingPolicy, whole_use
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialRecord
from syncswitch.storage.trials.possible import check_use
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.workloads import register_workload
from syncswitch.storage.uses.summary import use_summary


def first_policy(
    database: Database,
    identity: ScheduledJob,
    reference: str,
    record: TrialRecord,
    begins_from: TimingPolicy | None = None,
    goes_back: bool | None = None,
    allowed: AllowedLoss | None = None,
) -> TimingPolicy | None:
    """Publishes the first run of a job as its policy; None where it was cut short or disturbed.

    It has a target where the first protocol alone did the whole of it, or the rest after a failed
    switch. A run that began from a policy of simulated runs publishes the switch that held in it,
    with the target and band of that policy until the job's own runs replace them. One that diverged
    has shown no more than that. Raises FatalError where no run can have measured this.
    """
    is_disturbed = bool(record.spec.conditions.injections) and begins_from is None
    use = whole_use(unmeasured_policy(identity), "first", record)
    if use is None or is_disturbed:
        return None
    check_use(use)
    began, held = record.spec.switch_percent, record.held_percent
    accuracy = record.converged_accuracy
    steps, phases, diverged = identity.total_worker_steps, record.phases, record.diverged
    shown = shown_percent(held, identity.first_protocol, phases if diverged else ())
    cost = TrialCost(
        paid_seconds=record.training_seconds,
        first_seconds=seconds_at_pace(phases, identity.first_protocol, steps),
        second_seconds=seconds_at_pace(phases, identity.second_protocol, steps),
    )
    tried = tried_switches(record.failed_with(identity.second_protocol), steps)
    trained = Observation(shown, accuracy, diverged, cost=cost)
    lessons = lessons_of(trained, 0, record.spec.seed, tried)
    before = record.spec.band or begins_from
    if allowed is None and before is not None and before.threshold:
        allowed = AllowedLoss(before.threshold)
    known = known_alone(database, identity.fingerprint, identity.protocols)
    job = unused_job(database, identity, goes_back, known, lessons).held_to(allowed)
    blank, seconds = job.policy, record.training_seconds
    percent, promise, band = blank.switch_percent, blank.promise, blank.band
    target = blank.target_accuracy
    if target is None and held == BASELINE_PERCENT and not diverged:
        target = accuracy
        if blank.allowed.is_known:
            band = measured_band(target, blank.threshold, [record.evaluations])
    if begins_from is not None:
        percent = begins_from.switch_percent if diverged else held
        target = begins_from.target_accuracy
        reason = (
            f"begun from version {begins_from.version} for {begins_from.job.workers}"
            f" simulated workers, a switch at {begins_from.switch_percent:g} %"
        )
        promise = replace(promise, reason=reason)
        band = replace(begins_from.stated_band, threshold=blank.threshold)
    elif (answer := job.answer()) is not None:
        percent, target, promise = answer.switch_percent, answer.target_accuracy, answer.promise
    policy = replace(
        blank,
        switch_percent=percent,
        target_accuracy=target,
        promise=promise,
        band=band,
        measured=Measured(
            mean_accuracy=accuracy if held == percent else None,
            training_seconds=seconds if began == held == percent else None,
            baseline_seconds=seconds
            if began == BASELINE_PERCENT
            else blank.measured.baseline_seconds,
        )
        if not diverged
        else Measured(),
    )
    register_workload(database, identity.job, reference)
    return PolicyRegistry(database).publish(policy)


def revise(database: Database, policy: TimingPolicy) -> tuple[Revision, TimingPolicy] | None:
    """Publishes another switch as a new version, if the uses of a policy call for it.

    A version is revised once: whoever else does so at the same moment gets the same new version.
    `current` points at it, other aliases stay. None where the policy may stay, or is not `current`.
    Raises PolicyError if `current` was moved meanwhile.
    """
    if not _is_current(database, policy):
        return None
    job = used_job(database, policy)
    revision = job.revision()
    if revision is None:
        return None
    draft = job.draft(revision)
    return revision, PolicyRegistry(database).publish(draft, replaces=policy.version)


def _is_current(database: Database, policy: TimingPolicy) -> bool:
    current = PolicyRegistry(database).current(policy.job.fingerprint, policy.protocols)
    return current is not None and current.version == policy.version


def after_use(
    database: Database,
    policy: TimingPolicy,
    expected_runs: int | None = None,
    goes_back: bool | None = None,
) -> list[Said]:
    """Reviews a policy after one more recorded use; returns sentences without their full stops.

    Where another switch takes less time and runs learn, it is published, once `expected_runs`
    trainings leave nothing to try. Where they keep to the policy, people are told how to publish
    it. For `goes_back` see `used_job`.
    """
    registry, stored = PolicyRegistry(database), stored_version(database, policy)
    if stored is None:
        return []
    job = used_job(database, stored, goes_back)
    drift = use_summary(stored, job.uses).drift
    words: list[Said] = [] if drift is None else [drift_text(drift)]
    words += spread_words(job)
    if not _is_current(database, stored):
        return words
    if job.uses and job.uses[-1].result.diverged:
        try:
            words.append(diverged_words(job, expected_runs))
        except UserError as error:
            return [*words, error]
    first, metric = protocol_text(stored.protocols.first_protocol), stored.job.metric
    measured, had_target = None, job.stated_target is not None
    if expected_runs is not None:
        measured = job.with_measured_threshold()
    if measured is not None:
        job = replace(job, policy=measured)
        words.append(measured_threshold_text(measured.allowed, metric, first))
    if expected_runs is not None and not had_target:
        curves = TrialStore(database).curves(stored.job.fingerprint, of_uses=True)
        measured = job.with_measured_target(curves) or measured
    if measured is not None:
        stored = registry.publish(measured, replaces=stored.version)
        job = replace(job, policy=stored)
        if not had_target and stored.target_accuracy is not None:
            target = metric.text(stored.target_accuracy)
            words.append(
                f"the target is measured: {first} alone reached {metric.with_article} of {target};"
                f" it is in version {stored.version}, and later runs are compared with it"
            )
    revision = job.revision(expected_runs)
    if revision is None:
        return words
    if expected_runs is None:
        given: list[str | OptionHint] = [
            stored.job.workload,
            OptionHint("workers", stored.job.workers),
        ]
        workload = registry.workload(stored.job.fingerprint)
        if workload is not None and workload.job.simulated_cluster is not None:
            given.append(OptionHint("cluster", "simulated"))
        publish = CommandHint(Command.REVISE, tuple(given), "publish it with:")
        return [*words, UserError(revision.why, remedy=publish)]
    new = registry.publish(job.draft(revision), replaces=stored.version)
    switch = f"a switch at {new.switch_percent:g} %"
    if new.switch_percent == BASELINE_PERCENT:
        switch = f"{protocol_text(new.protocols.first_protocol)} alone"
    return [*words, f"{revision.why}: from now on version {new.version}, {switch}"]


def with_allowed_loss(
    database: Database, job: JobHistory, allowed: AllowedLoss | None
) -> JobHistory:
    """The job in which so much may be lost; a policy with another loss gets a new version."""
    own = None if allowed is None else job.with_allowed(allowed)
    if own is None:
        return job
    published = PolicyRegistry(database).publish(own, replaces=job.policy.version)
    return replace(job, policy=published)
