"""Do Optuna's account of the searches and ours agree, and does anybody still run what runs?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from syncswitch.searcher.search.liveness import is_run_by_anyone
from syncswitch.searcher.search.optuna_storage import missing_study_tables, open_storage, readable
from syncswitch.storage.database.check import RESTORE, Finding, database_findings, listed
from syncswitch.storage.database.engine import Database, examined
from syncswitch.storage.database.inspection import holds_studies, shown
from syncswitch.storage.errors import DatabaseError
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial

_REPAIRED = "nothing; the next `syncswitch-search run` of the same search repairs it"

# Kinds of differences: what they are, in the plural; whether they are a problem; what to do.
_KINDS = {
    "stale": ("runs whose process is dead", False, _REPAIRED),
    "untold": ("runs that Optuna does not know the end of yet", False, _REPAIRED),
    "outranked": (
        "runs that were taken for stale, yet came to an end; they count as cost alone",
        False,
        "nothing",
    ),
    "unrecorded": ("runs that are complete in Optuna's study alone", True, RESTORE),
    "contradiction": ("runs that Optuna's study has other results of", True, RESTORE),
    "study": ("searches with complete runs whose study Optuna does not have", True, RESTORE),
}


def check_database(url: str) -> list[Finding]:
    """Everything there is to say about a database.

    Raises DatabaseError where it cannot be reached, or is missing, foreign or of another revision.
    """
    is_ours, engine = examined(url, may_create=False)
    with Database(url, engine) as database:
        if not is_ours:
            fix = "`syncswitch-search run WORKLOAD` makes them"
            return [Finding("tables", True, "no tables of syncswitch", fix)]
        # Where the database itself is damaged, nothing more can be trusted.
        return list(database_findings(database)) or list(_search_findings(database))


def _search_findings(database: Database) -> Iterator[Finding]:
    place = shown(database.url)
    if missing := missing_study_tables(database.url):
        fix = f"copy the database, then run `syncswitch-search db upgrade --storage {place}`"
        what = listed("parts of Optuna's tables that were not made", missing)
        yield Finding("studies", True, what, fix)
        return
    found = defaultdict(list)
    try:
        with readable(database.url):
            for kind, name in _differences(database):
                found[kind].append(name)
    except DatabaseError as error:
        yield Finding("values", True, str(error), RESTORE)
    for kind, (what, is_problem, fix) in _KINDS.items():
        if names := found[kind]:
            yield Finding(kind, is_problem, listed(what, names), fix)


def _differences(database: Database) -> Iterator[tuple[str, str]]:
    """Kind, and the run or the search, one search at a time."""
    store = TrialStore(database)
    with database.engine.connect() as connection:
        # Where Optuna has no tables, none are made.
        storage = open_storage(database.url) if holds_studies(connection) else None
    studies = {study.study_name for study in storage.get_all_studies()} if storage else set()
    for search in store.searches():
        rows = store.numbered(search.study)
        for number, row in rows.items():
            if row.state == TrialState.RUNNING and not is_run_by_anyone(row):
                yield "stale", f"run {number} of {search.study}"
        if storage is not None and search.study in studies:
            study_id = storage.get_study_id_from_name(search.study)
            trials = storage.get_all_trials(study_id, deepcopy=False)
            for kind, number in _mismatches(rows, trials):
                yield kind, f"run {number} of {search.study}"
        elif any(row.state == TrialState.COMPLETE for row in rows.values()):
            yield "study", search.study


def _mismatches(
    rows: Mapping[int, StoredTrial], trials: Iterable[FrozenTrial]
) -> Iterator[tuple[str, int]]:
    """Kind and number of each run of which our account differs from Optuna's."""
    for trial in trials:
        row = rows.get(trial.number)
        state = row.state if row is not None else None
        if trial.state == OptunaState.COMPLETE:
            if row is None or state != TrialState.COMPLETE:
                yield "unrecorded", trial.number
            elif (trial.value, bool(trial.user_attrs.get("diverged"))) != (
                row.converged_accuracy,
                bool(row.diverged),
            ):
                yield "contradiction", trial.number
        elif trial.state == OptunaState.RUNNING and state in {
            TrialState.COMPLETE,
            TrialState.FAILED,
        }:
            yield "untold", trial.number
        elif trial.state == OptunaState.FAIL and state == TrialState.COMPLETE:
            yield "outranked", trial.number
