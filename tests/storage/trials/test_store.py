from __future__ import annotations

import itertools
import math
import multiprocessing
import os
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import null, select

from syncswitch.storage import frames
from syncswitch.storage.columns import ConditionColumns
from syncswitch.storage.database.check import database_findings
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import FatalError
from syncswitch.storage.policies.registry import CURRENT, PolicyRegistry
from syncswitch.storage.queries.summaries import switch_point_statistics
from syncswitch.storage.records.flat import flat, nested
from syncswitch.storage.records.job import RunConditions, SearchInfo
from syncswitch.storage.records.trial import Evaluation, PhaseRecord, RunEvent, TrialRecord
from syncswitch.storage.tables.trials import TRIALS
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import (
    CANCELLED,
    Fork,
    Owner,
    StoredCheckpoint,
    condition_values,
    conditions_of,
)
from tests.failing import fails
from tests.records import changed
from tests.storage.conftest import (
    IDENTITY,
    OTHER_IDENTITY,
    POLICY,
    RECORD,
    SEARCH,
    AtOnce,
    both_databases,
)
from tests.storage.filled import complete

pytestmark = both_databases


STUDY = "digits-1"
OWNER = Owner("host-1", 4321, 1_700_000_000.25)
MEASURED = (
    "converged_accuracy",
    "final_accuracy",
    "converged",
    "diverged",
    "stopped_early",
    "training_seconds",
    "inherited_seconds",
    "switch_overhead_seconds",
)


def test_a_search_is_registered_once_and_brought_up_to_date(store: TrialStore) -> None:
    assert store.register(IDENTITY, "digits", SEARCH) == SEARCH
    later = replace(SEARCH, halvings=9, target_accuracy=0.75)
    assert store.register(changed(IDENTITY, name="figures"), "job.py:figures", later) == later
    for name in ("figures", "job.py:figures", None):
        assert store.searches(workload=name) == [later]
    assert store.searches(workload="digits") == []
    other = replace(SEARCH, fingerprint=OTHER_IDENTITY.fingerprint)
    with fails("database-foreign"):
        store.register(OTHER_IDENTITY, "digits", other)
    with pytest.raises(FatalError, match="another workload"):
        store.register(OTHER_IDENTITY, "digits", SEARCH)
    assert store.searches() == [later]


def test_a_trial_that_began_has_its_spec_and_owner(store: TrialStore) -> None:
    before = datetime.now(timezone.utc)
    owner = Owner.current()
    assert owner == Owner.current()
    assert (owner.process_id, owner.process_started_at < time.time()) == (os.getpid(), True)
    store.begin(STUDY, 0, replace(RECORD.spec, conditions=CONDITIONS), owner)
    store.begin(STUDY, 1, RECORD.spec, owner)
    trial = store.get(STUDY, 0)
    assert (trial.origin.study, trial.origin.trial_number, trial.state) == (STUDY, 0, "running")
    assert (trial.job.workload, trial.job.workers, trial.total_worker_steps) == ("digits", 4, 1000)
    assert trial.job.fingerprint == IDENTITY.fingerprint
    assert (trial.switch_percent, trial.seed, trial.replicate) == (50.0, 11, 2)
    assert (trial.owner, trial.conditions) == (owner, CONDITIONS)
    assert store.get(STUDY, 1).conditions == RunConditions()
    assert before <= trial.started_at == trial.heartbeat_at <= datetime.now(timezone.utc)
    assert (trial.ended_at, trial.failure, trial.phases, trial.worker_steps) == (None, None, (), 0)
    assert [flat(trial)[name] for name in MEASURED] == [None] * len(MEASURED)
    store.heartbeat(STUDY, 0, 250)
    assert store.get(STUDY, 0).worker_steps == 250
    assert store.get(STUDY, 0).heartbeat_at > trial.heartbeat_at
    for study, spec in (
        ("no such study", RECORD.spec),
        (STUDY, replace(RECORD.spec, identity=OTHER_IDENTITY)),
    ):
        with pytest.raises(FatalError, match="registered"):
            store.begin(study, 0, spec, owner)


def test_a_complete_trial_stays_as_it_is(store: TrialStore) -> None:
    with pytest.raises(FatalError, match="never begun"):
        store.complete(STUDY, 0, RECORD)
    add(store, 0, replace(RECORD, events=(EVENT,)))
    expected = store.get(STUDY, 0)
    others = left(0, 12.5).checkpoints
    changed = replace(RECORD, converged_accuracy=0.1, evaluations=(), checkpoints=others)
    store.complete(STUDY, 0, changed)
    store.heartbeat(STUDY, 0, 1)
    store.fail(STUDY, 0, "late")
    assert (store.get(STUDY, 0), store.checkpoints(STUDY)) == (expected, [])
    assert (store.evaluations(STUDY, 0), store.events(STUDY, 0)) == ([*RECORD.evaluations], [EVENT])
    with pytest.raises(FatalError, match="already complete"):
        store.begin(STUDY, 0, RECORD.spec, OWNER)


def test_a_failed_trial_says_why_and_may_begin_anew(store: TrialStore) -> None:
    store.begin(STUDY, 0, replace(RECORD.spec, conditions=CONDITIONS), OWNER)
    store.fail(STUDY, 0, "no file caf\udce9\0.npz")
    failed = store.get(STUDY, 0)
    assert (failed.state, failed.failure) == ("failed", "no file caf??.npz")
    assert failed.ended_at is not None
    store.begin(STUDY, 0, RECORD.spec, replace(OWNER, process_id=1))
    again = store.get(STUDY, 0)
    assert (again.state, again.failure, again.ended_at) == ("running", None, None)
    assert (again.process_id, again.conditions) == (1, RunConditions())


def test_an_impossible_result_changes_nothing(store: TrialStore) -> None:
    store.begin(STUDY, 0, RECORD.spec, OWNER)
    for wrong in (
        {"evaluations": (RECORD.evaluations[0], RECORD.evaluations[0])},
        {"converged_accuracy": math.inf},
        {"training_seconds": math.nan},
        {"inherited_seconds": math.inf},
        {"evaluations": (Evaluation(1, math.nan, 0.5, 0.5),)},
        {"evaluations": (Evaluation(1, 1.0, math.nan, 0.5),)},
        {"phases": (PhaseRecord("bsp", 0, 3, math.inf, 0.0, 0),)},
        {"phases": (PhaseRecord("bsp", 9, 3, 1.0, 0.0, 0),)},
        {"events": (EVENT, replace(EVENT, elapsed_seconds=math.nan))},
        {"events": (EVENT, replace(EVENT, elapsed_seconds=-1.0))},
        {"events": (EVENT, replace(EVENT, seconds=math.inf))},
        {"events": (EVENT, replace(EVENT, worker_step=-1))},
        {"events": (EVENT, replace(EVENT, worker=-1))},
        {"checkpoints": {50.0: Path("/50.npz"), -0.1: Path("/-0.npz")}},
        {"checkpoints": {50.0: Path("/50.npz"), 100.1: Path("/100.npz")}},
    ):
        with pytest.raises(FatalError, match=r"refuses these values|allowed: from 0 on"):
            store.complete(STUDY, 0, replace(RECORD, **wrong))
    assert (store.get(STUDY, 0).state, store.get(STUDY, 0).phases) == ("running", ())
    assert store.events(STUDY, 0) == store.evaluations(STUDY, 0) == store.checkpoints(STUDY) == []


def test_trials_are_selected_and_stand_in_the_order_of_their_beginning(store: TrialStore) -> None:
    other = changed(SEARCH, study="other", fingerprint=OTHER_IDENTITY.fingerprint)
    store.register(changed(OTHER_IDENTITY, name="large"), "large", other)
    store.begin(STUDY, 4, RECORD.spec, OWNER)
    store.begin("other", 0, replace(RECORD.spec, identity=OTHER_IDENTITY), OWNER)
    store.begin(STUDY, 1, RECORD.spec, OWNER)

    def found(**selection: str) -> list[tuple[str, int]]:
        return [
            (trial.origin.study, trial.origin.trial_number) for trial in store.trials(**selection)
        ]

    assert found() == [(STUDY, 4), ("other", 0), (STUDY, 1)]
    assert found(study=STUDY) == found(workload="digits") == [(STUDY, 4), (STUDY, 1)]
    assert found(fingerprint=OTHER_IDENTITY.fingerprint) == [("other", 0)]
    assert found(workload=OTHER_IDENTITY.fingerprint[:8]) == [("other", 0)]
    assert found(workload="large", study=STUDY) == []
    assert store.searches() == [SEARCH, other]


EVENT = RunEvent("lost", 250, 0.75, "worker 2 was silent for 10 s", worker=2, seconds=10.5)
LARGE = replace(
    RECORD,
    spec=replace(RECORD.spec, switch_percent=0.1 + 0.2, seed=-(2**63)),
    worker_steps=2**62,
    evaluations=(Evaluation(0, 0.0, 0.0, -math.inf), Evaluation(2**62, 1e9, 0.1 + 0.2, math.nan)),
    phases=(
        PhaseRecord("bsp", 0, 2**61, 1e9, 0.1 + 0.2, 2**31 - 1),
        PhaseRecord("asp", 2**61, 2**62, 0.0, 1e6, 0),
    ),
    events=(RunEvent("rebuilt", 2**62, 1e9, "ä\n", 2**31 - 1, 0.0), replace(EVENT, seconds=None)),
    converged_accuracy=0.1 + 0.2,
    converged=False,
    stopped_early=False,
    training_seconds=1e9 + 0.1,
    inherited_seconds=1e9 - 0.1,
    started_at=datetime(2000, 1, 1, 0, 0, 0, 1, timezone.utc),
    ended_at=datetime(2100, 1, 1, tzinfo=timezone.utc),
)
EMPTY = replace(RECORD, evaluations=(), phases=(), diverged=True, converged_accuracy=0.0)


@pytest.mark.parametrize("record", [RECORD, LARGE, EMPTY], ids=["usual", "large", "empty"])
def test_every_record_survives(store: TrialStore, record: TrialRecord) -> None:
    add(store, 0, record)
    trial = store.get(STUDY, 0)
    assert (trial.switch_percent, trial.seed) == (record.spec.switch_percent, record.spec.seed)
    for name in (*MEASURED, "worker_steps", "started_at", "ended_at"):
        assert flat(trial)[name] == getattr(record, name), name
    assert trial.phases == record.phases
    assert store.events(STUDY, 0) == list(record.events)
    # The text form, as NaN does not equal itself.
    assert repr(store.evaluations(STUDY, 0)) == repr(list(record.evaluations))


def test_what_is_registered_again_keeps_its_options(store: TrialStore) -> None:
    options = {"shares": (0.5, 1), "is_warm": True, "from": None, "name": "ä\0", "tiny": 1e-300}
    first = replace(SEARCH, study="new", options=options)
    known = replace(first, options={**options, "shares": [0.5, 1]})  # JSON knows lists alone
    registered = store.register(IDENTITY, "digits", first)
    assert repr(registered) == repr(known)  # as 1 equals 1.0 and True
    for other in ({}, {"spread": 9}):
        again = replace(first, halvings=9, options=other)
        expected = replace(known, halvings=9)
        assert store.register(IDENTITY, "digits", again) == expected
        assert store.searches() == [SEARCH, expected]


def test_what_is_no_json_is_refused(store: TrialStore) -> None:
    for value in (math.nan, -math.inf, {1}, b"bytes"):
        with pytest.raises(FatalError, match="an option of search 'new' is not a JSON value"):
            store.register(IDENTITY, "other", replace(SEARCH, study="new", options={"x": value}))
    assert store.searches() == store.searches(workload="digits") == [SEARCH]


def test_of_searchers_that_begin_at_once_one_sets_the_options(url: str, at_once: AtOnce) -> None:
    def work(number: int) -> SearchInfo:
        with open_database(url, create=True) as database:
            mine = replace(SEARCH, options={"number": number})
            return TrialStore(database).register(IDENTITY, "digits", mine)

    answers = at_once(work, 3)
    with open_database(url, create=False) as database:
        (registered,) = TrialStore(database).searches()
    assert registered.options["number"] in range(3)
    assert answers == [registered] * 3


def left(replicate: int, *percents: float) -> TrialRecord:
    """The record of a run that left these checkpoints."""
    return replace(
        RECORD,
        spec=replace(RECORD.spec, replicate=replicate),
        checkpoints={percent: Path(f"/left/{percent:g}.npz") for percent in percents},
    )


def add(store: TrialStore, number: int, record: TrialRecord, study: str = STUDY) -> None:
    store.begin(study, number, record.spec, OWNER)
    store.complete(study, number, record)


def left_by(number: int, replicate: int, percent: float) -> StoredCheckpoint:
    return StoredCheckpoint(number, replicate, percent, Path(f"/left/{percent:g}.npz"), "chief")


def test_checkpoints_of_complete_trials_stand_by_replicate_and_percent(
    store: TrialStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store.checkpoints(STUDY) == []
    add(store, 3, left(1, 50.0, 3.125))
    add(store, 2, replace(left(0, 100.0, 3.125), diverged=True, converged=False))
    add(store, 1, left(1, 3.125, 0.0))
    for number in (4, 5):
        store.begin(STUDY, number, RECORD.spec, OWNER)
    store.fail(STUDY, 5, "lost")
    expected = [
        left_by(2, 0, 3.125),
        left_by(2, 0, 100.0),
        left_by(1, 1, 0.0),
        left_by(1, 1, 3.125),
        left_by(3, 1, 3.125),
        left_by(3, 1, 50.0),
    ]
    assert store.checkpoints(STUDY) == expected
    monkeypatch.chdir(tmp_path)
    add(store, 0, replace(left(2), checkpoints={50.0: Path("ä b/50.npz")}))
    monkeypatch.chdir("/")
    assert store.checkpoints(STUDY)[-1].path == tmp_path / "ä b" / "50.npz"


def test_a_path_that_cannot_be_kept_is_refused_before_the_run(store: TrialStore) -> None:
    path = Path("/left/caf\udce9")
    said = r"the checkpoint path '/left/caf\\udce9' is not UTF-8 text; name a folder"
    for place in ("checkpoint_directory", "fork_from"):
        with fails("file-unusable", said):
            store.begin(STUDY, 0, replace(RECORD.spec, **{place: path}), OWNER)
    assert store.get(STUDY, 0) is None


def test_checkpoints_are_forgotten_study_by_study(store: TrialStore) -> None:
    store.register(IDENTITY, "digits", replace(SEARCH, study="digits-2"))
    add(store, 0, left(0, 25.0, 50.0))
    add(store, 0, left(0, 50.0), study="digits-2")
    before = store.trials()
    for _ in range(2):
        store.forget_checkpoints(STUDY)
        assert store.checkpoints(STUDY) == []
        assert store.checkpoints("digits-2") == [left_by(0, 0, 50.0)]
    assert store.trials() == before
    assert store.evaluations(STUDY, 0) == list(RECORD.evaluations)


CONDITIONS = RunConditions("greedy", "restart", ("kill:worker=1,at=30%", "hang:ps,at=30%"))


@given(
    st.sampled_from(["none", "elastic"]),
    st.sampled_from(["hot", "restart"]),
    st.lists(st.text("abc=,:%; ")),
)
def test_conditions_survive_their_columns(online: str, mechanism: str, texts: list[str]) -> None:
    conditions = RunConditions(online, mechanism, tuple(texts))
    if "" in texts or any("; " in text for text in texts):  # nobody could tell them apart again
        with pytest.raises(FatalError, match="told apart"):
            condition_values(conditions)
    else:
        columns = nested(ConditionColumns, condition_values(conditions))
        assert conditions_of(columns) == conditions


def test_events_are_kept_in_their_order(store: TrialStore) -> None:
    again = replace(EVENT, kind="returned", worker=None, seconds=None)
    add(store, 0, replace(RECORD, events=(again, EVENT, replace(EVENT, reason="caf\udce9\0"))))
    add(store, 1, RECORD)
    assert store.events(STUDY, 0) == [again, EVENT, replace(EVENT, reason="caf??")]
    assert store.events(STUDY, 1) == store.events(STUDY, 2) == []


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


PART = replace(
    RECORD,
    worker_steps=750,
    checkpoints={50.0: Path("/50.npz")},
    events=(RunEvent("switched", 500, 1.5, "the policy"),),
)
"""What a trainer gives of a run that was told to stop; it has left things behind."""


def test_a_cancelled_run_has_failed_and_keeps_its_cost_without_a_result(
    database: Database, store: TrialStore
) -> None:
    with pytest.raises(FatalError, match="never begun"):
        store.cancel(STUDY, 0, PART, CANCELLED)
    store.begin(STUDY, 0, PART.spec, OWNER, speculative=True)
    store.cancel(STUDY, 0, PART, CANCELLED)
    trial = store.get(STUDY, 0)
    assert (trial.state, trial.failure, trial.end) == ("failed", CANCELLED, "cancelled")
    assert trial.speculative
    for name in (*COST, "worker_steps", "started_at", "ended_at", "host", "software"):
        assert flat(trial)[name] == getattr(PART, name), name
    assert trial.times.paid_seconds == PART.paid_seconds == 2.0
    store.set_target(STUDY, 0.1)
    store.cancel(STUDY, 0, PART, CANCELLED)  # told twice
    store.fail(STUDY, 0, "late")
    store.heartbeat(STUDY, 0, 999)
    assert store.get(STUDY, 0) == trial
    assert [flat(trial)[name] for name in RESULT] == [None] * len(RESULT)
    assert (trial.phases, store.evaluations(STUDY, 0), store.events(STUDY, 0)) == ((), [], [])
    assert store.checkpoints(STUDY) == []
    assert switch_point_statistics(database) == []
    assert len(frames.time_to_accuracy(database, target_accuracy=0.1)) == 0
    assert list(database_findings(database)) == []
    store.complete(STUDY, 0, RECORD)  # a whole result outranks it
    trial = store.get(STUDY, 0)
    assert (trial.state, trial.failure, trial.end) == ("complete", None, "stopped")
    assert trial.worker_steps == RECORD.worker_steps
    assert store.evaluations(STUDY, 0) == list(RECORD.evaluations)
    store.cancel(STUDY, 0, replace(PART, training_seconds=9.0), CANCELLED)
    assert store.get(STUDY, 0) == trial


def test_a_run_that_failed_is_cancelled_with_its_cost_or_begins_anew_without(
    database: Database, store: TrialStore
) -> None:
    complete(store, STUDY, 7, PART)
    store.begin(STUDY, 8, PART.spec, OWNER, speculative=True)
    store.fail(STUDY, 8, "silent for an hour")
    assert (store.get(STUDY, 8).times.paid_seconds, store.get(STUDY, 8).end) == (None, None)
    store.cancel(STUDY, 8, PART, CANCELLED)
    assert (store.get(STUDY, 8).times.paid_seconds, store.get(STUDY, 8).end) == (2.0, "cancelled")
    store.begin(STUDY, 8, PART.spec, OWNER, fork=Fork(7, 50.0))
    trial = store.get(STUDY, 8)
    assert (trial.state, trial.failure, trial.end) == ("running", None, None)
    assert [flat(trial)[name] for name in (*COST, "ended_at")] == [None] * 4
    assert (trial.worker_steps, trial.speculative, trial.times.paid_seconds) == (0, False, None)
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
    assert store.get(STUDY, 0).result.converged_evaluations == averaged


def test_an_impossible_cost_changes_nothing(store: TrialStore) -> None:
    store.begin(STUDY, 0, PART.spec, OWNER)
    before = store.get(STUDY, 0)
    for impossible in (
        replace(PART, training_seconds=math.nan),
        replace(PART, inherited_seconds=-1.0),
        replace(PART, switch_overhead_seconds=math.inf),
        replace(PART, worker_steps=-1),
    ):
        with pytest.raises(FatalError, match=r"refuses these values|allowed: from 0 on"):
            store.cancel(STUDY, 0, impossible, CANCELLED)
        assert store.get(STUDY, 0) == before


@pytest.mark.parametrize("wait_seconds", [0.002, 0.033])
def test_a_killed_searcher_leaves_whole_runs_and_policies(
    database: Database, store: TrialStore, wait_seconds: float
) -> None:
    curve = tuple(Evaluation(step, 1.0, 0.5, 0.5) for step in range(300))
    measured = replace(RECORD, evaluations=curve, checkpoints=left(0, 12.5, 25.0, 50.0).checkpoints)
    receiver, sender = multiprocessing.Pipe(duplex=False)

    def work() -> None:
        with open_database(database.url, create=False) as mine:
            searcher, registry = TrialStore(mine), PolicyRegistry(mine)
            for number in itertools.count():
                searcher.begin(STUDY, number, RECORD.spec, Owner.current())
                searcher.complete(STUDY, number, measured)
                registry.publish(replace(POLICY, study=f"study-{number}"))
                sender.send(number)

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    told = [receiver.recv(), receiver.recv()][-1]
    time.sleep(wait_seconds)
    process.kill()
    process.join()
    while receiver.poll():
        told = receiver.recv()
    found = store.trials()
    assert sum(trial.state == "complete" for trial in found) > told
    assert [trial.state for trial in found[:-1]] == ["complete"] * (len(found) - 1)
    with_checkpoints = [checkpoint.trial_number for checkpoint in store.checkpoints(STUDY)]
    for number, trial in enumerate(found):
        whole = (2, 300, 3) if trial.state == "complete" else (0, 0, 0)
        evaluations, checkpoints = store.evaluations(STUDY, number), with_checkpoints.count(number)
        assert (len(trial.phases), len(evaluations), checkpoints) == whole
    policies = PolicyRegistry(database).policies()
    assert len(policies) > told
    assert {found.evidence for found in policies} == {POLICY.evidence}
    assert PolicyRegistry(database).aliases(POLICY.job.fingerprint) == {CURRENT: len(policies)}
