from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import pytest

from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import FatalError, PolicyError
from syncswitch.storage.policies.registry import CURRENT, EvidenceTrial, PolicyEntry, PolicyRegistry
from syncswitch.storage.records.guard import Band, BandPoint
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Owner
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


def test_a_workload_is_found_by_every_name_that_its_policies_had(
    registry: PolicyRegistry, store: TrialStore
) -> None:
    first = registry.publish(POLICY)
    store.register(changed(IDENTITY, name="numbers"), "numbers", SEARCH)
    for name in ("digits", "numbers"):
        assert registry.lookup(name) == registry.policies(workload=name) == [first]
    second = registry.publish(changed(POLICY, study="digits-2", workload="numbers"))
    for name in ("digits", "numbers"):
        assert registry.lookup(name) == [second]
        assert registry.policies(workload=name) == [second, first]
    assert registry.lookup("other") == []


@both_databases
def test_each_study_publishes_one_version_and_they_count_from_1(registry: PolicyRegistry) -> None:
    first = registry.publish(replace(POLICY, version=7, created_at="2026-01-31T14:00:00+02:00"))
    second = registry.publish(replace(POLICY, study="digits-2", version=0))
    assert first == replace(POLICY, created_at="2026-01-31T12:00:00+00:00")
    assert second == replace(POLICY, study="digits-2", version=2)
    assert registry.publish(replace(POLICY, switch_percent=99.0)) == first
    found = [registry.get(POLICY.job.fingerprint, version) for version in (1, 2, 3)]
    assert found == [first, second, None]
    assert registry.aliases(POLICY.job.fingerprint) == {CURRENT: 2}


@both_databases
def test_a_study_of_another_workload_is_not_taken_for_its_own(
    registry: PolicyRegistry, store: TrialStore
) -> None:
    other = OTHER_IDENTITY.fingerprint
    store.register(OTHER_IDENTITY, "digits", replace(SEARCH, study="x", fingerprint=other))
    registry.publish(POLICY)
    with pytest.raises(FatalError, match="refuses these values"):
        registry.publish(changed(POLICY, fingerprint=other))


NOT_KNOWN = {
    "mean_accuracy": None,
    "training_seconds": None,
    "baseline_seconds": None,
    "evidence": (),
    "software": {},
}
PROMISED = {
    "confidence": 0.1 + 0.2,
    "guarded": True,
    "min_kept_share": 0.9,
    "kept_share": 0.1 + 0.2,
    "delivered_share": 0.7 + 0.1,
    "baseline_kept_share": 1.0,
    "expected_time": 0.1 + 0.7,
    "speed_up_low": 0.75,
    "speed_up_high": 1.5,
    "reason": "saves no time",
    "band": Band(0.9, 0.01, 3, (BandPoint(500, 0.1 + 0.2, 0.0), BandPoint(1000, 0.9, 1e-3))),
}


@both_databases
@pytest.mark.parametrize("changes", [NOT_KNOWN, PROMISED, {"confidence": 0.0}, {"confidence": 1.0}])
def test_a_policy_keeps_what_it_says(registry: PolicyRegistry, changes: dict[str, Any]) -> None:
    published = changed(POLICY, **changes)
    assert registry.publish(published) == published
    assert registry.lookup("digits") == registry.policies() == [published]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"switch_percent": 140.0}, "switch_percent"),
        ({"target_accuracy": float("nan")}, "target_accuracy"),
        ({"created_at": "2026-01-31T12:00:00"}, "created_at"),
        ({"band": Band(1.9, 0.01)}, "band"),
        ({"fingerprint": "f" * 64}, "is not in this database"),
    ],
)
def test_an_impossible_policy_is_refused(
    registry: PolicyRegistry, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(PolicyError, match=said):
        registry.publish(changed(POLICY, **change))
    assert registry.policies() == []


@both_databases
def test_lookup_finds_the_current_policy_of_each_fingerprint_newest_first(
    registry: PolicyRegistry, store: TrialStore
) -> None:
    large = OTHER_IDENTITY.fingerprint
    store.register(OTHER_IDENTITY, "digits", replace(SEARCH, study="large", fingerprint=large))
    first = registry.publish(POLICY)
    second = registry.publish(
        replace(POLICY, study="digits-2", created_at="2026-02-02T00:00:00+00:00")
    )
    newest = registry.publish(
        changed(
            POLICY,
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
    assert registry.lookup("digits", workers=10**30) == []
    assert registry.lookup("digits", protocols=("bsp", "asp")) == [newest, second]
    assert registry.lookup("digits", protocols=("asp", "bsp")) == []
    assert registry.lookup("no such workload") == []
    assert registry.policies(workload="digits") == registry.policies() == [newest, second, first]
    assert registry.policies(workload=large) == [newest]


@both_databases
def test_the_evidence_leads_to_the_trials(registry: PolicyRegistry, store: TrialStore) -> None:
    def run(number: int, spec: TrialSpec, study: str = SEARCH.study, **measured: Any) -> int:
        record = replace(RECORD, spec=spec, converged_accuracy=0.895, training_seconds=3.0)
        store.begin(study, number, spec, Owner.current())
        store.complete(study, number, replace(record, **measured))
        return store.get(study, number).trial_id

    spec = replace(RECORD.spec, switch_percent=12.5, replicate=0)
    agreeing = run(1, spec)
    others = [
        run(2, spec, converged_accuracy=0.8949),
        run(3, spec, training_seconds=3.5),
        run(4, spec, diverged=True),
        run(5, replace(spec, switch_percent=25.0)),
        run(6, replace(spec, replicate=1)),
    ]
    store.begin(SEARCH.study, 7, spec, Owner.current())  # still running
    namesake = replace(SEARCH, study="namesake", fingerprint=OTHER_IDENTITY.fingerprint)
    store.register(OTHER_IDENTITY, "digits", namesake)
    run(1, replace(spec, identity=OTHER_IDENTITY), "namesake")
    stated = POLICY.evidence[0]
    evidence = (
        *(replace(stated, trial_number=number) for number in (2, 3, 1, 4, 5, 6, 7, 9)),
        *(replace(stated, study=study) for study in ("elsewhere", "namesake")),
    )
    registry.publish(replace(POLICY, evidence=evidence))
    found = registry.evidence_trials(POLICY.job.fingerprint, 1)
    assert found[2] == EvidenceTrial(agreeing, agrees=True)
    changed = [*found[:2], *found[3:6]]
    assert changed == [EvidenceTrial(trial_id, agrees=False) for trial_id in others]
    assert (found[6].trial_id is None, found[6].agrees) == (False, False)
    assert found[7:] == [EvidenceTrial(None, agrees=False)] * 3
    assert registry.evidence_trials(POLICY.job.fingerprint, 9) == []


@both_databases
def test_one_study_published_by_many_has_one_policy(
    store: TrialStore, url: str, at_once: AtOnce
) -> None:
    def work(number: int) -> TimingPolicy:
        with open_database(url, create=False) as database:
            return PolicyRegistry(database).publish(replace(POLICY, switch_percent=number * 10.0))

    answers = at_once(work, 3)
    assert len({answer.switch_percent for answer in answers}) == 1
    assert {answer.version for answer in answers} == {1}


@both_databases
def test_an_alias_moves_back_and_forth(registry: PolicyRegistry) -> None:
    first = registry.publish(POLICY)
    second = registry.publish(replace(POLICY, study="digits-2"))
    registry.set_alias(POLICY.job.fingerprint, "pinned", 1)
    assert registry.lookup("digits", alias="pinned") == [first]
    assert registry.lookup("digits") == [second]
    registry.set_alias(POLICY.job.fingerprint, "pinned", 2)
    registry.set_alias(POLICY.job.fingerprint, CURRENT, 1)
    assert registry.aliases(POLICY.job.fingerprint) == {CURRENT: 1, "pinned": 2}
    assert registry.lookup("digits") == [first]
    assert registry.lookup("digits", alias="none") == []
    registry.set_alias(POLICY.job.fingerprint, "also", 2)
    newer = PolicyEntry(second, ("also", "pinned"), None, IDENTITY.job)
    older = PolicyEntry(first, (CURRENT,), None, IDENTITY.job)
    assert registry.entries() == registry.entries(workload="digits") == [newer, older]
    assert registry.entries(workload="other") == []
    assert registry.entry(POLICY.job.fingerprint, 1) == older


@both_databases
def test_an_alias_needs_a_name_and_a_version(registry: PolicyRegistry) -> None:
    with fails("policy-not-found", "it has no policy yet"):
        registry.set_alias(POLICY.job.fingerprint, "pinned", 1)
    registry.publish(POLICY)
    for alias in ("", "1", "1a", "Pinned", "a_b", "-a", "a b", "a\n", "a" * 65):
        with fails("parameter-invalid", "cannot be an alias; allowed"):
            registry.set_alias(POLICY.job.fingerprint, alias, 1)
    for version in (0, -1, 2, 10**30):
        assert registry.get(POLICY.job.fingerprint, version) is None
        assert registry.entry(POLICY.job.fingerprint, version) is None
        with fails("policy-not-found", f"no policy version {version}; allowed: 1 to 1"):
            registry.set_alias(POLICY.job.fingerprint, "pinned", version)
    assert registry.aliases(POLICY.job.fingerprint) == {CURRENT: 1}


def test_an_alias_rolls_back_to_the_next_lower_version(registry: PolicyRegistry) -> None:
    for study in ("one", "two", "three"):
        registry.publish(replace(POLICY, study=study))
    registry.set_alias(POLICY.job.fingerprint, "pinned", 2)
    assert registry.roll_back(POLICY.job.fingerprint) == (3, 2)
    assert registry.roll_back(POLICY.job.fingerprint) == (2, 1)
    assert registry.aliases(POLICY.job.fingerprint) == {CURRENT: 1, "pinned": 2}
    with fails("policy-not-found", "is version 1, the lowest one"):
        registry.roll_back(POLICY.job.fingerprint)
    with fails("policy-not-found", "has no alias 'other'; it has: current, pinned"):
        registry.roll_back(POLICY.job.fingerprint, "other")
    with fails("policy-not-found", "has no alias 'current'; it has: none"):
        registry.roll_back("f" * 64)
    assert registry.roll_back(POLICY.job.fingerprint, "pinned") == (2, 1)
    assert registry.aliases(POLICY.job.fingerprint) == {CURRENT: 1, "pinned": 1}


@pytest.mark.parametrize(("moved_to", "is_refused"), [(1, True), (2, False), (4, True)])
def test_an_alias_that_somebody_else_moves_meanwhile_stays_there(
    registry: PolicyRegistry, monkeypatch: pytest.MonkeyPatch, moved_to: int, is_refused: bool
) -> None:
    for study in ("one", "two", "three", "four"):
        registry.publish(replace(POLICY, study=study))
    registry.set_alias(POLICY.job.fingerprint, CURRENT, 3)

    def aliases_just_before(fingerprint: str) -> dict[str, int]:
        registry.set_alias(fingerprint, CURRENT, moved_to)
        return {CURRENT: 3}

    with monkeypatch.context() as patch:
        patch.setattr(registry, "aliases", aliases_just_before)
        if is_refused:
            with fails("policy-moved"):
                registry.roll_back(POLICY.job.fingerprint)
        else:  # that may be its own work, of an attempt whose answer was lost
            assert registry.roll_back(POLICY.job.fingerprint) == (3, 2)
    assert registry.aliases(POLICY.job.fingerprint) == {CURRENT: moved_to}


@both_databases
def test_several_who_roll_back_at_once_go_no_further_than_they_say(
    registry: PolicyRegistry, url: str, at_once: AtOnce
) -> None:
    for number in range(10):
        registry.publish(replace(POLICY, study=f"study-{number}"))

    def work(number: int) -> list[tuple[int, int]]:
        moves = []
        with open_database(url, create=False) as database:
            for _ in range(3):
                with contextlib.suppress(PolicyError):  # somebody else was quicker
                    moves.append(PolicyRegistry(database).roll_back(POLICY.job.fingerprint))
        return moves

    moves = {move for found in at_once(work, 3) for move in found}
    version = registry.aliases(POLICY.job.fingerprint)[CURRENT]
    assert moves == {(step, step - 1) for step in range(10, version, -1)}
