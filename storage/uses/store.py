"""Uses of policies in the database, beside the trials of searches, and their seeds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from syncswitch.storage.database.defaults import RESTART_SECONDS
from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import FatalError, PolicyError
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.policies.unmeasured import first_study
from syncswitch.storage.records.flat import flat
from syncswitch.storage.records.job import Job, Protocols
from syncswitch.storage.records.policy import PolicyUse, TimingPolicy
from syncswitch.storage.tables.base import record_of
from syncswitch.storage.tables.policies import POLICIES
from syncswitch.storage.tables.trials import EVENTS, TRIALS, WORKLOADS
from syncswitch.storage.trials.evaluations import record_target
from syncswitch.storage.trials.possible import check_use
from syncswitch.storage.trials.store import TrialStore, add_parts, result_values
from syncswitch.storage.trials.values import StoredTrial, condition_values
from syncswitch.storage.trials.workloads import lock_workload, upsert_workload
from syncswitch.storage.uses.summary import UseSummary, judged_by, use_summary


def record_use(
    database: Database, use: PolicyUse, *, patience_seconds: float = RESTART_SECONDS
) -> bool:
    """Records a use with all that it measured; returns False if it was recorded before.

    Raises PolicyError if the database lacks its policy, FatalError if a value is impossible.
    """
    check_use(use)
    return database.write(
        lambda connection: _add(connection, use), patience_seconds=patience_seconds
    )


def uses(
    database: Database, fingerprint: str, protocols: Protocols | None = None
) -> list[StoredTrial]:
    """Returns the uses of a job's policies, in the order of their recording.

    With `protocols` only those of runs with these, or with the first one alone.
    """
    return TrialStore(database).trials(fingerprint=fingerprint, protocols=protocols, kinds=("use",))


def chosen_phases(database: Database, policy: TimingPolicy) -> list[str]:
    """Returns what the runs of a job chose as their second phase, and why, as events say it."""
    query = (
        select(EVENTS.c.reason)
        .join(TRIALS, TRIALS.c.trial_id == EVENTS.c.trial_id)
        .where(
            TRIALS.c.fingerprint == policy.job.fingerprint,
            TRIALS.c.use_id.is_not(None),
            EVENTS.c.kind == "chosen",
        )
        .order_by(TRIALS.c.trial_id)
    )
    return [row.reason for row in database.rows(query)]


def uses_of_all(database: Database, versions: Sequence[TimingPolicy]) -> list[UseSummary]:
    """Sums up how well each version does, given all versions of some jobs; reads the uses once."""
    jobs: dict[str, list[StoredTrial]] = {one.job.fingerprint: [] for one in versions}
    only = next(iter(jobs)) if len(jobs) == 1 else None
    for use in TrialStore(database).each_trial(kinds=("use",), fingerprint=only):
        if use.job.fingerprint in jobs:
            jobs[use.job.fingerprint].append(use)
    return [
        use_summary(
            judged_by(policy, versions),
            [use for use in jobs[policy.job.fingerprint] if use.is_with(policy.protocols)],
        )
        for policy in versions
    ]


def uses_of(database: Database, policy: TimingPolicy) -> UseSummary:
    """Sums up how well a version of a policy of this database does."""
    fingerprint = policy.job.fingerprint
    if not policy.threshold:
        policy = judged_by(policy, PolicyRegistry(database).policies(workload=fingerprint))
    return use_summary(policy, uses(database, fingerprint, policy.protocols))


def _add(connection: Connection, use: PolicyUse) -> bool:
    if connection.scalar(select(TRIALS.c.trial_id).where(TRIALS.c.use_id == use.use_id)):
        return False
    policy = _policy_of(connection, use)
    spec = use.record.spec
    values = {
        **flat(spec.identity.protocols),
        "use_id": use.use_id,
        "policy_version": policy.version,
        "fingerprint": use.fingerprint,
        "switch_percent": spec.switch_percent,
        "replicate": 0,
        "seed": spec.seed,
        "speculative": False,
        **condition_values(spec.conditions),
        **result_values(use.record),
    }
    added = insert(TRIALS).values(values).returning(TRIALS.c.trial_id)
    trial_id = connection.execute(added).scalar_one()
    add_parts(connection, trial_id, use.record)
    if policy.target_accuracy is not None:
        record_target(connection, TRIALS.c.trial_id == trial_id, policy.target_accuracy)
    return True


def _policy_of(connection: Connection, use: PolicyUse) -> Row[Any]:
    """The policy of a use, whose version here may differ.

    A run that no database knew a policy of counts for the first one of its job. Raises PolicyError
    without any, and FatalError if the use names a version that this database would have: one that
    came from another database may have had any number there.
    """
    identity = use.record.spec.identity
    name = identity.name
    is_first = use.study == first_study(use.fingerprint, identity.protocols)
    created_at = datetime.fromisoformat(use.created_at).astimezone(timezone.utc)
    of_job = select(POLICIES).where(POLICIES.c.fingerprint == use.fingerprint)
    found = connection.execute(of_job.order_by(POLICIES.c.version)).all()
    exact = [row for row in found if (row.study, row.created_at) == (use.study, created_at)]
    alike = [row for row in found if record_of(Protocols, row) == identity.protocols]
    if not exact and not (is_first and alike):
        if is_first:
            raise PolicyError(
                f"no run of {identity.job.sized_name} is in this database",
                remedy="the next run of this job imports it, or import its policy first",
                code="policy-not-found",
            )
        raise PolicyError(
            f"the policy of {name!r} that study {use.study!r} found at {use.created_at} is not in"
            " this database",
            remedy="import the policy first",
            code="policy-not-found",
        )
    policy = (exact or alike)[0]
    last = found[-1].version
    if policy.imported_at is None and use.version > last:
        raise FatalError(f"version is {use.version}", allowed=f"from 1 to {last}")
    return policy


def hand_out_seed(
    database: Database,
    job: Job,
    reference: str | None = None,
    *,
    patience_seconds: float = RESTART_SECONDS,
) -> int | None:
    """Hands out a seed that no run of the job has, and that nobody else is given.

    A job that the database does not know is registered with its reference; without one there is no
    seed. Raises SyncSwitchError if the database refuses; the class says whether to try again.
    """

    def hand_out(connection: Connection) -> int | None:
        if reference is not None:
            upsert_workload(connection, job, reference)
        row = lock_workload(connection, job.fingerprint)
        if row is None:
            return None
        # The seeds of runs whose users chose their own.
        query = select(TRIALS.c.seed).where(
            TRIALS.c.fingerprint == job.fingerprint, TRIALS.c.seed >= row.next_seed
        )
        taken = set(connection.scalars(query))
        seed: int = next(one for one in itertools.count(row.next_seed) if one not in taken)
        connection.execute(
            update(WORKLOADS)
            .where(WORKLOADS.c.fingerprint == job.fingerprint)
            .values(next_seed=seed + 1)
        )
        return seed

    return database.write(hand_out, patience_seconds=patience_seconds)
