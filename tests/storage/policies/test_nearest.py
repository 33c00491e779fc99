"""What is suggested where there is no policy for the job itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.policies.nearest import (
    known_facts,
    nearest_hint,
    related_switches,
    suggest,
)
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.policies.similarity import REAL, JobFacts
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import SearchInfo
from tests.storage.conftest import both_databases

Add = Callable[..., WorkloadIdentity]


@pytest.fixture
def register(database: Database, identity: WorkloadIdentity, search: SearchInfo) -> Add:
    """Registers a workload, without a policy."""
    store = TrialStore(database)

    def add(**changes: Any) -> WorkloadIdentity:
        job = replace(identity, **changes)
        study = f"search-{job.fingerprint[:12]}"
        found = replace(search, study=study, fingerprint=job.fingerprint)
        store.register(job, f"{job.name}.py:job", found)
        return job

    return add


@pytest.fixture
def publish(database: Database, register: Add, policy: TimingPolicy) -> Add:
    """Registers a workload and publishes its policy."""
    registry = PolicyRegistry(database)

    def add(switch_percent: float = 12.5, **changes: Any) -> WorkloadIdentity:
        job = register(**changes)
        names = ("fingerprint", "workers", "total_worker_steps", "first_protocol")
        values = {name: getattr(job, name) for name in names}
        second = job.second_protocol
        registry.publish(
            replace(
                policy,
                **values,
                switch_percent=switch_percent,
                second_protocol=second,
                workload=job.name,
                study=f"policy-{job.fingerprint[:12]}",
            )
        )
        return job

    return add


@both_databases
def test_the_nearest_current_policy_is_suggested_with_what_differs(
    database: Database, publish: Add
) -> None:
    wanted = JobFacts.of(publish(name="other size", workers=2))
    publish(name="far", workers=64)
    best = publish(name="same size", model="another model", batch_size=64, workers=4)
    found = suggest(database, replace(wanted, workers=4))
    assert found is not None
    assert found.policy.fingerprint == best.fingerprint
    assert found.policy.evidence
    assert found.differences == ("another model", "batch size 64 instead of 32")


def test_current_is_what_is_suggested(
    database: Database, publish: Add, policy: TimingPolicy
) -> None:
    job = publish()
    registry = PolicyRegistry(database)
    registry.publish(replace(policy, study="second", created_at="2026-02-02T00:00:00+00:00"))
    registry.set_alias(job.fingerprint, "current", 1)
    registry.set_alias(job.fingerprint, "newer", 2)
    found = suggest(database, replace(JobFacts.of(job), momentum=0.0))
    assert found is not None
    assert found.policy.version == 1


def test_nothing_comparable_is_no_suggestion(database: Database, publish: Add) -> None:
    assert suggest(database, JobFacts(workers=4)) is None
    publish(workers=4)
    assert suggest(database, JobFacts(workers=17)) is None
    assert suggest(database, JobFacts(workers=16)) is not None
    assert suggest(database, JobFacts(workers=1)) is not None
    assert suggest(database, JobFacts(workers=10**30)) is None
    assert suggest(database, JobFacts(workers=4, second_protocol="ssp")) is None


def test_what_could_not_be_compared_is_said_last(database: Database, publish: Add) -> None:
    publish(batch_size=None, workers=8)
    wanted = JobFacts(workers=4, total_worker_steps=1000, batch_size=32, simulated_cluster=REAL)
    found = suggest(database, wanted)
    assert found is not None
    first, last = found.differences
    assert first == "8 workers instead of 4: a smaller cluster may switch earlier"
    assert last.startswith("not known, so not compared: model, data set, batch size, ")


def test_of_a_registered_workload_the_details_are_known(database: Database, register: Add) -> None:
    small = register(workers=2)
    large = register(workers=8)
    register(name="other")
    assert known_facts(database, "digits", workers=2) == JobFacts.of(small)
    for selector in ("digits", "digits.py:job"):
        # The newest one, where nothing says which.
        assert known_facts(database, selector) == JobFacts.of(large)
    assert known_facts(database, small.fingerprint[:8]) == JobFacts.of(small)
    assert known_facts(database, "digits", workers=16, protocols=("asp", "bsp")) == replace(
        JobFacts.of(large), workers=16, first_protocol="asp", second_protocol="bsp"
    )


def test_of_several_rows_that_of_the_same_size_and_protocols_is_taken(
    database: Database, register: Add
) -> None:
    register(workers=8, batch_size=8)
    register(workers=8, batch_size=16, second_protocol="ssp")
    register(workers=4, batch_size=32, second_protocol="ssp")
    for workers, pair, batch_size in (
        (8, ("bsp", "asp"), 8),
        (8, ("bsp", "ssp"), 16),
        (4, ("bsp", "asp"), 32),
        (2, ("bsp", "asp"), 8),
    ):
        facts = known_facts(database, "digits", workers=workers, protocols=pair)
        assert facts is not None
        assert (facts.workers, facts.batch_size) == (workers, batch_size)


def test_of_an_unknown_workload_the_arguments_alone_are_known(database: Database) -> None:
    assert known_facts(database, "unknown") is None
    assert known_facts(database, "unknown", protocols=("bsp", "asp")) is None
    size = JobFacts(workers=3, simulated_cluster=REAL)
    assert known_facts(database, "unknown", workers=3) == size
    assert known_facts(database, "unknown", workers=3, protocols=("bsp", "asp")) == replace(
        size, first_protocol="bsp", second_protocol="asp"
    )


def test_of_a_real_job_and_a_newer_simulated_one_the_real_one_is_meant(
    database: Database, register: Add
) -> None:
    real = register()
    simulated = register(simulated_cluster="5")
    larger = register(simulated_cluster="5", workers=8)
    assert known_facts(database, "digits") == JobFacts.of(real)
    assert known_facts(database, "digits", workers=4) == JobFacts.of(real)
    assert known_facts(database, simulated.fingerprint) == JobFacts.of(simulated)
    assert known_facts(database, "digits", workers=8) == JobFacts.of(larger)


def test_the_hint_names_the_nearest_policy(
    url: str, publish: Add, identity: WorkloadIdentity
) -> None:
    publish()
    wanted = replace(identity, total_worker_steps=400)
    assert nearest_hint(url, wanted) == (
        "; the nearest policy is version 1 of 'digits' for 4 workers, bsp,asp (12.5 %), but:"
        " 1,000 worker-steps instead of 400"
    )
    assert nearest_hint(url, identity).endswith("but: nothing known differs")


def test_the_hint_says_that_the_nearest_policy_is_a_simulated_one(
    url: str, publish: Add, identity: WorkloadIdentity
) -> None:
    publish(simulated_cluster="5")
    assert nearest_hint(url, identity) == (
        "; the nearest policy is version 1 of 'digits' for 4 simulated workers, bsp,asp (12.5 %),"
        " but: a simulated cluster instead of a real one: its speeds are a model's"
    )
    publish(batch_size=64)
    assert "for 4 workers, bsp,asp (12.5 %), but: batch size 64" in nearest_hint(url, identity)


def test_no_hint_is_no_error(url: str, database: Database, identity: WorkloadIdentity) -> None:
    assert nearest_hint(url, identity) == ""
    assert nearest_hint(f"{url}-that-is-not-there", identity) == ""
    with open_database(url, create=False):
        assert nearest_hint("nonsense", identity) == ""


@both_databases
def test_related_jobs_give_a_start_the_most_similar_first(
    database: Database, publish: Add, identity: WorkloadIdentity
) -> None:
    assert related_switches(database, identity) == ()
    publish(50.0, workers=8)
    publish(6.25, workers=4, learning_rate=0.2)
    publish(25.0, workers=4, batch_size=64, learning_rate=0.2, total_worker_steps=500)
    publish(3.125, workers=2, total_worker_steps=2000)
    publish(6.25, workers=3)
    assert related_switches(database, identity) == (6.25, 25.0, 6.25, 50.0, 3.125)


def test_a_simulated_job_gives_a_real_one_a_start_after_those_that_are_more_alike(
    database: Database, publish: Add, identity: WorkloadIdentity
) -> None:
    publish(6.25, simulated_cluster="5")
    assert related_switches(database, identity) == (6.25,)
    publish(3.125, total_worker_steps=3000)
    publish(12.5, simulated_cluster="5", total_worker_steps=2100)  # too much together
    publish(25.0, learning_rate=0.2)
    publish(50.0)
    assert related_switches(database, identity) == (50.0, 25.0, 6.25, 3.125)
    simulated = replace(identity, simulated_cluster="5")
    assert related_switches(database, simulated) == (6.25, 50.0, 12.5, 25.0)


def test_a_job_is_related_to_itself(
    database: Database, publish: Add, identity: WorkloadIdentity, policy: TimingPolicy
) -> None:
    publish(25.0, workers=4, learning_rate=0.2)
    publish(6.25)
    assert related_switches(database, identity) == (6.25, 25.0)
    registry = PolicyRegistry(database)
    registry.publish(replace(policy, study="a second search", switch_percent=100.0))
    assert related_switches(database, identity) == (100.0, 25.0)
    registry.roll_back(identity.fingerprint)
    assert related_switches(database, identity) == (6.25, 25.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"workers": 32},
        {"second_protocol": "ssp"},
        {"data_set": "letters"},
        {"name": "other", "model": "another model"},
        {"total_worker_steps": 5000},
        {"batch_size": 64, "learning_rate": 0.2, "total_worker_steps": 400},
    ],
)
def test_what_trains_something_else_or_much_longer_is_not_related(
    database: Database, publish: Add, identity: WorkloadIdentity, changes: dict[str, Any]
) -> None:
    publish(**changes)
    assert related_switches(database, identity) == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"workers": 16},
        {"workers": 1},
        {"total_worker_steps": 4000},
        {"name": "other"},
        {"model": "another layer more"},
        {"data_set": None},
        {"momentum": 0.0, "loss": "hinge", "metric": "top 5"},
    ],
)
def test_the_same_model_or_name_on_another_cluster_is_related(
    database: Database, publish: Add, identity: WorkloadIdentity, changes: dict[str, Any]
) -> None:
    publish(**changes)
    assert related_switches(database, identity) == (12.5,)


def test_an_imported_job_is_known_by_its_name(
    database: Database, publish: Add, identity: WorkloadIdentity
) -> None:
    imported = replace(identity, model=None, data_set=None, workers=8)
    publish(25.0, model=None, data_set=None)
    publish(50.0, model=None, data_set=None, name="other")
    assert related_switches(database, imported) == (25.0,)


def test_no_more_than_eight_and_a_workload_without_a_policy_gives_none(
    database: Database, publish: Add, register: Add, identity: WorkloadIdentity
) -> None:
    register(learning_rate=0.1001)
    for number in range(10):
        publish(float(number), learning_rate=0.11 + 0.01 * number)
    assert related_switches(database, identity) == tuple(map(float, range(8)))
