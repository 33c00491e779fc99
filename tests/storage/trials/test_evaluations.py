"""Curves go into the database and come back as they were, on each kind of database."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import FatalError
from syncswitch.storage.records.trial import Evaluation
from syncswitch.storage.tables.trials import TRIALS
from syncswitch.storage.trials.evaluations import add_evaluations, read_evaluations
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Owner
from tests.storage.conftest import IDENTITY, OTHER_IDENTITY, RECORD, SEARCH, both_databases

pytestmark = both_databases

CURVE = [
    Evaluation(0, 0.0, 0.1, 2.3),
    Evaluation(2**40, 1e-300, 1.0, math.inf),
    Evaluation(2**40 + 1, 1e300, 0.1 + 0.2, math.nan),
    Evaluation(2**40 + 2, 1e300, 0.5, 0.25, (("f1", 0.1 + 0.2), ('a "loss", ü', -1e300))),
]


@pytest.fixture
def trial_ids(store: TrialStore) -> list[int]:
    """Two trials without evaluations."""
    for number in range(2):
        store.begin("digits-1", number, RECORD.spec, Owner.current())
    return [trial.trial_id for trial in store.trials()]


def added(database: Database, *curves: tuple[int, list[Evaluation]]) -> None:
    database.write(lambda connection: add_evaluations(connection, curves))


def read(database: Database, trial_id: int) -> list[Evaluation]:
    with database.transaction(read_only=True) as connection:
        return read_evaluations(connection, TRIALS.c.trial_id == trial_id)


def test_curves_come_back_bit_by_bit(database: Database, trial_ids: list[int]) -> None:
    first, second = trial_ids
    added(database, (first, CURVE[::-1]), (second, CURVE[:1]))
    assert repr(read(database, first)) == repr(CURVE)  # a NaN equals nothing
    assert read(database, second) == CURVE[:1]
    whole: list[Any] = [Evaluation(1, 0, 0, 1), Evaluation(2, 1.5, 1, 0.5)]  # numbers
    added(database, (second, whole), (first, []))
    assert read(database, second) == [*CURVE[:1], *whole]
    added(database)


def test_one_impossible_evaluation_and_none_is_added(
    database: Database, trial_ids: list[int]
) -> None:
    for impossible in (
        Evaluation(1, 1.0, math.inf, 0.0),
        Evaluation(1, 1.0, math.nan, 0.0),
        Evaluation(1, -1.0, 0.5, 0.0),
        Evaluation(-1, 1.0, 0.5, 0.0),
        CURVE[0],
    ):
        with pytest.raises(FatalError):
            added(database, (trial_ids[0], [*CURVE, impossible]))
    assert read(database, trial_ids[0]) == []


def test_the_curves_of_a_workload_are_those_of_its_complete_trials(store: TrialStore) -> None:
    assert store.curves(IDENTITY.fingerprint) == {}
    other = replace(SEARCH, study="large", fingerprint=OTHER_IDENTITY.fingerprint)
    store.register(OTHER_IDENTITY, "digits", other)
    store.register(IDENTITY, "digits", replace(SEARCH, study="digits-2"))
    diverged = replace(RECORD, evaluations=(), diverged=True)
    elsewhere = replace(RECORD, spec=replace(RECORD.spec, identity=OTHER_IDENTITY))
    of_first = replace(RECORD, evaluations=tuple(CURVE))
    for study, number, measured in (
        ("digits-1", 1, of_first),
        ("digits-1", 0, RECORD),
        ("digits-1", 2, diverged),
        ("digits-1", 3, None),
        ("large", 0, elsewhere),
        ("digits-2", 0, RECORD),
    ):
        store.begin(study, number, (measured or RECORD).spec, Owner.current())
        if measured is not None:
            store.complete(study, number, measured)
    ids = {
        (trial.origin.study, trial.origin.trial_number): trial.trial_id for trial in store.trials()
    }
    assert repr(store.curves(IDENTITY.fingerprint)) == repr(
        {
            ids["digits-1", 1]: tuple(CURVE),
            ids["digits-1", 0]: RECORD.evaluations,
            ids["digits-1", 2]: (),
            ids["digits-2", 0]: RECORD.evaluations,
        }
    )
    assert store.curves("f" * 64) == {}
    of_one_search = store.curves(IDENTITY.fingerprint, study="digits-2")
    assert of_one_search == {ids["digits-2", 0]: RECORD.evaluations}


def test_the_curves_of_imported_runs_are_among_them(any_filled: Database) -> None:
    store = TrialStore(any_filled)
    (imported, *others) = [trial for trial in store.trials() if trial.origin.source is not None]
    curves = store.curves(imported.job.fingerprint)
    assert list(curves) == [imported.trial_id, *(trial.trial_id for trial in others)]
    assert curves[imported.trial_id] != ()
    assert () in curves.values()  # the one of which only its divergence is known
