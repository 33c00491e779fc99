"""Uses in the database: recorded once, told apart from trials, summed up."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from syncswitch.storage import frames
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import FatalError
from syncswitch.storage.policies.file import PolicyFile
from syncswitch.storage.policies.registry import PolicyRegistry, import_policies
from syncswitch.storage.queries.search_costs import study_costs
from syncswitch.storage.queries.summaries import switch_point_statistics
from syncswitch.storage.records.job import Protocols, RegisteredWorkload, RunConditions
from syncswitch.storage.records.policy import TimingPolicy, whole_use
from syncswitch.storage.records.trial import RunEvent
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.uses.store import hand_out_seed, record_use, uses, uses_of, uses_of_all
from syncswitch.storage.uses.summary import Drift, UseSummary, drift_of
from tests.failing import fails
from tests.storage.conftest import (
    IDENTITY,
    POLICY,
    RECORD,
    SEARCH,
    STARTED_AT,
    AtOnce,
    both_databases,
    sent_back,
    use_of,
)

ALARM = sent_back(12.5, 25.0, held_percent=50.0)


@both_databases
def test_a_use_is_a_trial_with_its_policy_its_guard_and_all_that_it_measured(
    database: Database, used_policy: TimingPolicy
) -> None:
    event = RunEvent("alarmed", 700, 2.5, "it fails")
    assert record_use(database, use_of(used_policy, 3, guard=ALARM, events=(event,)))
    (row,) = frames.trials(database).to_dict("records")
    measured = {name: row[name] for name in ("kind", "use_id", "policy_version", "seed", "guard")}
    assert measured == {
        "kind": "use",
        "use_id": "use-3",
        "policy_version": 1,
        "seed": 3,
        "guard": "alarmed",
    }
    assert (row["failed_switches"], row["held_percent"]) == (2, 50.0)
    assert (row["guard_lost_seconds"], row["converged_accuracy"]) == (3.5, 0.89)
    # When it reached the accuracy that its policy wants.
    assert (row["target_accuracy"], row["time_to_accuracy_seconds"]) == (0.9, 2.5)
    (stored,) = uses(database, IDENTITY.fingerprint)
    assert (stored.origin.kind, stored.phases) == ("use", RECORD.phases)
    assert (stored.failed, stored.guard.held_percent) == (ALARM.failed, 50.0)
    with database.transaction(read_only=True) as connection:
        query = "SELECT position, switch_percent, lost_seconds FROM syncswitch_failed_switches"
        assert connection.execute(text(query)).all() == [(0, 12.5, 1.25), (1, 25.0, 2.25)]
    curve = frames.evaluations(database, kinds=["use"])
    assert list(curve["accuracy"]) == [0.8, 0.9]
    assert list(frames.events(database, kinds=["use"])["kind"]) == ["alarmed"]


@both_databases
def test_a_use_is_recorded_once(
    database: Database, used_policy: TimingPolicy, at_once: AtOnce
) -> None:
    use, url = use_of(used_policy), database.url
    database.close()

    def record(_: int) -> bool:
        with open_database(url, create=False) as own:
            return record_use(own, use)

    assert sorted(at_once(record, 3)) == [False, False, True]
    assert not record_use(database, use)
    assert uses_of(database, used_policy).uses == 1


def test_no_trial_of_a_search_is_counted_with_them(
    database: Database, store: TrialStore, used_policy: TimingPolicy
) -> None:
    record_use(database, use_of(used_policy))
    assert store.trials() == store.trials(fingerprint=IDENTITY.fingerprint) == []
    assert store.curves(IDENTITY.fingerprint) == {}
    assert switch_point_statistics(database) == []
    (cost,) = study_costs(database)
    assert (cost.cost.completed_runs, cost.cost.paid_seconds) == (0, 0.0)


def test_a_policy_may_have_another_version_in_another_database(
    database: Database, used_policy: TimingPolicy, other_url: str
) -> None:
    with open_database(other_url, create=True) as other:
        TrialStore(other).register(IDENTITY, "digits", SEARCH)
        PolicyRegistry(other).publish(replace(POLICY, study="other"))
        with fails("policy-not-found", "not in this database; import the policy first"):
            record_use(other, use_of(used_policy))
        earlier = replace(POLICY, created_at=(STARTED_AT - timedelta(days=1)).isoformat())
        file = PolicyFile(Path("policy.json"), earlier, RegisteredWorkload(IDENTITY.job, "digits"))
        (imported,) = import_policies(other, [file])
        assert imported.policy.version == 2
        assert record_use(other, use_of(earlier))
        assert uses_of(other, imported.policy).uses == 1
        assert frames.uses(other)["policy_version"].tolist() == [2]


def test_the_uses_of_all_versions_are_read_at_once(
    database: Database, used_policy: TimingPolicy
) -> None:
    later = replace(used_policy, study="later", created_at=STARTED_AT.isoformat())
    others = replace(later, study="others", protocols=Protocols("bsp", "ssp:3"))
    registry = PolicyRegistry(database)
    later, others = registry.publish(later), registry.publish(others)
    for use in (use_of(used_policy), use_of(later, 1), use_of(later, 2)):
        assert record_use(database, use)
    versions, asked = registry.policies(), list[str]()
    expected = [uses_of(database, one) for one in versions]
    assert [one.uses for one in expected] == [0, 2, 1]

    @event.listens_for(Engine, "before_cursor_execute")
    def note(*given: Any) -> None:
        if given[2].startswith("SELECT"):
            asked.append(given[2])

    try:
        counts = []
        for some in (versions, versions[:1]):
            asked.clear()
            assert uses_of_all(database, some) == expected[: len(some)]
            counts.append(len(asked))
        assert counts[0] == counts[1] > 0
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def test_how_a_policy_does(database: Database, used_policy: TimingPolicy) -> None:
    assert uses_of(database, used_policy) == UseSummary(0, 0, 0, 0, None, None, None)
    later = RECORD.ended_at + timedelta(hours=1)
    kept, lost = use_of(used_policy, 0), use_of(used_policy, 1, converged_accuracy=0.88)
    sent_back = use_of(used_policy, 2, guard=ALARM, training_seconds=6.0, ended_at=later)
    diverged = use_of(used_policy, 3, diverged=True, converged_accuracy=0.95, training_seconds=0.5)
    injected = RunConditions("greedy", "restart", ("kill:ps,at=60%",))
    disturbed = use_of(used_policy, 4, spec=replace(RECORD.spec, conditions=injected))
    for use in (kept, lost, sent_back, diverged, disturbed):
        assert record_use(database, use)
    assert uses_of(database, used_policy) == UseSummary(
        uses=4,
        kept=2,
        alarms=1,
        kept_after_alarm=1,
        mean_training_seconds=4.0,
        speed_up=1.5,
        last_ended_at=later,
    )
    assert uses(database, IDENTITY.fingerprint)[-1].conditions == injected
    table = frames.uses(database, workload="digits")
    assert list(table["kept"]) == [True, False, True, False, True]
    assert list(table["speed_up"]) == [2.0, 2.0, 1.0, 12.0, 2.0]


def test_only_a_whole_run_is_a_use() -> None:
    record = replace(RECORD, stopped_early=False)
    assert whole_use(POLICY, "a", record) is not None
    assert whole_use(POLICY, "a", replace(record, stopped_early=True)) is None
    assert whole_use(POLICY, "a", replace(record, worker_steps=999)) is None
    assert whole_use(POLICY, "a", replace(record, worker_steps=999, diverged=True)) is not None


def test_an_impossible_time_is_refused(database: Database, used_policy: TimingPolicy) -> None:
    failed = replace(ALARM.failed[0], lost_seconds=float("inf"))
    wrong = use_of(used_policy, guard=replace(ALARM, failed=(failed,)))
    with pytest.raises(FatalError, match="lost_seconds of a failed switch is inf"):
        record_use(database, wrong)
    assert uses_of(database, used_policy).uses == 0


@both_databases
def test_no_two_who_ask_at_once_get_the_same(database: Database, at_once: AtOnce) -> None:
    url = database.url
    assert hand_out_seed(database, IDENTITY.job) is None
    database.close()

    def ask(_: int) -> list[int | None]:
        with open_database(url, create=False) as own:
            return [hand_out_seed(own, IDENTITY.job, "digits") for _ in range(5)]

    assert sorted(seed for seeds in at_once(ask, 4) for seed in seeds) == list(range(20))
    with open_database(url, create=False) as own:
        assert hand_out_seed(own, IDENTITY.job) == 20
        assert hand_out_seed(own, replace(IDENTITY.job, workers=7), "digits") == 0


def test_those_that_users_chose_are_left_out(database: Database, used_policy: TimingPolicy) -> None:
    for seed in (1, 2, 5, 2**31 - 1):
        record_use(database, use_of(used_policy, seed))
    assert [hand_out_seed(database, IDENTITY.job) for _ in range(4)] == [0, 3, 4, 6]


@pytest.mark.parametrize(
    ("former", "newest", "found"),
    [
        ((38, 2), (4, 6), Drift(newest=10, newest_kept=4, former=40, former_kept=38)),
        ((38, 2), (8, 2), None),
        ((10, 30), (1, 9), None),  # what always failed is no drift
        ((5, 0), (0, 10), Drift(10, 0, 5, 5)),
        ((4, 0), (0, 10), None),  # a few former runs say nothing
    ],
)
def test_the_newest_ten_are_held_against_all_before(
    former: tuple[int, int], newest: tuple[int, int], found: Drift | None
) -> None:
    """Each pair says how many kept the accuracy, and how many failed."""
    kept = [one for good, bad in (former, newest) for one in [True] * good + [False] * bad]
    assert drift_of(kept) == found


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
def test_a_job_that_stays_as_it_is_is_seldom_called_changed(share: float) -> None:
    """In a hundred uses, asked after each of them."""
    chance = random.Random(5)
    called = 0
    for _ in range(200):
        kept = [chance.random() < share for _ in range(100)]
        called += any(drift_of(kept[:end]) for end in range(15, 101))
    assert called <= 6


def test_a_job_that_changes_is_found_out() -> None:
    chance = random.Random(6)
    found = 0
    for _ in range(100):
        kept = [chance.random() < 0.95 for _ in range(30)]
        kept += [chance.random() < 0.3 for _ in range(20)]
        found += any(drift_of(kept[:end]) for end in range(31, 51))
    assert found >= 90
