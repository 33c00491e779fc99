"""Uses of policies in the database, beside the trials of searches; and their seeds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Row, insert, select, update

from syncswitch.storage.database.engine import RESTART_SECONDS, Database
from syncswitch.storage.errors import PolicyError
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import Evaluation
from syncswitch.storage.records.use import PolicyUse
from syncswitch.storage.tables.policies import POLICIES
from syncswitch.storage.tables.trials import TRIALS, WORKLOADS
from syncswitch.storage.trials.evaluations import read_curves, record_target
from syncswitch.storage.trials.rows import add_parts, condition_values, read_trials, result_values
from syncswitch.storage.trials.values import StoredTrial, check_times
from syncswitch.storage.trials.workloads import lock_workload, upsert_workload
from syncswitch.storage.uses.summary import (
    OBSERVED,
    UseObservation,
    UseSummary,
    use_summary,
)

# Of whole trials there would be too much to read.
_OBSERVED: tuple[Column[Any], ...] = tuple(TRIALS.c[name] for name in OBSERVED)


def record_use(
    database: Database, use: PolicyUse, *, patience_seconds: float = RESTART_SECONDS
) -> bool:
    """Records a use with all that it measured; False where it is there already.

    Args:
        database: Has its policy.
        use: Of a whole run.
        patience_seconds: How long to wait for a database that is busy or lost.

    Raises:
        PolicyError: The policy is not in this database.
        FatalError: A value is impossible.
        RetryableError: The database is away.
    """
    check_times(use.record)
    return database.write(
        lambda connection: _add(connection, use), patience_seconds=patience_seconds
    )


def uses(database: Database, fingerprint: str) -> list[StoredTrial]:
    """The uses of all versions of a job's policy, in the order in which they were recorded."""
    with database.transaction(read_only=True) as connection:
        return read_trials(connection, *_uses_of(fingerprint))


def use_curves(database: Database, fingerprint: str) -> dict[int, tuple[Evaluation, ...]]:
    """Evaluations of the uses of a job's policy by `trial_id`, in order."""
    with database.transaction(read_only=True) as connection:
        return read_curves(connection, fingerprint, of_uses=True)


def uses_of(database: Database, policy: TimingPolicy) -> UseSummary:
    """How well a version of a policy of this database does."""
    return use_summary(policy, use_observations(database, policy.fingerprint))


def use_observations(database: Database, fingerprint: str) -> list[UseObservation]:
    """What the uses of all versions show, in the order in which they were recorded.

    Those under disturbances on purpose are left out.
    """
    query = (
        select(*_OBSERVED)
        .where(*_uses_of(fingerprint), TRIALS.c.injections.is_(None))
        .order_by(TRIALS.c.trial_id)
    )
    with database.transaction(read_only=True) as connection:
        return [UseObservation(*values) for values in connection.execute(query)]


def _uses_of(fingerprint: str) -> Sequence[ColumnElement[bool]]:
    return (TRIALS.c.fingerprint == fingerprint, TRIALS.c.use_id.is_not(None))


def _add(connection: Connection, use: PolicyUse) -> bool:
    if connection.scalar(select(TRIALS.c.trial_id).where(TRIALS.c.use_id == use.use_id)):
        return False
    policy = _policy_row(connection, use)
    spec = use.record.spec
    values = {
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
    record_target(connection, TRIALS.c.trial_id == trial_id, policy.target_accuracy)
    return True


def _policy_row(connection: Connection, use: PolicyUse) -> Row[Any]:
    """The policy in this database, where it may have another version than where it comes from."""
    query = select(POLICIES).where(
        POLICIES.c.fingerprint == use.fingerprint,
        POLICIES.c.study == use.study,
        POLICIES.c.created_at == datetime.fromisoformat(use.created_at).astimezone(timezone.utc),
    )
    found = connection.execute(query).one_or_none()
    if found is None:
        raise PolicyError(
            f"the policy of {use.record.spec.identity.name!r} that study {use.study!r} found at"
            f" {use.created_at} is not in this database; take it in first, with:"
            f" syncswitch-search policy import FILE"
        )
    return found


def hand_out_seed(
    database: Database,
    identity: WorkloadIdentity,
    reference: str | None = None,
    *,
    patience_seconds: float = RESTART_SECONDS,
) -> int | None:
    """A seed that no run of the job has, and that nobody else is given.

    Args:
        database: May be in use by others.
        identity: The job.
        reference: Registers the job under it if need be.
        patience_seconds: How long to wait for a database that is busy or lost.

    Returns:
        None where the database does not know the job, and there is no reference.

    Raises:
        SyncSwitchError: The database refused; the class says whether to try again.
    """

    def hand_out(connection: Connection) -> int | None:
        if reference is not None:
            upsert_workload(connection, identity, reference)
        row = lock_workload(connection, identity.fingerprint)
        if row is None:
            return None
        # Those of runs whose user chose one.
        query = select(TRIALS.c.seed).where(
            TRIALS.c.fingerprint == identity.fingerprint, TRIALS.c.seed >= row.next_seed
        )
        taken = set(connection.scalars(query))
        seed: int = next(one for one in itertools.count(row.next_seed) if one not in taken)
        connection.execute(
            update(WORKLOADS)
            .where(WORKLOADS.c.fingerprint == identity.fingerprint)
            .values(next_seed=seed + 1)
        )
        return seed

    return database.write(hand_out, patience_seconds=patience_seconds)
