"""Asks after the uses of policies in a database, and publishes what they teach."""

from __future__ import annotations

from syncswitch.searcher.learning.job import UsedJob
from syncswitch.searcher.learning.revision import Revision
from syncswitch.searcher.learning.text import why_left
from syncswitch.storage.database.engine import Database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.policies.rows import CURRENT
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.uses.store import uses
from syncswitch.storage.uses.summary import is_counted


def revision_of(database: Database, policy: TimingPolicy) -> Revision | None:
    """Asks whether a version of this database's policies should be left.

    None where it may stay, or is not `current`.
    """
    current = PolicyRegistry(database).aliases(policy.fingerprint).get(CURRENT)
    return used_job(database, policy).revision() if current == policy.version else None


def publish_revision(database: Database, policy: TimingPolicy, revision: Revision) -> TimingPolicy:
    """Publishes the later switch as a new version, and points `current` at it.

    A version is revised once: whoever else does so at the same moment gets the same new version.
    Other aliases stay where they are.

    Raises PolicyError where `current` was moved meanwhile.
    """
    study = f"revision-{policy.fingerprint[:12]}-{policy.version}"
    reason = why_left(policy, revision)
    draft = used_job(database, policy).draft(revision.answer, study, reason)
    return PolicyRegistry(database).publish(draft, replaces=policy.version)


def used_job(database: Database, policy: TimingPolicy) -> UsedJob:
    """A version with the uses of all."""
    counted = (use for use in uses(database, policy.fingerprint) if is_counted(use))
    return UsedJob(policy, tuple(counted))


def stored_version(database: Database, policy: TimingPolicy) -> TimingPolicy | None:
    """A policy of a file as this database has it; None where it does not.

    Its version may be another one there.
    """
    versions = PolicyRegistry(database).policies(workload=policy.fingerprint)
    made = (policy.study, policy.created_at)
    return next((one for one in versions if (one.study, one.created_at) == made), None)
