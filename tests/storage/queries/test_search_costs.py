from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update

from syncswitch.storage.database.engine import Database
from syncswitch.storage.policies.file import PolicyFile
from syncswitch.storage.policies.registry import PolicyRegistry, import_policies
from syncswitch.storage.queries.search_costs import covered_seconds, study_costs
from syncswitch.storage.records.job import RegisteredWorkload
from syncswitch.storage.records.trial import TrialRecord
from syncswitch.storage.tables.trials import TRIALS
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import CANCELLED
from tests.storage.conftest import IDENTITY, POLICY, RECORD, SEARCH, both_databases
from tests.storage.filled import OWNER, complete

pytestmark = both_databases

_MOMENT = datetime(2026, 1, 31, tzinfo=timezone.utc)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20))))
def test_covered_seconds_count_each_moment_once(spans: list[tuple[int, int]]) -> None:
    moments = {second for start, length in spans for second in range(start, start + length)}
    found = covered_seconds(
        (_MOMENT + timedelta(seconds=start), _MOMENT + timedelta(seconds=start + length))
        for start, length in spans
    )
    assert found == len(moments)


def test_a_search_that_has_not_begun_has_cost_nothing(
    database: Database, store: TrialStore
) -> None:
    (one,) = study_costs(database)
    assert (one.study, one.job.workload, one.job.workers) == ("digits-1", "digits", 4)
    assert (one.strategy, one.trainer) == ("adaptive", "simulated")
    assert (one.cost.completed_runs, one.cost.failed_runs, one.cost.speculative_runs) == (0, 0, 0)
    assert (one.cost.paid_seconds, one.cost.wall_seconds) == (0, 0)
    assert (one.cost.baseline_seconds, one.cost.bsp_multiples, one.policy_version) == (
        None,
        None,
        None,
    )


def test_the_time_until_somebody_finds_a_run_dead_is_not_spent(
    database: Database, store: TrialStore
) -> None:
    complete(store, "digits-1", 0, RECORD)
    store.begin("digits-1", 1, RECORD.spec, OWNER)
    with database.transaction() as connection:
        moments = {
            "started_at": RECORD.ended_at,
            "heartbeat_at": RECORD.ended_at + timedelta(seconds=7),
        }
        connection.execute(update(TRIALS).where(TRIALS.c.trial_number == 1).values(moments))
    before = (RECORD.ended_at - RECORD.started_at).total_seconds()
    assert study_costs(database)[0].cost.wall_seconds == before + 7
    store.fail("digits-1", 1, "its process is gone")
    assert study_costs(database)[0].cost.wall_seconds == before + 7


def test_a_policy_that_was_imported_is_not_what_a_search_published(
    database: Database, store: TrialStore
) -> None:
    file = PolicyFile(Path("policy.json"), POLICY, RegisteredWorkload(IDENTITY.job, "digits"))
    import_policies(database, [file])
    assert [one.policy_version for one in study_costs(database)] == [None]
    mine = replace(POLICY, created_at="2026-02-02T00:00:00+00:00")
    PolicyRegistry(database).publish(mine)
    assert [one.policy_version for one in study_costs(database)] == [2]


def test_runs_are_counted_by_what_became_of_them(database: Database, store: TrialStore) -> None:
    def baseline(seconds: float, diverged: bool = False) -> TrialRecord:
        return replace(
            RECORD,
            spec=replace(RECORD.spec, switch_percent=100.0),
            training_seconds=seconds,
            inherited_seconds=0.0,
            diverged=diverged,
            ended_at=RECORD.started_at + timedelta(seconds=seconds),
        )

    store.register(IDENTITY, "digits", replace(SEARCH, study="digits-2"))
    complete(store, "digits-1", 0, baseline(10.0))
    complete(store, "digits-1", 1, baseline(20.0))
    complete(store, "digits-1", 2, baseline(900.0, diverged=True))
    complete(store, "digits-1", 3, RECORD)  # 3 s, one of them inherited
    for number in (4, 5, 6):
        store.begin("digits-1", number, RECORD.spec, OWNER, speculative=number > 4)
    store.fail("digits-1", 4, "lost")
    began = RECORD.started_at + timedelta(seconds=900)
    part = replace(RECORD, started_at=began, ended_at=began + timedelta(seconds=5))
    store.cancel("digits-1", 5, part, CANCELLED)  # as many seconds
    one, other = study_costs(database)
    assert (one.cost.completed_runs, one.cost.failed_runs, one.cost.cancelled_runs) == (4, 1, 1)
    assert (one.cost.running_runs, one.cost.speculative_runs) == (1, 2)
    assert one.cost.paid_seconds == 10 + 20 + 900 + 2 + 2
    assert one.cost.baseline_seconds == 15
    assert one.cost.bsp_multiples == 934 / 15
    assert 905 <= one.cost.wall_seconds < 915  # the failed run took no time
    rows = store.numbered("digits-1").values()
    assert one.cost.paid_seconds == sum(row.times.paid_seconds or 0.0 for row in rows)
    assert (other.study, other.cost.completed_runs) == ("digits-2", 0)
    assert [one.study for one in study_costs(database, study="digits-2")] == ["digits-2"]
    assert study_costs(database, workload="other") == []
