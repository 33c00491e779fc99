"""A later run with a policy, which tells how well the policy does."""

from __future__ import annotations

from dataclasses import dataclass, replace

from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import TrialRecord


@dataclass(frozen=True, slots=True)
class PolicyUse:
    """A whole run with a policy. Study and time of creation name the policy in every database.

    Attributes:
        use_id: Drawn at random before the run began; the same where the run was interrupted and
            went on.
        study: Name of the study that found the policy.
        created_at: Of the policy, ISO 8601, UTC.
        version: Of the policy in the registry that it was taken from.
        record: What the run measured.
    """

    use_id: str
    study: str
    created_at: str
    version: int
    record: TrialRecord

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the job, and so of the policy."""
        return self.record.spec.identity.fingerprint


@dataclass(frozen=True, slots=True)
class NextRun:
    """How a job that is learnt from its runs is trained next.

    Attributes:
        policy: Whose use that run is; None before the first one.
        switch_percent: Of that run, which need not be the policy's.
        band: What it is held against; None before the first run of the first protocol alone.
        retry_percents: Where it switches again if that fails, see `TrialSpec`.
        number: How many runs there were before.
        begins_from: A policy of simulated runs whose switch and target the first real run takes;
            None where the job has runs of its own, or there is no such policy.
    """

    policy: TimingPolicy | None
    switch_percent: float
    band: Band | None
    number: int
    retry_percents: tuple[float, ...] = ()
    begins_from: TimingPolicy | None = None


def whole_use(policy: TimingPolicy, use_id: str, record: TrialRecord) -> PolicyUse | None:
    """A run as a use of its policy; None of a run that came to no end of its own.

    What only the run itself needed is left out.
    """
    is_at_end = record.worker_steps >= policy.total_worker_steps
    if record.stopped_early or not (is_at_end or record.diverged):
        return None
    spec = replace(
        record.spec,
        fork_from=None,
        checkpoint_percents=(),
        checkpoint_directory=None,
        spare_directories=(),
        resume=False,
        kept_checkpoints=None,
        band=None,
        retry_percents=(),
    )
    measured = replace(record, spec=spec, checkpoints={})
    return PolicyUse(use_id, policy.study, policy.created_at, policy.version, measured)
