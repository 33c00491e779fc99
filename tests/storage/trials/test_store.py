from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import DatabaseError, FatalError, UserError
from syncswitch.storage.policies.registry import CURRENT, PolicyRegistry
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import Evaluation, PhaseRecord, RunEvent, TrialRecord
from syncswitch.storage.trials.rows import storable_text
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import (
    Owner,
    SearchInfo,
    StoredCheckpoint,
    condition_values,
    conditions_of,
)
from tests.properties import FIXTURES_STAY
from tests.storage.conftest import (
    IDENTITY,
    OTHER_IDENTITY,
    POLICY,
    RECORD,
    SEARCH,
    AtOnce,
    both_databases,
    told_before_the_kill,
)

pytestmark = both_databases


STUDY = "digits-1"
NUMBERS = itertools.count()
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


def test_the_owner_is_this_process() -> None:
    owner = Owner.current()
    assert owner.process_id == os.getpid()
    assert 0 < owner.process_started_at < time.time()
    assert owner == Owner.current()


def test_a_search_is_registered_once(store: TrialStore) -> None:
    assert store.register(IDENTITY, "digits", SEARCH) == SEARCH
    assert store.searches() == [SEARCH]


def test_registering_again_brings_names_and_switch_points_up_to_date(store: TrialStore) -> None:
    changed = replace(SEARCH, settings=9, target_accuracy=0.75)
    assert store.register(replace(IDENTITY, name="figures"), "job.py:figures", changed) == changed
    assert store.searches(workload="figures") == [changed]
    assert store.searches(workload="job.py:figures") == [changed]
    assert store.searches(workload="digits") == []


def test_a_study_cannot_change_its_workload(store: TrialStore) -> None:
    with pytest.raises(DatabaseError, match="a study name of its own"):
        store.register(
            OTHER_IDENTITY, "digits", replace(SEARCH, fingerprint=OTHER_IDENTITY.fingerprint)
        )
    assert store.searches() == [SEARCH]


def test_a_search_names_its_workload(store: TrialStore) -> None:
    with pytest.raises(FatalError, match="another workload"):
        store.register(OTHER_IDENTITY, "digits", SEARCH)


def test_a_trial_that_began_has_its_spec_and_owner(store: TrialStore) -> None:
    before = datetime.now(timezone.utc)
    store.begin(STUDY, 0, RECORD.spec, OWNER)
    trial = store.get(STUDY, 0)
    assert trial is not None
    assert (trial.study, trial.trial_number, trial.state) == (STUDY, 0, "running")
    assert (trial.workload, trial.workers, trial.total_worker_steps) == ("digits", 4, 1000)
    assert trial.fingerprint == RECORD.spec.identity.fingerprint
    assert (trial.switch_percent, trial.seed, trial.replicate) == (50.0, 11, 2)
    assert (trial.host, trial.process_id, trial.process_started_at) == (
        OWNER.host,
        OWNER.process_id,
        OWNER.process_started_at,
    )
    assert before <= trial.started_at == trial.heartbeat_at <= datetime.now(timezone.utc)
    assert (trial.ended_at, trial.failure, trial.phases, trial.worker_steps) == (None, None, (), 0)
    assert [getattr(trial, name) for name in MEASURED] == [None] * len(MEASURED)


def test_a_trial_needs_a_registered_search(store: TrialStore) -> None:
    with pytest.raises(FatalError, match="registered"):
        store.begin("no such study", 0, RECORD.spec, OWNER)
    with pytest.raises(FatalError, match="registered"):
        store.begin(STUDY, 0, replace(RECORD.spec, identity=OTHER_IDENTITY), OWNER)


def test_a_beat_reports_progress(store: TrialStore) -> None:
    store.begin(STUDY, 0, RECORD.spec, OWNER)
    began = store.get(STUDY, 0)
    store.heartbeat(STUDY, 0, 250)
    now = store.get(STUDY, 0)
    assert began is not None
    assert now is not None
    assert now.worker_steps == 250
    assert now.heartbeat_at > began.heartbeat_at


def test_complete_beat_and_fail_leave_a_complete_trial_alone(store: TrialStore) -> None:
    store.begin(STUDY, 0, RECORD.spec, OWNER)
    store.complete(STUDY, 0, RECORD)
    expected = store.get(STUDY, 0)
    others = left(RECORD, 0, 12.5).checkpoints
    store.complete(
        STUDY, 0, replace(RECORD, converged_accuracy=0.1, evaluations=(), checkpoints=others)
    )
    store.heartbeat(STUDY, 0, 1)
    store.fail(STUDY, 0, "late")
    assert (store.get(STUDY, 0), store.checkpoints(STUDY)) == (expected, [])
    assert store.evaluations(STUDY, 0) == list(RECORD.evaluations)
    with pytest.raises(FatalError, match="already complete"):
        store.begin(STUDY, 0, RECORD.spec, OWNER)


def test_only_a_trial_that_began_can_be_complete(store: TrialStore) -> None:
    with pytest.raises(FatalError, match="never begun"):
        store.complete(STUDY, 0, RECORD)


def test_a_failed_trial_says_why_and_may_begin_anew(store: TrialStore) -> None:
    store.begin(STUDY, 0, RECORD.spec, OWNER)
    store.fail(STUDY, 0, "the server was lost")
    failed = store.get(STUDY, 0)
    assert failed is not None
    assert (failed.state, failed.failure) == ("failed", "the server was lost")
    assert failed.ended_at is not None
    store.begin(STUDY, 0, RECORD.spec, replace(OWNER, process_id=1))
    again = store.get(STUDY, 0)
    assert again is not None
    assert (again.state, again.failure, again.ended_at) == ("running", None, None)
    assert again.process_id == 1


def test_any_text_can_be_the_reason_of_a_failure(store: TrialStore) -> None:
    store.begin(STUDY, 0, RECORD.spec, OWNER)
    store.fail(STUDY, 0, "no file caf\udce9\0.npz")
    failed = store.get(STUDY, 0)
    assert failed is not None
    assert failed.failure == "no file caf??.npz"


def test_an_impossible_result_changes_nothing(store: TrialStore) -> None:
    store.begin(STUDY, 0, RECORD.spec, OWNER)
    twice = replace(RECORD, evaluations=(RECORD.evaluations[0], RECORD.evaluations[0]))
    for impossible in (
        twice,
        replace(RECORD, converged_accuracy=math.inf),
        replace(RECORD, training_seconds=math.nan),
        replace(RECORD, inherited_seconds=math.inf),
        replace(RECORD, evaluations=(Evaluation(1, math.nan, 0.5, 0.5),)),
        replace(RECORD, evaluations=(Evaluation(1, 1.0, math.nan, 0.5),)),
        replace(RECORD, phases=(PhaseRecord("bsp", 0, 3, math.inf, 0.0, 0),)),
        replace(RECORD, phases=(PhaseRecord("bsp", 9, 3, 1.0, 0.0, 0),)),
        *(
            replace(RECORD, events=(EVENT, replace(EVENT, **wrong)))
            for wrong in (
                {"elapsed_seconds": math.nan},
                {"elapsed_seconds": -1.0},
                {"seconds": math.inf},
                {"worker_step": -1},
                {"worker": -1},
            )
        ),
    ):
        with pytest.raises(FatalError, match=r"refuses these values|allowed: from 0 on"):
            store.complete(STUDY, 0, impossible)
    trial = store.get(STUDY, 0)
    assert trial is not None
    assert (trial.state, trial.phases) == ("running", ())
    assert (store.events(STUDY, 0), store.evaluations(STUDY, 0)) == ([], [])


def test_trials_are_selected_and_stand_in_the_order_of_their_beginning(store: TrialStore) -> None:
    other = replace(SEARCH, study="other", fingerprint=OTHER_IDENTITY.fingerprint)
    store.register(replace(OTHER_IDENTITY, name="large"), "large", other)
    store.begin(STUDY, 4, RECORD.spec, OWNER)
    store.begin("other", 0, replace(RECORD.spec, identity=OTHER_IDENTITY), OWNER)
    store.begin(STUDY, 1, RECORD.spec, OWNER)

    def found(**selection: str) -> list[tuple[str, int]]:
        return [(trial.study, trial.trial_number) for trial in store.trials(**selection)]

    assert found() == [(STUDY, 4), ("other", 0), (STUDY, 1)]
    assert found(study=STUDY) == found(workload="digits") == [(STUDY, 4), (STUDY, 1)]
    assert found(fingerprint=OTHER_IDENTITY.fingerprint) == [("other", 0)]
    assert found(workload=OTHER_IDENTITY.fingerprint[:8]) == [("other", 0)]
    assert found(workload="large", study=STUDY) == []
    assert store.searches() == [SEARCH, other]


times = st.datetimes(
    min_value=datetime(2000, 1, 1), max_value=datetime(2100, 1, 1), timezones=st.just(timezone.utc)
)
shares = st.floats(0, 1)
seconds = st.floats(0, 1e9)
steps = st.integers(0, 2**62)
losses = st.floats().map(lambda loss: loss + 0.0)  # SQLite does not keep the sign of -0.0
evaluations = st.lists(
    st.builds(Evaluation, steps, seconds, shares, losses),
    unique_by=lambda evaluation: evaluation.worker_step,
).map(lambda found: tuple(sorted(found, key=lambda evaluation: evaluation.worker_step)))
phases = st.lists(
    st.builds(
        lambda protocol, ends, *rest: PhaseRecord(protocol, min(ends), max(ends), *rest),
        st.sampled_from(["bsp", "asp"]),
        st.tuples(steps, steps),
        seconds,
        st.floats(0, 1e6),
        st.integers(0, 2**31 - 1),
    ),
    max_size=3,
).map(tuple)

events = st.lists(
    st.builds(
        RunEvent,
        st.sampled_from(["detected", "lost", "rebuilt"]),
        steps,
        seconds,
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
        st.none() | st.integers(0, 2**31 - 1),
        st.none() | seconds,
    ),
    max_size=3,
).map(tuple)


@FIXTURES_STAY
@given(data=st.data())
def test_every_record_survives(store: TrialStore, data: st.DataObject) -> None:
    number = next(NUMBERS)
    given_record = replace(
        RECORD,
        spec=replace(
            RECORD.spec,
            switch_percent=data.draw(st.floats(0, 100)),
            seed=data.draw(st.integers(-(2**63), 2**63 - 1)),
        ),
        worker_steps=data.draw(steps),
        evaluations=data.draw(evaluations),
        phases=data.draw(phases),
        events=data.draw(events),
        converged_accuracy=data.draw(shares),
        converged=data.draw(st.booleans()),
        diverged=data.draw(st.booleans()),
        training_seconds=data.draw(seconds),
        inherited_seconds=data.draw(seconds),
        started_at=data.draw(times),
        ended_at=data.draw(times),
    )
    store.begin(STUDY, number, given_record.spec, OWNER)
    store.complete(STUDY, number, given_record)
    trial = store.get(STUDY, number)
    assert trial is not None
    assert (trial.switch_percent, trial.seed) == (
        given_record.spec.switch_percent,
        given_record.spec.seed,
    )
    for name in (*MEASURED, "worker_steps", "phases", "started_at", "ended_at"):
        assert getattr(trial, name) == getattr(given_record, name), name
    assert store.events(STUDY, number) == list(given_record.events)
    # The text form, as NaN does not equal itself.
    assert repr(store.evaluations(STUDY, number)) == repr(list(given_record.evaluations))


def test_one_result_told_by_many_is_counted_once(
    store: TrialStore, url: str, at_once: AtOnce
) -> None:
    store.begin(STUDY, 0, RECORD.spec, OWNER)

    def work(number: int) -> None:
        with open_database(url, create=False) as database:
            TrialStore(database).complete(STUDY, 0, replace(RECORD, host=f"host-{number}"))

    at_once(work, 3)
    assert store.evaluations(STUDY, 0) == list(RECORD.evaluations)
    trial = store.get(STUDY, 0)
    assert trial is not None
    assert trial.phases == RECORD.phases


@pytest.mark.parametrize("wait_seconds", [0.002, 0.033])
def test_a_killed_searcher_leaves_whole_runs_and_policies(
    database: Database, store: TrialStore, wait_seconds: float
) -> None:
    curve = tuple(Evaluation(step, 1.0, 0.5, 0.5) for step in range(300))
    left = {percent: Path(f"/{percent:g}.npz") for percent in (12.5, 25.0, 50.0)}
    measured = replace(RECORD, evaluations=curve, checkpoints=left)

    def work(tell: Callable[[int], None]) -> None:
        with open_database(database.url, create=False) as mine:
            searcher, registry = TrialStore(mine), PolicyRegistry(mine)
            for number in itertools.count():
                searcher.begin(STUDY, number, RECORD.spec, Owner.current())
                searcher.complete(STUDY, number, measured)
                registry.publish(replace(POLICY, study=f"study-{number}"))
                tell(number)

    told = told_before_the_kill(work, wait_seconds)
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
    assert PolicyRegistry(database).aliases(POLICY.fingerprint) == {CURRENT: len(policies)}
    store.fail(STUDY, len(found) - 1, "its owner was killed")


def test_times_are_in_utc(store: TrialStore) -> None:
    zone = timezone(timedelta(hours=5))
    store.begin(STUDY, 0, RECORD.spec, OWNER)
    store.complete(STUDY, 0, replace(RECORD, started_at=RECORD.started_at.astimezone(zone)))
    trial = store.get(STUDY, 0)
    assert trial is not None
    assert trial.started_at == RECORD.started_at
    moments = [getattr(trial, field.name) for field in fields(trial) if field.name.endswith("_at")]
    assert {moment.utcoffset() for moment in moments if isinstance(moment, datetime)} == {
        timedelta(0)
    }


OPTIONS = {"spread": 0.004, "shares": [0.5, 1], "is_warm": True, "from": None, "name": "ä\0"}

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
options = st.dictionaries(st.text(), scalars | st.lists(scalars, max_size=3), max_size=4)


@FIXTURES_STAY
@given(options=options)
def test_every_option_survives(store: TrialStore, options: dict[str, Any]) -> None:
    new = replace(SEARCH, study=f"study-{next(NUMBERS)}", options=options)
    assert store.register(IDENTITY, "digits", new) == new
    (found,) = [found for found in store.searches() if found.study == new.study]
    assert repr(found.options) == repr(options)  # as 1 equals 1.0 and True


def test_what_is_registered_again_keeps_its_options(store: TrialStore) -> None:
    first = replace(SEARCH, study="new", options=OPTIONS)
    store.register(IDENTITY, "digits", first)
    for other in ({}, {"spread": 9}):
        again = replace(first, settings=9, options=other)
        expected = replace(first, settings=9)
        assert store.register(IDENTITY, "digits", again) == expected
        assert store.searches() == [SEARCH, expected]


def test_the_answer_is_what_the_database_has(store: TrialStore) -> None:
    given_options: dict[str, Any] = {"shares": (0.5, 1)}  # JSON knows lists alone
    new = replace(SEARCH, study="new", options=given_options)
    registered = store.register(IDENTITY, "digits", new)
    given_options["shares"] = None
    assert registered.options == {"shares": [0.5, 1]}
    assert store.searches() == [SEARCH, registered]


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


def left(record: TrialRecord, replicate: int, *percents: float) -> TrialRecord:
    """The record of a run that left these checkpoints."""
    return replace(
        record,
        spec=replace(record.spec, replicate=replicate),
        checkpoints={percent: Path(f"/left/{percent:g}.npz") for percent in percents},
    )


def add(store: TrialStore, number: int, record: TrialRecord, study: str = STUDY) -> None:
    store.begin(study, number, record.spec, OWNER)
    store.complete(study, number, record)


def left_by(number: int, replicate: int, percent: float) -> StoredCheckpoint:
    return StoredCheckpoint(number, replicate, percent, Path(f"/left/{percent:g}.npz"), "chief")


def test_checkpoints_stand_by_replicate_and_percent(store: TrialStore) -> None:
    assert store.checkpoints(STUDY) == []
    add(store, 3, left(RECORD, 1, 50.0, 3.125))
    add(store, 2, left(RECORD, 0, 100.0, 3.125))
    add(store, 1, left(RECORD, 1, 3.125, 0.0))
    add(store, 0, left(RECORD, 1))
    assert store.checkpoints(STUDY) == [
        left_by(2, 0, 3.125),
        left_by(2, 0, 100.0),
        left_by(1, 1, 0.0),
        left_by(1, 1, 3.125),
        left_by(3, 1, 3.125),
        left_by(3, 1, 50.0),
    ]


def test_only_complete_trials_have_any(store: TrialStore) -> None:
    run = left(RECORD, 0, 50.0)
    for number in range(3):
        store.begin(STUDY, number, run.spec, OWNER)
    store.fail(STUDY, 0, "lost")
    store.complete(STUDY, 2, replace(run, diverged=True, converged=False))
    assert store.checkpoints(STUDY) == [left_by(2, 0, 50.0)]


def test_a_path_is_remembered_from_the_root(
    store: TrialStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    add(store, 0, replace(RECORD, checkpoints={50.0: Path("ä b/50.npz")}))
    monkeypatch.chdir("/")
    (found,) = store.checkpoints(STUDY)
    assert found.path == tmp_path / "ä b" / "50.npz"


def test_an_impossible_percent_changes_nothing(store: TrialStore) -> None:
    store.begin(STUDY, 0, RECORD.spec, OWNER)
    for percent in (-0.1, 100.1, math.nan):
        with pytest.raises(FatalError, match="refuses these values"):
            store.complete(STUDY, 0, left(RECORD, 0, 50.0, percent))
    trial = store.get(STUDY, 0)
    assert trial is not None
    assert (trial.state, trial.phases) == ("running", ())
    assert store.evaluations(STUDY, 0) == store.checkpoints(STUDY) == []


def test_a_path_that_cannot_be_kept_is_refused_before_the_run(store: TrialStore) -> None:
    path = Path("/left/caf\udce9")
    said = r"the checkpoint path '/left/caf\\udce9' is not UTF-8 text; name a folder"
    for place in ("checkpoint_directory", "fork_from"):
        with pytest.raises(UserError, match=said):
            store.begin(STUDY, 0, replace(RECORD.spec, **{place: path}), OWNER)
    assert store.get(STUDY, 0) is None


def test_checkpoints_are_forgotten_study_by_study(store: TrialStore) -> None:
    store.register(IDENTITY, "digits", replace(SEARCH, study="digits-2"))
    add(store, 0, left(RECORD, 0, 25.0, 50.0))
    add(store, 0, left(RECORD, 0, 50.0), study="digits-2")
    before = store.trials()
    for _ in range(2):
        store.forget_checkpoints(STUDY)
        assert store.checkpoints(STUDY) == []
        assert store.checkpoints("digits-2") == [left_by(0, 0, 50.0)]
    assert store.trials() == before
    assert store.evaluations(STUDY, 0) == list(RECORD.evaluations)


CONDITIONS = RunConditions("greedy", "restart", ("kill:worker=1,at=30%", "hang:ps,at=30%"))
EVENT = RunEvent("lost", 250, 0.75, "worker 2 was silent for 10 s", worker=2, seconds=10.5)

injections = st.lists(st.text("abc=,:%; ", min_size=1).filter(lambda text: "; " not in text))


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


@given(st.text())
def test_every_text_can_be_stored(text: str) -> None:
    kept = storable_text(text)
    assert "\0" not in kept
    assert kept.encode().decode() == kept
    assert len(kept) == len(text)


def test_injections_that_cannot_be_told_apart_are_refused(store: TrialStore) -> None:
    for texts in (("a; b",), ("",), ("a", "b; c")):
        spec = replace(RECORD.spec, conditions=RunConditions("none", "hot", texts))
        with pytest.raises(FatalError, match="told apart"):
            store.begin(STUDY, 0, spec, OWNER)
    assert store.trials() == []


def test_conditions_are_known_from_the_beginning(store: TrialStore) -> None:
    store.begin(STUDY, 0, replace(RECORD.spec, conditions=CONDITIONS), OWNER)
    store.begin(STUDY, 1, RECORD.spec, OWNER)
    assert [trial.conditions for trial in store.trials()] == [CONDITIONS, RunConditions()]


def test_events_are_kept_in_their_order(store: TrialStore) -> None:
    again = replace(EVENT, kind="returned", worker=None, seconds=None)
    events = (again, EVENT, replace(EVENT, reason="no file caf\udce9\0.npz"))
    add(store, 0, replace(RECORD, events=events))
    add(store, 1, RECORD)
    kept = [again, EVENT, replace(EVENT, reason="no file caf??.npz")]
    assert store.events(STUDY, 0) == kept
    assert store.events(STUDY, 1) == store.events(STUDY, 2) == []
    store.complete(STUDY, 0, replace(RECORD, events=(EVENT,)))  # told twice
    assert store.events(STUDY, 0) == kept


def test_a_run_that_starts_anew_has_only_what_is_its_own(store: TrialStore) -> None:
    store.begin(STUDY, 0, replace(RECORD.spec, conditions=CONDITIONS), OWNER)
    store.fail(STUDY, 0, "the server was lost")
    assert store.events(STUDY, 0) == []
    add(store, 0, replace(RECORD, events=(EVENT,)))
    (trial,) = store.trials()
    assert trial.conditions == RunConditions()
    assert store.events(STUDY, 0) == [EVENT]
