"""Policies go from one database to another, and nothing is lost or doubled on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.policies.file import PolicyFile, read_policy_file, write_policy
from syncswitch.storage.policies.registry import CURRENT, PolicyRegistry, import_policies
from syncswitch.storage.records.job import RegisteredWorkload, ScheduledJob
from syncswitch.storage.records.policy import Evidence, TimingPolicy
from syncswitch.storage.trials.store import TrialStore
from tests.failing import fails
from tests.records import changed
from tests.storage.conftest import IDENTITY, OTHER_IDENTITY, POLICY, SEARCH, AtOnce, both_databases


def exported(identity: ScheduledJob = IDENTITY, **changes: Any) -> PolicyFile:
    """What was read of the file of a policy, with some values changed."""
    changes = {"fingerprint": identity.fingerprint, "workers": identity.workers, **changes}
    workload = RegisteredWorkload(identity.job, "their.py:job")
    return PolicyFile(Path("policy.json"), changed(POLICY, **changes), workload)


@pytest.fixture
def registry(database: Database) -> PolicyRegistry:
    return PolicyRegistry(database)


@pytest.fixture
def other_database(other_url: str) -> Iterator[Database]:
    with open_database(other_url, create=True) as opened:
        yield opened


@both_databases
def test_a_policy_moves_to_a_database_that_knows_nothing_of_it(
    store: TrialStore, database: Database, other_database: Database, tmp_path: Path
) -> None:
    source, target = PolicyRegistry(database), PolicyRegistry(other_database)
    source.publish(replace(POLICY, study="digits-0"))
    published = source.publish(changed(POLICY, confidence=0.97))
    workload = source.workload(POLICY.job.fingerprint)
    write_policy(tmp_path / "policy.json", published, workload)
    (imported,) = import_policies(other_database, [read_policy_file(tmp_path / "policy.json")])
    assert imported.is_new
    assert imported.current_version == 1
    assert imported.policy == replace(published, version=1)
    assert target.lookup("digits", workers=4) == [imported.policy]
    assert target.workload(IDENTITY.fingerprint) == RegisteredWorkload(IDENTITY.job, "digits")
    (entry,) = target.entries()
    assert entry.imported_at is not None
    assert entry.imported_at > published.created_at
    assert [entry.imported_at for entry in source.entries()] == [None, None]
    (missing, _) = target.evidence_trials(POLICY.job.fingerprint, 1)
    assert missing.trial_id is None


def test_an_import_may_be_repeated_from_every_time_zone(
    database: Database, registry: PolicyRegistry
) -> None:
    file, here = exported(), exported(created_at="2026-01-31T14:00:00+02:00")
    (first,) = import_policies(database, [file])
    before = registry.entries()
    (again, once_more) = import_policies(database, [here, file])
    assert first.is_new
    assert again == once_more == replace(first, is_new=False)
    assert registry.entries() == before


@pytest.mark.parametrize(
    "change",
    [
        {"switch_percent": 25.0},
        {"software": {}},
        {"workload": "renamed"},
        {"evidence": ()},
        {"evidence": (Evidence("digits-1", 1, 12.5, 0, 0.895, False, 3.5),)},
    ],
)
def test_what_is_there_and_says_something_else_is_refused(
    database: Database, registry: PolicyRegistry, change: dict[str, Any]
) -> None:
    import_policies(database, [exported()])
    before = registry.entries()
    said = (
        r"^policy file policy.json was altered: .* as version 1 of workload \w+, and says [^\n]*$"
    )
    with fails("policy-damaged", said):
        import_policies(database, [exported(study="innocent"), exported(**change)])
    assert registry.entries() == before


def test_a_policy_that_contradicts_its_workload_is_refused_with_all_the_others(
    database: Database, registry: PolicyRegistry
) -> None:
    file = exported(study="another")
    wrong = replace(file, policy=changed(file.policy, workers=8))
    with fails("policy-damaged", "workers 8, but that of the workload is 4"):
        import_policies(database, [exported(), wrong])
    assert registry.entries() == []
    assert registry.workload(file.policy.job.fingerprint) is None


def test_an_import_leaves_what_is_there(
    database: Database, store: TrialStore, registry: PolicyRegistry
) -> None:
    """The policy that a search published, the alias, and the name of the workload."""
    ours, theirs = exported(study="ours", version=9), exported(study="theirs")
    published = registry.publish(ours.policy)
    for is_new in (True, False):
        (known, other) = import_policies(database, [ours, theirs])
        assert (known.policy, known.is_new) == (published, False)
        assert (other.is_new, other.policy.version, other.current_version) == (is_new, 2, 1)
    assert registry.aliases(POLICY.job.fingerprint) == {CURRENT: 1}
    assert [entry.imported_at is None for entry in registry.entries()] == [False, True]
    import_policies(database, [exported(changed(IDENTITY, name="digits-of-theirs"))])
    assert registry.workload(POLICY.job.fingerprint) == RegisteredWorkload(IDENTITY.job, "digits")


def test_a_search_here_publishes_though_one_of_its_name_was_imported(
    database: Database, registry: PolicyRegistry
) -> None:
    file = exported()
    import_policies(database, [file])
    mine = replace(POLICY, created_at="2026-02-02T00:00:00+00:00", switch_percent=50.0)
    published = registry.publish(mine)
    assert published == replace(mine, version=2)
    assert registry.publish(replace(mine, created_at="2026-03-03T00:00:00+00:00")) == published
    assert registry.aliases(POLICY.job.fingerprint) == {CURRENT: 2}
    imported = [entry.policy for entry in registry.entries() if entry.imported_at]
    assert imported == [replace(POLICY, version=1)]
    # And others of the same name may follow.
    (third,) = import_policies(database, [exported(created_at="2026-04-04T00:00:00+00:00")])
    assert third.policy.version == 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"workload": "n" * 256}, "workload 'nnn.*256 characters; allowed: 255"),
        ({"study": "a\0b"}, "study 'a.*allowed: 512, none of them NUL"),
        ({"strategy": "s" * 65}, "strategy 's.*allowed: 64"),
        ({"evidence": (Evidence("\0", 1, 12.5, 0, 0.9, False, 3.0),)}, "study '.*allowed: 512"),
        ({"identity": changed(IDENTITY, data_set="a\0")}, "data_set 'a.*allowed: any number, none"),
    ],
)
def test_text_that_no_column_takes_is_refused(
    database: Database, registry: PolicyRegistry, change: dict[str, Any], said: str
) -> None:
    with fails("policy-damaged", said):
        import_policies(database, [exported(**change)])
    assert registry.entries() == []


@both_databases
def test_importers_and_publishers_at_the_same_moment_lose_and_double_no_version(
    url: str, registry: PolicyRegistry, at_once: AtOnce
) -> None:
    """Nobody has registered the workloads before: that is a race, too."""
    each = 4
    files = [
        [
            exported(job, study=f"theirs-{number}-{count}")
            for count in range(each)
            # Some in one order, others in the other one.
            for job in (IDENTITY, OTHER_IDENTITY)[:: 1 if number % 2 else -1]
        ]
        for number in range(2)
    ]

    def work(number: int) -> list[TimingPolicy]:
        with open_database(url, create=False) as database:
            if number < 2:
                return [imported.policy for imported in import_policies(database, files[number])]
            TrialStore(database).register(IDENTITY, "digits", SEARCH)
            registry = PolicyRegistry(database)
            studies = [f"ours-{number}-{count}" for count in range(each)]
            return [registry.publish(replace(POLICY, study=study)) for study in studies]

    answers = [policy for found in at_once(work, 4) for policy in found]
    for job, count in ((IDENTITY, 4 * each), (OTHER_IDENTITY, 2 * each)):
        mine = [policy for policy in answers if policy.job.fingerprint == job.fingerprint]
        assert sorted(policy.version for policy in mine) == list(range(1, count + 1))
        for answer in mine:
            assert registry.get(job.fingerprint, answer.version) == answer
        assert CURRENT in registry.aliases(job.fingerprint)
