"""Finds the policies of other jobs that say something about a job."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlalchemy import select

from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import SyncSwitchError
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.policies.rows import CURRENT
from syncswitch.storage.policies.schema import LARGEST_INTEGER
from syncswitch.storage.policies.similarity import (
    LARGEST_SIZE_RATIO,
    REAL,
    Candidate,
    JobFacts,
    differences,
    is_related,
    nearest,
    not_compared,
    ranked,
)
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.tables.policies import PolicyAliasRow, PolicyRow
from syncswitch.storage.tables.trials import WorkloadRow
from syncswitch.storage.trials.workloads import read_workloads, registered_workload

_MOST_RELATED = 8


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A policy that was found for something else.

    Attributes:
        differences: In words: in what its job differs, what matters most first, and at the end
            what could not be compared.
    """

    policy: TimingPolicy
    identity: WorkloadIdentity
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _CurrentPolicy:
    """What the alias `current` of a workload points at."""

    identity: WorkloadIdentity
    candidate: Candidate
    switch_percent: float


def known_facts(
    database: Database,
    workload: str,
    *,
    workers: int | None = None,
    protocols: tuple[str, str] | None = None,
) -> JobFacts | None:
    """What is known of a workload that somebody asks for; None without even a size of the cluster.

    Of a name that is registered, most is known, from the row that is most like what was asked for,
    that of a real cluster before that of a simulated one; of another name, only the arguments, and
    that a real cluster is meant.
    """
    with database.session(read_only=True) as session:
        identities = [known.identity for known in read_workloads(session, workload)]

    def fits(identity: WorkloadIdentity) -> tuple[bool, bool, bool]:
        pair = (identity.first_protocol, identity.second_protocol)
        is_real = identity.simulated_cluster is None
        return identity.workers == workers, pair == protocols, is_real

    if identities:
        facts = JobFacts.of(max(identities, key=fits))  # of equals the newest, which is first
    elif workers is not None:
        facts = JobFacts(workers=workers, simulated_cluster=REAL)
    else:
        return None
    if workers is not None:
        facts = replace(facts, workers=workers)
    if protocols is not None:
        facts = replace(facts, first_protocol=protocols[0], second_protocol=protocols[1])
    return facts


def suggest(database: Database, wanted: JobFacts) -> Suggestion | None:
    """The current policy of the nearest known workload; None where none is comparable."""
    found = nearest(
        wanted, [known.candidate for known in _current_policies(database, wanted.workers)]
    )
    if found is None:
        return None
    entry = PolicyRegistry(database).entry(found.fingerprint, found.version)
    assert entry is not None  # a version is never removed
    return Suggestion(entry.policy, entry.identity, _in_words(wanted, found.facts))


def related_switches(database: Database, identity: WorkloadIdentity) -> tuple[float, ...]:
    """Where related jobs switch, as their current policies say: a first guess for a search.

    What is related says `is_related`; a job's own policy of an earlier search counts, too. Percents
    of W, the most similar job's first, 8 at most; one may come several times.
    """
    known = [
        policy
        for policy in _current_policies(database, identity.workers)
        if is_related(identity, policy.identity)
    ]
    percents = {policy.candidate.fingerprint: policy.switch_percent for policy in known}
    candidates = ranked(JobFacts.of(identity), [policy.candidate for policy in known])
    return tuple(percents[found.fingerprint] for found in candidates[:_MOST_RELATED])


def nearest_hint(url: str, identity: WorkloadIdentity) -> str:
    """The end of a sentence that names the nearest policy; empty where there is none to name.

    It only adds to an error, so a database that is missing or lost is no error of its own.
    """
    try:
        with open_database(url, create=False) as database:
            found = suggest(database, JobFacts.of(identity))
    except SyncSwitchError:
        return ""
    if found is None:
        return ""
    policy = found.policy
    return (
        f"; the nearest policy is version {policy.version} of {policy.workload!r} for"
        f" {found.identity.cluster} ({policy.switch_percent:g} %), but:"
        f" {'; '.join(found.differences) or 'nothing known differs'}"
    )


def _current_policies(database: Database, workers: int) -> list[_CurrentPolicy]:
    """Those of clusters that are not too large or small to say anything about this one."""
    query = (
        select(PolicyRow.version, PolicyRow.created_at, PolicyRow.switch_percent, WorkloadRow)
        .join(WorkloadRow, WorkloadRow.fingerprint == PolicyRow.fingerprint)
        .join(
            PolicyAliasRow,
            (PolicyAliasRow.fingerprint == PolicyRow.fingerprint)
            & (PolicyAliasRow.version == PolicyRow.version),
        )
        .where(
            PolicyAliasRow.alias == CURRENT,
            WorkloadRow.workers >= workers / LARGEST_SIZE_RATIO,
            WorkloadRow.workers <= min(workers * LARGEST_SIZE_RATIO, LARGEST_INTEGER),
        )
    )
    found = []
    with database.session(read_only=True) as session:
        for version, created_at, switch_percent, row in session.execute(query):
            identity = registered_workload(row).identity
            candidate = Candidate(JobFacts.of(identity), row.fingerprint, version, created_at)
            found.append(_CurrentPolicy(identity, candidate, switch_percent))
    return found


def _in_words(wanted: JobFacts, known: JobFacts) -> tuple[str, ...]:
    words = differences(wanted, known)
    unknown = not_compared(wanted, known)
    if unknown:
        words.append(f"not known, so not compared: {', '.join(unknown)}")
    return tuple(words)
