"""Events and conditions of trials: what the store takes is what it gives back."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError

from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import FatalError
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import RunEvent, TrialRecord
from syncswitch.storage.tables.trials import EVENTS
from syncswitch.storage.trials.rows import condition_values, conditions_of, storable_text
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Owner
from tests.storage.conftest import both_databases

pytestmark = both_databases

STUDY = "digits-1"
OWNER = Owner("host-1", 4321, 1_700_000_000.25)
CONDITIONS = RunConditions("greedy", "restart", ("kill:worker=1,at=30%", "hang:ps,at=30%"))
EVENT = RunEvent("lost", 250, 0.75, "worker 2 was silent for 10 s", worker=2, seconds=10.5)

injections = st.lists(st.text("abc=,:%; ", min_size=1).filter(lambda text: "; " not in text))


def complete(store: TrialStore, number: int, record: TrialRecord) -> None:
    store.begin(STUDY, number, record.spec, OWNER)
    store.complete(STUDY, number, record)


@given(
    st.sampled_from(["none", "elastic"]),
    st.sampled_from(["hot", "restart"]),
    injections,
)
def test_conditions_survive_their_columns(online: str, mechanism: str, texts: list[str]) -> None:
    conditions = RunConditions(online, mechanism, tuple(texts))
    try:
        values = condition_values(conditions)
    except FatalError:  # nothing that anybody could tell apart again
        joined = "; ".join(texts)
        assert tuple(joined.split("; ")) != conditions.injections
    else:
        assert conditions_of(**values) == conditions  # type: ignore[arg-type]


def test_the_default_conditions_are_the_default_of_the_columns() -> None:
    values = condition_values(RunConditions())
    assert values == {
        "online": "none",
        "switch_mechanism": "hot",
        "injections": None,
    }


@given(st.text())
def test_every_text_can_be_stored(text: str) -> None:
    kept = storable_text(text)
    assert "\0" not in kept
    assert kept.encode().decode() == kept
    assert len(kept) == len(text)


def test_injections_that_cannot_be_told_apart_are_refused(
    store: TrialStore, record: TrialRecord
) -> None:
    for texts in (("a; b",), ("",), ("a", "b; c")):
        spec = replace(record.spec, conditions=RunConditions("none", "hot", texts))
        with pytest.raises(FatalError, match="told apart"):
            store.begin(STUDY, 0, spec, OWNER)
    assert store.trials() == []


def test_conditions_are_known_from_the_beginning(store: TrialStore, record: TrialRecord) -> None:
    store.begin(STUDY, 0, replace(record.spec, conditions=CONDITIONS), OWNER)
    store.begin(STUDY, 1, record.spec, OWNER)
    assert [trial.conditions for trial in store.trials()] == [CONDITIONS, RunConditions()]


def test_events_are_kept_in_their_order(store: TrialStore, record: TrialRecord) -> None:
    again = replace(EVENT, kind="returned", worker=None, seconds=None)
    events = (again, EVENT, replace(EVENT, reason="no file caf\udce9\0.npz"))
    complete(store, 0, replace(record, events=events))
    complete(store, 1, record)
    kept = [again, EVENT, replace(EVENT, reason="no file caf??.npz")]
    assert store.events(STUDY, 0) == kept
    assert store.events(STUDY, 1) == store.events(STUDY, 2) == []
    store.complete(STUDY, 0, replace(record, events=(EVENT,)))  # told twice
    assert store.events(STUDY, 0) == kept


def test_a_run_that_starts_anew_has_only_what_is_its_own(
    store: TrialStore, record: TrialRecord
) -> None:
    store.begin(STUDY, 0, replace(record.spec, conditions=CONDITIONS), OWNER)
    store.fail(STUDY, 0, "the server was lost")
    assert store.events(STUDY, 0) == []
    complete(store, 0, replace(record, events=(EVENT,)))
    (trial,) = store.trials()
    assert trial.conditions == RunConditions()
    assert store.events(STUDY, 0) == [EVENT]


def test_an_impossible_event_keeps_the_whole_result_out(
    store: TrialStore, record: TrialRecord
) -> None:
    store.begin(STUDY, 0, record.spec, OWNER)
    for impossible in (
        replace(EVENT, elapsed_seconds=math.nan),
        replace(EVENT, elapsed_seconds=-1.0),
        replace(EVENT, seconds=math.inf),
        replace(EVENT, worker_step=-1),
        replace(EVENT, worker=-1),
    ):
        with pytest.raises(FatalError, match=r"refuses these values|allowed: from 0 on"):
            store.complete(STUDY, 0, replace(record, events=(EVENT, impossible)))
    (trial,) = store.trials()
    assert trial.state == "running"
    assert (store.events(STUDY, 0), store.evaluations(STUDY, 0)) == ([], [])


def test_the_database_itself_refuses_an_impossible_event(
    database: Database, store: TrialStore, record: TrialRecord
) -> None:
    complete(store, 0, record)
    (trial,) = store.trials()
    values = {"trial_id": trial.trial_id, **asdict(EVENT)}

    def add(**changes: int) -> None:
        with database.engine.begin() as connection:
            connection.execute(insert(EVENTS).values({**values, **changes}))

    names = ("position", "worker_step", "elapsed_seconds", "worker", "seconds")
    for position, name in enumerate(names):
        with pytest.raises(IntegrityError, match=f"ck_syncswitch_events_{name}"):
            add(**{"position": position, name: -1})
        add(**{"position": position, name: 0})
