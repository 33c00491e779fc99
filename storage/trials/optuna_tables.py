"""Facts about a search that Optuna's tables hold and ours do not; only reads."""

from __future__ import annotations

from sqlalchemy import String, and_, cast, column, func, select, table

from syncswitch.storage.database.engine import Database
from syncswitch.storage.database.inspection import holds_studies

_STUDIES = table("studies", column("study_id"), column("study_name"))
_TRIALS = table("trials", column("trial_id"), column("study_id"), column("number"), column("state"))
_VALUES = table(
    "trial_intermediate_values",
    column("trial_id"),
    column("step"),
    column("intermediate_value"),
)


def running_accuracies(database: Database, study: str) -> dict[int, float]:
    """The last test accuracy of each running trial, by its number; ours have complete ones alone.

    A trial that was not tested yet is left out.
    """
    # On a server the state is an enumeration of Optuna's.
    is_running = cast(_TRIALS.c.state, String) == "RUNNING"
    last = (
        select(_VALUES.c.trial_id, func.max(_VALUES.c.step).label("step"))
        .group_by(_VALUES.c.trial_id)
        .join(_TRIALS, _TRIALS.c.trial_id == _VALUES.c.trial_id)
        .join(_STUDIES, _STUDIES.c.study_id == _TRIALS.c.study_id)
        .where(_STUDIES.c.study_name == study, is_running)
        .subquery()
    )
    query = (
        select(_TRIALS.c.number, _VALUES.c.intermediate_value)
        .join(_TRIALS, _TRIALS.c.trial_id == _VALUES.c.trial_id)
        .join(last, and_(last.c.trial_id == _VALUES.c.trial_id, last.c.step == _VALUES.c.step))
    )
    with database.transaction(read_only=True) as connection:
        if not holds_studies(connection):
            return {}
        return {
            number: accuracy
            for number, accuracy in connection.execute(query)
            if accuracy is not None  # what is not finite
        }


def given_up_trials(database: Database, study: str) -> set[int]:
    """Numbers of the trials that a search has as failed, and never counts.

    One may be complete in our tables all the same: its searcher was silent for so long that others
    took it for dead, and made the run again.
    """
    query = (
        select(_TRIALS.c.number)
        .join(_STUDIES, _STUDIES.c.study_id == _TRIALS.c.study_id)
        .where(_STUDIES.c.study_name == study, cast(_TRIALS.c.state, String) == "FAIL")
    )
    with database.transaction(read_only=True) as connection:
        return set(connection.scalars(query)) if holds_studies(connection) else set()
