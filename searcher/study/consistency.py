"""Do Optuna's account of the searches and ours agree, and does anybody still run what runs?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import optuna
from optuna.trial import FrozenTrial, TrialState

from syncswitch.searcher.study.liveness import is_run_by_anyone
from syncswitch.searcher.study.tables import missing_study_tables, open_storage, readable
from syncswitch.storage.audit.check import Finding, is_readable, listed, storage_findings
from syncswitch.storage.database.engine import Database, examined
from syncswitch.storage.database.inspection import holds_studies, shown
from syncswitch.storage.errors import DatabaseError
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial

_REPAIRED = "nothing; the next `syncswitch-search run` of the same search repairs it"
_RESTORE = "restore the database from a copy"

# Kinds of differences: what they are, in the plural; whether they are a problem; what to do.
_KINDS = {
    "lost": ("runs whose process is dead", False, _REPAIRED),
    "untold": ("runs that Optuna does not know the end of yet", False, _REPAIRED),
    "outranked": (
        "runs that were taken for lost, yet came to an end; they count as cost alone",
        False,
        "nothing",
    ),
    "unrecorded": ("runs that are complete in Optuna's study alone", True, _RESTORE),
    "contradiction": ("runs that Optuna's study has other results of", True, _RESTORE),
    "study": ("searches with complete runs whose study Optuna does not have", True, _RESTORE),
}


def check_database(url: str) -> list[Finding]:
    """Everything there is to say about a database.

    Raises:
        DatabaseError: It cannot be reached, or is missing, foreign or newer.
    """
    content, engine = examined(url, may_create=False)
    with Database(url, engine) as database:
        findings = list(storage_findings(database, content))
        if is_readable(findings):
            findings.extend(_search_findings(database))
    return findings


def differences(
    rows: Mapping[int, StoredTrial], trials: Iterable[FrozenTrial]
) -> Iterator[tuple[str, int]]:
    """Kind and number of each run of a search of which the two accounts differ.

    Args:
        rows: Ours, by number.
        trials: Optuna's.
    """
    for trial in trials:
        row = rows.get(trial.number)
        state = row.state if row is not None else None
        if trial.state == TrialState.COMPLETE:
            if row is None or state != "complete":
                yield "unrecorded", trial.number
            elif not _agrees(row, trial):
                yield "contradiction", trial.number
        elif trial.state == TrialState.RUNNING and state in {"complete", "failed"}:
            yield "untold", trial.number
        elif trial.state == TrialState.FAIL and state == "complete":
            yield "outranked", trial.number


def _agrees(row: StoredTrial, trial: FrozenTrial) -> bool:
    told = trial.value, bool(trial.user_attrs.get("diverged"))
    return told == (row.converged_accuracy, bool(row.diverged))


def _search_findings(database: Database) -> Iterator[Finding]:
    place = shown(database.url)
    missing = missing_study_tables(database.url)
    if missing:
        what = listed("parts of Optuna's tables that were not made", missing, len(missing))
        fix = f"copy the database, then run `syncswitch-search db upgrade --storage {place}`"
        yield Finding("studies", True, what, fix)
        return
    found: dict[str, list[str]] = {kind: [] for kind in _KINDS}
    try:
        with readable(database.url):
            for search, kind, name in _named_differences(database):
                found[kind].append(f"{name} of {search}" if name else search)
    except DatabaseError as error:
        yield Finding("values", True, str(error), _RESTORE)
    for kind, (what, is_problem, fix) in _KINDS.items():
        if names := found[kind]:
            yield Finding(kind, is_problem, listed(what, names, len(names)), fix)


def _named_differences(database: Database) -> Iterator[tuple[str, str, str]]:
    """Search, kind and run, one search at a time."""
    store, storage = TrialStore(database), _studies(database)
    known = {study.study_name for study in storage.get_all_studies()} if storage else set()
    for search in store.searches():
        rows = store.numbered(search.study)
        for number, row in rows.items():
            if row.state == "running" and not is_run_by_anyone(row):
                yield search.study, "lost", f"run {number}"
        if storage is not None and search.study in known:
            study_id = storage.get_study_id_from_name(search.study)
            for kind, number in differences(rows, storage.get_all_trials(study_id, deepcopy=False)):
                yield search.study, kind, f"run {number}"
        elif any(row.state == "complete" for row in rows.values()):
            yield search.study, "study", ""


def _studies(database: Database) -> optuna.storages.RDBStorage | None:
    """Optuna's part of the database; None where it has none, and nothing is made."""
    with database.engine.connect() as connection:
        is_there = holds_studies(connection)
    return open_storage(database.url) if is_there else None
