from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from syncswitch.storage.engine import Database, open_database
from syncswitch.storage.errors import FatalError, PolicyError
from syncswitch.storage.policies import CURRENT, PolicyRegistry
from syncswitch.storage.records import TimingPolicy, WorkloadIdentity
from syncswitch.storage.trials import SearchInfo, TrialStore

Run = Callable[[Callable[[int], Any], int], list[Any]]


@pytest.fixture
def registry(database: Database, store: TrialStore) -> PolicyRegistry:
    return PolicyRegistry(database)


def test_versions_count_from_1_whatever_the_policy_says(
    registry: PolicyRegistry, policy: TimingPolicy
) -> None:
    first = registry.publish(replace(policy, version=7))
    second = registry.publish(replace(policy, study="digits-2", version=0))
    assert first == replace(policy, version=1)
    assert second == replace(policy, study="digits-2", version=2)
    assert registry.get(policy.fingerprint, 1) == first
    assert registry.get(policy.fingerprint, 2) == second
    assert registry.get(policy.fingerprint, 3) is None


def test_a_workload_is_found_by_every_name_that_its_policies_had(
    registry: PolicyRegistry,
    store: TrialStore,
    policy: TimingPolicy,
    identity: WorkloadIdentity,
    search: SearchInfo,
) -> None:
    first = registry.publish(policy)
    store.register(replace(identity, name="numbers"), "numbers", search)
    for name in ("digits", "numbers"):
        assert registry.lookup(name) == registry.policies(workload=name) == [first]
    second = registry.publish(replace(policy, study="digits-2", workload="numbers"))
    for name in ("digits", "numbers"):
        assert registry.lookup(name) == [second]
        assert registry.policies(workload=name) == [second, first]
    assert registry.lookup("other") == []


def test_a_study_publishes_once(registry: PolicyRegistry, policy: TimingPolicy) -> None:
    first = registry.publish(policy)
    registry.publish(replace(policy, study="digits-2"))
    assert registry.publish(replace(policy, switch_percent=99.0)) == first
    assert registry.get(policy.fingerprint, 1) == first
    assert registry.aliases(policy.fingerprint) == {"current": 2}


def test_a_study_of_another_workload_is_not_taken_for_its_own(
    registry: PolicyRegistry,
    store: TrialStore,
    policy: TimingPolicy,
    search: SearchInfo,
    other_identity: WorkloadIdentity,
) -> None:
    other = other_identity.fingerprint
    store.register(other_identity, "digits", replace(search, study="x", fingerprint=other))
    registry.publish(policy)
    with pytest.raises(FatalError, match="refuses these values"):
        registry.publish(replace(policy, fingerprint=other))


def test_what_is_not_known_is_none_again(registry: PolicyRegistry, policy: TimingPolicy) -> None:
    unknown = replace(
        policy,
        mean_accuracy=None,
        training_seconds=None,
        baseline_seconds=None,
        evidence=(),
        software={},
    )
    assert registry.publish(unknown) == unknown


def test_an_unknown_workload_is_refused(database: Database, policy: TimingPolicy) -> None:
    with pytest.raises(PolicyError, match="is not in this database"):
        PolicyRegistry(database).publish(policy)


@pytest.mark.parametrize(
    "change",
    [
        {"switch_percent": 140.0},
        {"target_accuracy": float("nan")},
        {"created_at": "yesterday"},
        {"created_at": "2026-01-31T12:00:00"},
        {"workers": 0},
    ],
)
def test_an_impossible_policy_is_refused(
    registry: PolicyRegistry, policy: TimingPolicy, change: dict[str, Any]
) -> None:
    with pytest.raises(PolicyError, match=next(iter(change))):
        registry.publish(replace(policy, **change))
    assert registry.policies() == []


def test_the_time_of_creation_is_given_in_utc(
    registry: PolicyRegistry, policy: TimingPolicy
) -> None:
    published = registry.publish(replace(policy, created_at="2026-01-31T14:00:00+02:00"))
    assert published.created_at == "2026-01-31T12:00:00+00:00"
    assert registry.lookup("digits") == [published]


def test_lookup_finds_the_current_policy_of_each_fingerprint_newest_first(
    registry: PolicyRegistry,
    store: TrialStore,
    policy: TimingPolicy,
    search: SearchInfo,
    other_identity: WorkloadIdentity,
) -> None:
    large = other_identity.fingerprint
    store.register(other_identity, "digits", replace(search, study="large", fingerprint=large))
    first = registry.publish(policy)
    second = registry.publish(
        replace(policy, study="digits-2", created_at="2026-02-02T00:00:00+00:00")
    )
    newest = registry.publish(
        replace(
            policy,
            fingerprint=large,
            workers=8,
            study="large",
            created_at="2026-03-01T00:00:00+00:00",
        )
    )
    assert registry.lookup("digits") == [newest, second]
    assert registry.lookup("digits", workers=8) == [newest]
    assert registry.lookup(large[:10]) == [newest]
    assert registry.lookup("digits", workers=2) == []
    assert registry.lookup("digits", protocols=("bsp", "asp")) == [newest, second]
    assert registry.lookup("digits", protocols=("asp", "bsp")) == []
    assert registry.lookup("no such workload") == []
    assert registry.policies(workload="digits") == registry.policies() == [newest, second, first]
    assert registry.policies(workload=large) == [newest]


def test_an_alias_moves_back_and_forth(registry: PolicyRegistry, policy: TimingPolicy) -> None:
    first = registry.publish(policy)
    second = registry.publish(replace(policy, study="digits-2"))
    registry.set_alias(policy.fingerprint, "pinned", 1)
    assert registry.lookup("digits", alias="pinned") == [first]
    assert registry.lookup("digits") == [second]
    registry.set_alias(policy.fingerprint, "pinned", 2)
    registry.set_alias(policy.fingerprint, CURRENT, 1)
    assert registry.aliases(policy.fingerprint) == {CURRENT: 1, "pinned": 2}
    assert registry.lookup("digits") == [first]
    assert registry.lookup("digits", alias="none") == []


@pytest.mark.parametrize("alias", ["", "1", "1a", "Pinned", "a_b", "-a", "a b", "a\n", "a" * 65])
def test_an_illegal_alias_is_refused(
    registry: PolicyRegistry, policy: TimingPolicy, alias: str
) -> None:
    registry.publish(policy)
    with pytest.raises(PolicyError, match="cannot be an alias; allowed"):
        registry.set_alias(policy.fingerprint, alias, 1)


@pytest.mark.parametrize("version", [0, -1, 2])
def test_an_alias_needs_a_version(
    registry: PolicyRegistry, policy: TimingPolicy, version: int
) -> None:
    registry.publish(policy)
    with pytest.raises(PolicyError, match=f"no policy version {version}; allowed: 1 to 1"):
        registry.set_alias(policy.fingerprint, "pinned", version)
    assert registry.aliases(policy.fingerprint) == {CURRENT: 1}


def test_an_alias_of_a_workload_without_policies_is_refused(registry: PolicyRegistry) -> None:
    with pytest.raises(PolicyError, match="it has no policy yet"):
        registry.set_alias("f" * 64, "pinned", 1)


def test_publishers_at_the_same_moment_lose_and_double_no_version(
    store: TrialStore, url: str, at_once: Run, policy: TimingPolicy
) -> None:
    each = 8

    def work(number: int) -> list[int]:
        with open_database(url, create=False) as database:
            registry = PolicyRegistry(database)
            studies = [f"study-{number}-{count}" for count in range(each)]
            return [registry.publish(replace(policy, study=study)).version for study in studies]

    answers = at_once(work, 6)
    assert sorted(version for versions in answers for version in versions) == list(
        range(1, 6 * each + 1)
    )
    with open_database(url, create=False) as database:
        registry = PolicyRegistry(database)
        for number, versions in enumerate(answers):
            for count, version in enumerate(versions):
                found = registry.get(policy.fingerprint, version)
                assert found == replace(policy, study=f"study-{number}-{count}", version=version)
        assert registry.aliases(policy.fingerprint) == {CURRENT: 6 * each}


def test_one_study_published_by_many_has_one_policy(
    store: TrialStore, url: str, at_once: Run, policy: TimingPolicy
) -> None:
    def work(number: int) -> TimingPolicy:
        with open_database(url, create=False) as database:
            return PolicyRegistry(database).publish(replace(policy, switch_percent=number * 10.0))

    answers = at_once(work, 6)
    assert len({answer.switch_percent for answer in answers}) == 1
    assert {answer.version for answer in answers} == {1}
