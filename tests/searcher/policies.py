"""A test tool: policies in databases, each found by a search of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from syncswitch.storage.database.engine import open_database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.flat import flat
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.trials.store import TrialStore
from tests.records import changed
from tests.storage.conftest import IDENTITY, POLICY, SEARCH


def policy_of(identity: WorkloadIdentity, **changes: Any) -> TimingPolicy:
    """A policy of this job."""
    study = f"search-{identity.fingerprint[:8]}"
    return changed(POLICY, **{**flat(identity.key), "study": study, **changes})


def published(
    url: str, identity: WorkloadIdentity = IDENTITY, reference: str = "digits", **changes: Any
) -> TimingPolicy:
    """Puts it into a database; returns it with its version."""
    policy = policy_of(identity, **changes)
    search = replace(SEARCH, study=policy.study, fingerprint=policy.job.fingerprint)
    with open_database(url, create=True) as database:
        TrialStore(database).register(identity, reference, search)
        return PolicyRegistry(database).publish(policy)
