"""Seeds of uses: the database hands them out, so that no two runs of a job share one."""

from __future__ import annotations

import itertools

from sqlalchemy import Connection, select, update

from syncswitch.storage.database.engine import RESTART_SECONDS, Database
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.tables.trials import TRIALS, WORKLOADS
from syncswitch.storage.trials.workloads import lock_workload, upsert_workload


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
