"""Names that point at versions of policies, and are moved by several at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import PolicyError
from syncswitch.storage.policies.registry import CURRENT, PolicyRegistry
from syncswitch.storage.records.policy import TimingPolicy
from tests.storage.conftest import both_databases

Run = Callable[[Callable[[int], Any], int], list[Any]]


@both_databases
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


@both_databases
@pytest.mark.parametrize("version", [0, -1, 2, 10**30])
def test_an_alias_needs_a_version(
    registry: PolicyRegistry, policy: TimingPolicy, version: int
) -> None:
    registry.publish(policy)
    assert registry.get(policy.fingerprint, version) is None
    assert registry.entry(policy.fingerprint, version) is None
    with pytest.raises(PolicyError, match=f"no policy version {version}; allowed: 1 to 1"):
        registry.set_alias(policy.fingerprint, "pinned", version)
    assert registry.aliases(policy.fingerprint) == {CURRENT: 1}


def test_an_alias_of_a_workload_without_policies_is_refused(registry: PolicyRegistry) -> None:
    with pytest.raises(PolicyError, match="it has no policy yet"):
        registry.set_alias("f" * 64, "pinned", 1)


def test_an_alias_rolls_back_to_the_next_lower_version(
    registry: PolicyRegistry, policy: TimingPolicy
) -> None:
    for study in ("one", "two", "three"):
        registry.publish(replace(policy, study=study))
    registry.set_alias(policy.fingerprint, "pinned", 2)
    assert registry.roll_back(policy.fingerprint) == (3, 2)
    assert registry.roll_back(policy.fingerprint) == (2, 1)
    assert registry.aliases(policy.fingerprint) == {CURRENT: 1, "pinned": 2}
    with pytest.raises(PolicyError, match="is version 1, the lowest one"):
        registry.roll_back(policy.fingerprint)
    assert registry.roll_back(policy.fingerprint, "pinned") == (2, 1)
    assert registry.aliases(policy.fingerprint) == {CURRENT: 1, "pinned": 1}


def test_an_alias_that_is_not_there_cannot_roll_back(
    registry: PolicyRegistry, policy: TimingPolicy
) -> None:
    registry.publish(policy)
    with pytest.raises(PolicyError, match="has no alias 'pinned'; it has: current"):
        registry.roll_back(policy.fingerprint, "pinned")
    with pytest.raises(PolicyError, match="has no alias 'current'; it has: none"):
        registry.roll_back("f" * 64)


@pytest.mark.parametrize(("moved_to", "is_refused"), [(1, True), (2, False), (4, True)])
def test_an_alias_that_somebody_else_moves_meanwhile_stays_there(
    registry: PolicyRegistry,
    policy: TimingPolicy,
    monkeypatch: pytest.MonkeyPatch,
    moved_to: int,
    is_refused: bool,
) -> None:
    for study in ("one", "two", "three", "four"):
        registry.publish(replace(policy, study=study))
    registry.set_alias(policy.fingerprint, CURRENT, 3)

    def aliases_just_before(fingerprint: str) -> dict[str, int]:
        registry.set_alias(fingerprint, CURRENT, moved_to)
        return {CURRENT: 3}

    with monkeypatch.context() as patch:
        patch.setattr(registry, "aliases", aliases_just_before)
        if is_refused:
            with pytest.raises(PolicyError, match="by somebody else at this moment"):
                registry.roll_back(policy.fingerprint)
        else:  # that may be its own work, of an attempt whose answer was lost
            assert registry.roll_back(policy.fingerprint) == (3, 2)
    assert registry.aliases(policy.fingerprint) == {CURRENT: moved_to}


@both_databases
def test_several_who_roll_back_at_once_go_no_further_than_they_say(
    registry: PolicyRegistry, url: str, at_once: Run, policy: TimingPolicy
) -> None:
    for number in range(10):
        registry.publish(replace(policy, study=f"study-{number}"))

    def work(number: int) -> list[tuple[int, int]]:
        moves = []
        with open_database(url, create=False) as database:
            for _ in range(3):
                with contextlib.suppress(PolicyError):  # somebody else was quicker
                    moves.append(PolicyRegistry(database).roll_back(policy.fingerprint))
        return moves

    moves = {move for found in at_once(work, 3) for move in found}
    version = registry.aliases(policy.fingerprint)[CURRENT]
    assert moves == {(step, step - 1) for step in range(10, version, -1)}
