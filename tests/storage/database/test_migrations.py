"""Databases of former revisions are brought up to date when they are opened."""

from __future__ import annotations

import multiprocessing
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import MetaData, Table, create_engine, insert, text

from syncswitch.storage.database import engine as engine_module
from syncswitch.storage.database.check import database_findings
from syncswitch.storage.database.engine import examined, open_database
from syncswitch.storage.database.inspection import REVISION, VERSION_TABLE, driver_url
from syncswitch.storage.policies.registry import CURRENT, PolicyRegistry
from syncswitch.storage.records.flat import flat
from syncswitch.storage.records.guard import FailedSwitch
from syncswitch.storage.records.job import Protocols
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.uses.store import uses
from tests.storage.conftest import IDENTITY, POLICY, SEARCH, STARTED_AT, AtOnce, both_databases

pytestmark = both_databases

# What the revisions after these changed, undone in empty tables.
_TO_0006 = (
    "ALTER TABLE syncswitch_trials DROP COLUMN step_seconds",
    "ALTER TABLE syncswitch_failed_switches DROP COLUMN second_protocol",
)
_TO_0005 = (
    *_TO_0006,
    "DROP VIEW syncswitch_trial_facts",
    "CREATE VIEW syncswitch_trial_facts AS SELECT 1 AS trial_id",
    *(
        f"ALTER TABLE syncswitch_workloads ADD COLUMN {name} VARCHAR(64)"
        for name in ("first_protocol", "second_protocol", "momentum_after_switch")
    ),
    *(
        f"ALTER TABLE syncswitch_{table} DROP COLUMN {name}"
        for table in ("trials", "searches")
        for name in ("first_protocol", "second_protocol", "momentum_after_switch")
    ),
    "ALTER TABLE syncswitch_policies DROP COLUMN momentum_after_switch",
)
_TO_0004 = (
    "ALTER TABLE syncswitch_searches RENAME COLUMN halvings TO settings",
    "ALTER TABLE syncswitch_policies RENAME COLUMN min_kept_share TO keep",
)
FORMER = {"0004": (*_TO_0005, *_TO_0004), "0005": _TO_0005, "0006": _TO_0006}


def make_former(url: str, revision: str) -> None:
    """Makes the empty tables of a former revision."""
    with open_database(url, create=True):
        pass
    engine = create_engine(driver_url(url))
    with engine.begin() as connection:
        for statement in FORMER[revision]:
            connection.exec_driver_sql(statement)
        connection.exec_driver_sql(f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'")
    engine.dispose()


def add(url: str, table: str, *rows: dict[str, Any]) -> None:
    """Adds rows to a table of a former revision; what they say of other columns is left out."""
    engine = create_engine(driver_url(url))
    former = Table(f"syncswitch_{table}", MetaData(), autoload_with=engine)
    with engine.begin() as connection:
        for row in rows:
            known = {name: value for name, value in row.items() if name in former.columns}
            connection.execute(insert(former), known)
    engine.dispose()


OLD, OTHER = "a" * 64, "b" * 64
ASP, SSP = Protocols("bsp", "asp", "same"), Protocols("bsp", "ssp:3", "own")


def old_job(fingerprint: str, protocols: Protocols, rule: str | None, seed: int) -> dict[str, Any]:
    return {
        **flat(IDENTITY.job),
        **flat(protocols),
        "momentum_after_switch": rule,
        "fingerprint": fingerprint,
        "reference": "digits",
        "metric_name": "accuracy",
        "registered_at": STARTED_AT,
        "next_seed": seed,
    }


def old_search(fingerprint: str, study: str, **others: Any) -> dict[str, Any]:
    of_search = {**flat(SEARCH), "registered_at": STARTED_AT, **others}
    return {**of_search, "study": study, "fingerprint": fingerprint}


def old_policy(fingerprint: str, version: int, hours: int, protocols: Protocols) -> dict[str, Any]:
    return {
        **flat(POLICY),
        **flat(protocols),
        "fingerprint": fingerprint,
        "version": version,
        "study": f"{fingerprint[:3]}-{version}",
        "created_at": STARTED_AT + timedelta(hours=hours),
    }


def old_trial(fingerprint: str, **values: Any) -> dict[str, Any]:
    usual = {
        "switch_percent": 50.0,
        "replicate": 0,
        "worker_steps": 1000,
        "state": "complete",
        "converged_accuracy": 0.9,
        "final_accuracy": 0.9,
        "converged": True,
        "diverged": False,
        "stopped_early": False,
        "training_seconds": 2.0,
        "inherited_seconds": 0.0,
        "switch_overhead_seconds": 0.0,
        "ended_at": STARTED_AT,
        "speculative": False,
        "online": "none",
        "switch_mechanism": "hot",
    }
    return {**usual, "fingerprint": fingerprint, **values}


def test_jobs_that_differ_in_their_protocols_alone_become_one(any_url: str) -> None:
    make_former(any_url, "0005")
    # Of jobs of ours that do not say it, the rule is the first that there was.
    add(any_url, "workloads", old_job(OLD, ASP, None, 3), old_job(OTHER, SSP, "own", 7))
    add(any_url, "searches", old_search(OLD, "aaa-1"), old_search(OTHER, "bbb-1"))
    policies = (
        old_policy(OLD, 1, 1, ASP),
        old_policy(OTHER, 1, 2, SSP),
        old_policy(OLD, 2, 3, ASP),
    )
    add(any_url, "policies", *policies)
    add(
        any_url,
        "policy_evidence",
        *(
            {
                **flat(POLICY.evidence[0]),
                **{name: policy[name] for name in ("fingerprint", "version", "study")},
                "position": 0,
            }
            for policy in policies
        ),
    )
    add(
        any_url,
        "policy_aliases",
        {"fingerprint": OLD, "alias": CURRENT, "version": 2},
        {"fingerprint": OTHER, "alias": CURRENT, "version": 1},
        {"fingerprint": OTHER, "alias": "pinned", "version": 1},
    )
    add(
        any_url,
        "trials",
        old_trial(OLD, study="aaa-1", trial_number=0, seed=1, candidate_percent=50.0),
        old_trial(OTHER, study="bbb-1", trial_number=0, seed=1, candidate_percent=50.0),
        old_trial(OTHER, use_id="it", policy_version=1, seed=2),
    )
    fingerprint = IDENTITY.fingerprint
    with open_database(any_url, create=False) as database:
        registry, store = PolicyRegistry(database), TrialStore(database)
        assert [one.job for one in registry.workloads("digits")] == [IDENTITY.job]
        found = registry.policies(workload=fingerprint)
        assert [(one.version, one.protocols) for one in found] == [(3, ASP), (2, SSP), (1, ASP)]
        assert [one.study for one in found] == ["aaa-2", "bbb-1", "aaa-1"]
        assert all(len(one.evidence) == 1 for one in found)
        assert registry.aliases(fingerprint) == {CURRENT: 3, "pinned": 2}
        current = [registry.current(fingerprint, one) for one in (ASP, SSP)]
        assert current == found[:2]
        assert [one.protocols for one in store.searches()] == [ASP, SSP]
        trials = [(one.origin.study, one.job.second_protocol) for one in store.trials()]
        assert trials == [("aaa-1", "asp"), ("bbb-1", "ssp:3")]
        assert [one.origin.study for one in store.trials(ASP)] == ["aaa-1"]
        (use,) = uses(database, fingerprint)
        assert (use.origin.policy_version, use.job.momentum_after_switch) == (2, "own")
        assert [*database_findings(database)] == []
        with database.transaction(read_only=True) as connection:
            row = connection.execute(text("SELECT next_seed FROM syncswitch_workloads")).one()
    assert row.next_seed == 7


def test_a_switch_that_failed_was_to_the_second_protocol_of_its_run(any_url: str) -> None:
    make_former(any_url, "0006")
    own = {"reference": "digits", "registered_at": STARTED_AT, "next_seed": 0}
    of_job = {**flat(IDENTITY.job), "fingerprint": OLD, **own, "metric_name": "accuracy"}
    add(any_url, "workloads", of_job)
    add(any_url, "policies", old_policy(OLD, 1, 1, SSP))
    add(any_url, "trials", {**old_trial(OLD, use_id="it", policy_version=1, seed=2), **flat(SSP)})
    failed = {"switch_percent": 6.25, "alarm": "low", "worker_step": 90}
    seconds = {"elapsed_seconds": 2.0, "lost_seconds": 1.0}
    add(any_url, "failed_switches", {"trial_id": 1, "position": 0, **failed, **seconds})
    with open_database(any_url, create=False) as database:
        (use,) = uses(database, OLD)
        assert use.failed == (FailedSwitch(6.25, "low", 90, 2.0, 1.0, None, "ssp:3"),)
        assert use.step_seconds is None
        assert [*database_findings(database)] == []


def test_options_of_a_search_get_their_names_of_today(any_url: str) -> None:
    make_former(any_url, "0004")
    add(any_url, "workloads", old_job(OLD, ASP, "same", 0))
    options = {"keep": 0.9, "uses": 7, "budget": 4}
    add(
        any_url,
        "searches",
        old_search(OLD, "aaa-1", settings=5, options=options, strategy="comparison"),
    )
    add(any_url, "policies", {**old_policy(OLD, 1, 1, ASP), "keep": 0.9})
    engine = create_engine(driver_url(any_url))
    for _ in range(2):
        with open_database(any_url, create=False) as database:
            (search,) = TrialStore(database).searches()
            renamed = {"min_kept_share": 0.9, "expected_runs": 7, "budget": 4}
            assert (search.options, search.strategy, search.halvings) == (renamed, "sweep", 5)
            assert [one.min_kept_share for one in PolicyRegistry(database).policies()] == [0.9]
        with engine.connect() as connection:
            revision = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}"))
            assert revision.scalar() == REVISION
    engine.dispose()


def test_of_those_who_open_a_former_revision_at_once_one_updates_it(
    url: str, at_once: AtOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_former(url, "0004")
    looked = multiprocessing.get_context("fork").Barrier(3)

    def open_and_count(_: int) -> int:
        # All have seen the former revision before anyone changes it.
        def examined_by_all(*args: Any, **options: Any) -> Any:
            found = examined(*args, **options)
            looked.wait(30)
            return found

        monkeypatch.setattr(engine_module, "examined", examined_by_all)
        with open_database(url, create=False) as database:
            return len(TrialStore(database).searches())

    assert at_once(open_and_count, 3) == [0, 0, 0]
