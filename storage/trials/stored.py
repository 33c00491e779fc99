"""Trials from their rows; as plain rows, of which a database may have 100,000."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from syncswitch.storage.records.trial import PhaseRecord
from syncswitch.storage.tables.trials import PhaseRow, TrialRow, WorkloadRow
from syncswitch.storage.trials.events import conditions_of
from syncswitch.storage.trials.values import StoredTrial

_OF_WORKLOAD = {
    "workload": WorkloadRow.name,
    "workers": WorkloadRow.workers,
    "simulated_cluster": WorkloadRow.simulated_cluster,
    "first_protocol": WorkloadRow.first_protocol,
    "second_protocol": WorkloadRow.second_protocol,
    "total_worker_steps": WorkloadRow.total_worker_steps,
}
_JOINED = {"phases", "conditions"}
_FIELDS = [name for name in StoredTrial.__dataclass_fields__ if name not in _JOINED]
_COLUMNS = [
    _OF_WORKLOAD[name] if name in _OF_WORKLOAD else getattr(TrialRow, name) for name in _FIELDS
]
_CONDITIONS = (TrialRow.online, TrialRow.switch_mechanism, TrialRow.injections)
_PHASE_COLUMNS = [getattr(PhaseRow, name) for name in PhaseRecord.__dataclass_fields__]


def read_trials(session: Session, *conditions: ColumnElement[bool]) -> list[StoredTrial]:
    """Trials in the order in which they began.

    Args:
        session: Reads.
        conditions: On the columns of trials and of their workloads.
    """
    phases: dict[int, list[PhaseRecord]] = defaultdict(list)
    query = (
        select(PhaseRow.trial_id, *_PHASE_COLUMNS)
        .join(TrialRow, TrialRow.trial_id == PhaseRow.trial_id)
        .join(TrialRow.workload)
        .where(*conditions)
        .order_by(PhaseRow.trial_id, PhaseRow.position)
    )
    for trial_id, *values in session.execute(query):
        phases[trial_id].append(PhaseRecord(*values))
    trials = select(*_CONDITIONS, *_COLUMNS).join(TrialRow.workload).where(*conditions)
    found = []
    for online, mechanism, injections, *row in session.execute(trials.order_by(TrialRow.trial_id)):
        fields = dict(zip(_FIELDS, row, strict=True))
        found.append(
            StoredTrial(
                phases=tuple(phases.get(fields["trial_id"], ())),
                conditions=conditions_of(online, mechanism, injections),
                **fields,
            )
        )
    return found
