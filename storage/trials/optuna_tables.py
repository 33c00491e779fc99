"""Reads facts about a search that are in Optuna's tables, but not in ours."""

from __future__ import annotations

from sqlalchemy import String, and_, cast, column, func, select, table

from syncswitch.storage.database.engine import Database
from syncswitch.storage.database.inspection import holds_studies

_STUDIES = table("studies", column("study_id"), column("study_name"))
_TRIALS = table("trials", column("trial_id"), column("study_id"), column("number"), column("state"))
_VALUES = table(
    "trial_intermediate_values", column("trial_id"), column("step"), column("intermediate_value")
)


def running_accuracies(database: Database, study: str) -> dict[int, float]:
    """Returns the accuracy of the last test of each running trial by its number.

    A trial that was not tested yet is left out.
    """
    # On a server the state is an enumeration type.
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
            if accuracy is not None  # Optuna's null for a value that is not finite
        }


def given_up_trials(database: Database, study: str) -> set[int]:
    """Returns the numbers of the trials that failed for a search, which never counts them.

    Such a trial may be complete in our tables: its searcher was silent for so long that others took
    it for dead, and made the run again.
    """
    query = (
        select(_TRIALS.c.number)
        .join(_STUDIES, _STUDIES.c.study_id == _TRIALS.c.study_id)
        .where(_STUDIES.c.study_name == study, cast(_TRIALS.c.state, String) == "FAIL")
    )
    with database.transaction(read_only=True) as connection:
        return set(connection.scalars(query)) if holds_studies(connection) else set()
