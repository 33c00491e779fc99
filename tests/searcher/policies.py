"""A test tool: policies in databases, each found by a search of its own."""

from __future__ import annotations

from typing import Any

from syncswitch.storage.database.engine import open_database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.flat import flat
from syncswitch.storage.records.job import ScheduledJob
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.trials.store import TrialStore
from tests.records import changed
from tests.storage.conftest import IDENTITY, POLICY, SEARCH


def policy_of(identity: ScheduledJob, **changes: Any) -> TimingPolicy:
    """A policy of this job."""
    study = f"search-{identity.fingerprint[:8]}-{identity.momentum_after_switch}"
    return changed(
        POLICY, **{**flat(identity.job.key), **flat(identity.protocols), "study": study, **changes}
    )


def published(
    url: str, identity: ScheduledJob = IDENTITY, reference: str = "digits", **changes: Any
) -> TimingPolicy:
    """Puts it into a database; returns it with its version."""
    policy = policy_of(identity, **changes)
    search = changed(
        SEARCH, study=policy.study, fingerprint=policy.job.fingerprint, **flat(policy.protocols)
    )
    with open_database(url, create=True) as database:
        TrialStore(database).register(identity, reference, search)
        return PolicyRegistry(database).publish(policy)
