"""Later runs with a policy, which show how well it does."""

from __future__ import annotations

from dataclasses import dataclass, replace

from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import TrialRecord, TrialSpec


@dataclass(frozen=True, slots=True)
class PolicyUse:
    """A whole run with a policy. Study and time of creation name the policy in every database.

    Attributes:
        use_id: Random identifier, drawn before the run began; a run that was interrupted keeps it
            when it goes on.
        study: Name of the study that found the policy.
        created_at: Time of the policy's creation, ISO 8601, UTC.
        version: Version of the policy in the registry that it was taken from.
        record: The measurements of the run.
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


def whole_use(policy: TimingPolicy, use_id: str, record: TrialRecord) -> PolicyUse | None:
    """Makes a use of a run with a policy; None if the run came to no end of its own.

    The parts of its specification that only the run itself needed are left out.
    """
    is_at_end = record.worker_steps >= policy.total_worker_steps
    if record.stopped_early or not (is_at_end or record.diverged):
        return None
    kept = (
        "identity",
        "switch_percent",
        "seed",
        "replicate",
        "conditions",
        "inherited_evaluations",
    )
    spec = TrialSpec(**{name: getattr(record.spec, name) for name in kept})
    measured = replace(record, spec=spec, checkpoints={})
    return PolicyUse(use_id, policy.study, policy.created_at, policy.version, measured)
