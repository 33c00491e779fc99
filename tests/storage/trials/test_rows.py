"""Runs that began in advance, and runs that were stopped because nobody needed them any more."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import null, select

from syncswitch.storage import frames
from syncswitch.storage.database.check import database_findings
from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import FatalError
from syncswitch.storage.queries.summaries import switch_point_statistics
from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialRecord
from syncswitch.storage.tables.trials import TRIALS
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import CANCELLED, Fork, StoredTrial
from tests.storage.conftest import RECORD
from tests.storage.filled import OWNER, complete

STUDY = "digits-1"
COST = ("training_seconds", "inherited_seconds", "switch_overhead_seconds")
RESULT = (
    "whole_run_seconds",
    "target_accuracy",
    "time_to_accuracy_seconds",
    "converged_accuracy",
    "converged_evaluations",
    "final_accuracy",
    "converged",
    "diverged",
    "stopped_early",
)


@pytest.fixture
def part() -> TrialRecord:
    """What a trainer gives of a run that was told to stop; it has left things behind."""
    return replace(
        RECORD,
        worker_steps=750,
        checkpoints={50.0: Path("/50.npz")},
        events=(RunEvent("switched", 500, 1.5, "the policy"),),
    )


def stored(store: TrialStore, number: int = 0) -> StoredTrial:
    trial = store.get(STUDY, number)
    assert trial is not None
    return trial


def cancel(store: TrialStore, record: TrialRecord, number: int = 0) -> StoredTrial:
    store.begin(STUDY, number, record.spec, OWNER, speculative=True)
    store.cancel(STUDY, number, record, CANCELLED)
    return stored(store, number)


def test_a_cancelled_run_has_failed_and_keeps_its_cost_without_a_result(
    database: Database, store: TrialStore, part: TrialRecord
) -> None:
    with pytest.raises(FatalError, match="never begun"):
        store.cancel(STUDY, 0, part, CANCELLED)
    trial = cancel(store, part)
    assert (trial.state, trial.failure, trial.end) == ("failed", CANCELLED, "cancelled")
    assert trial.speculative
    for name in (*COST, "worker_steps", "started_at", "ended_at", "host", "software"):
        assert getattr(trial, name) == getattr(part, name), name
    assert trial.paid_seconds == part.paid_seconds == 2.0
    store.set_target(STUDY, 0.1)
    store.cancel(STUDY, 0, part, CANCELLED)  # told twice
    store.fail(STUDY, 0, "late")
    store.heartbeat(STUDY, 0, 999)
    assert stored(store) == trial
    assert [getattr(trial, name) for name in RESULT] == [None] * len(RESULT)
    assert (trial.phases, store.evaluations(STUDY, 0), store.events(STUDY, 0)) == ((), [], [])
    assert store.checkpoints(STUDY) == []
    assert switch_point_statistics(database) == []
    assert len(frames.time_to_accuracy(database, target_accuracy=0.1)) == 0
    assert list(database_findings(database)) == []
    store.complete(STUDY, 0, RECORD)  # a whole result outranks it
    trial = stored(store)
    assert (trial.state, trial.failure, trial.end) == ("complete", None, "stopped")
    assert trial.worker_steps == RECORD.worker_steps
    assert store.evaluations(STUDY, 0) == list(RECORD.evaluations)
    store.cancel(STUDY, 0, replace(part, training_seconds=9.0), CANCELLED)
    assert stored(store) == trial


def test_a_run_that_failed_is_cancelled_with_its_cost_or_begins_anew_without(
    database: Database, store: TrialStore, part: TrialRecord
) -> None:
    complete(store, STUDY, 7, part)
    store.begin(STUDY, 8, part.spec, OWNER, speculative=True)
    store.fail(STUDY, 8, "silent for an hour")
    assert (stored(store, 8).paid_seconds, stored(store, 8).end) == (None, None)
    store.cancel(STUDY, 8, part, CANCELLED)
    assert (stored(store, 8).paid_seconds, stored(store, 8).end) == (2.0, "cancelled")
    store.begin(STUDY, 8, part.spec, OWNER, fork=Fork(7, 50.0))
    trial = stored(store, 8)
    assert (trial.state, trial.failure, trial.end) == ("running", None, None)
    assert [getattr(trial, name) for name in (*COST, "ended_at")] == [None] * 4
    assert (trial.worker_steps, trial.speculative, trial.paid_seconds) == (0, False, None)
    assert trial.host == OWNER.host
    with database.transaction(read_only=True) as connection:
        # JSON has a null of its own, which is another one.
        query = select(TRIALS.c.software.is_not_distinct_from(null())).order_by(TRIALS.c.trial_id)
        assert [bool(found) for found in connection.scalars(query)] == [False, True]


@pytest.mark.parametrize(("inherited", "averaged"), [(0, 2), (2, 4), (9, 5)])
def test_an_accuracy_is_the_mean_of_five_tests_or_of_all(
    store: TrialStore, inherited: int, averaged: int
) -> None:
    before = tuple(Evaluation(10 * n, 0.1, 0.5, 1.0) for n in range(inherited))
    spec = replace(RECORD.spec, inherited_evaluations=before)
    store.begin(STUDY, 0, spec, OWNER)
    store.complete(STUDY, 0, replace(RECORD, spec=spec))
    assert stored(store).converged_evaluations == averaged


def test_an_impossible_cost_changes_nothing(store: TrialStore, part: TrialRecord) -> None:
    store.begin(STUDY, 0, part.spec, OWNER)
    before = stored(store)
    for impossible in (
        replace(part, training_seconds=math.nan),
        replace(part, inherited_seconds=-1.0),
        replace(part, switch_overhead_seconds=math.inf),
        replace(part, worker_steps=-1),
    ):
        with pytest.raises(FatalError, match=r"refuses these values|allowed: from 0 on"):
            store.cancel(STUDY, 0, impossible, CANCELLED)
        assert stored(store) == before
