"""Many processes at work on one database, and a server that is restarted under them."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.process import BaseProcess
from typing import Any

import pytest

from syncswitch.storage.database.check import database_findings
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import RetryableError
from syncswitch.storage.policies.registry import CURRENT, PolicyRegistry
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import Evaluation, TrialRecord
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Owner, SearchInfo
from tests.conftest import postgresql, stop_server
from tests.storage.conftest import AtOnce, both_databases

pytestmark = [pytest.mark.slow, both_databases]


STUDY = "digits-1"


def record_of(record: TrialRecord, number: int) -> TrialRecord:
    """What run `number` measured: unlike any other."""
    return replace(
        record,
        spec=replace(record.spec, replicate=number, seed=number),
        evaluations=tuple(
            Evaluation(step, step + number / 1000, 0.5 + step / 10_000, 1 / step)
            for step in range(1, 10 + number % 7)
        ),
        converged_accuracy=number / 1000,
        training_seconds=1000.0 + number,
    )


def policy_of(policy: TimingPolicy, number: int) -> TimingPolicy:
    """What the search `number` found."""
    return replace(policy, study=f"study-{number}", switch_percent=number / 10, evidence=())


def write(database: Database, record: TrialRecord, policy: TimingPolicy, number: int) -> int:
    """One run and one policy, from the beginning to the end; gives the policy's version."""
    store, registry = TrialStore(database), PolicyRegistry(database)
    measured = record_of(record, number)
    store.begin(STUDY, number, measured.spec, Owner.current())
    with contextlib.suppress(RetryableError):  # as in a search: a beat may be lost
        store.heartbeat(STUDY, number, 10)
    store.complete(STUDY, number, measured)
    version = registry.publish(policy_of(policy, number)).version
    registry.set_alias(policy.fingerprint, f"of-{number}", version)
    return version


def check_everything(
    url: str, record: TrialRecord, policy: TimingPolicy, versions: dict[int, int]
) -> None:
    """That each run and policy is there once, as it was written, and nothing else.

    Args:
        url: Of the database.
        record: From which the runs were made.
        policy: From which the policies were made.
        versions: Of the policies, by number of the run that was written with it.
    """
    assert sorted(versions.values()) == list(range(1, len(versions) + 1))
    with open_database(url, create=False) as database:
        store, registry = TrialStore(database), PolicyRegistry(database)
        rows = {row.trial_number: row for row in store.trials()}
        assert sorted(rows) == sorted(versions)
        for number, row in rows.items():
            expected = record_of(record, number)
            assert (row.state, row.replicate, row.seed) == ("complete", number, number)
            assert row.converged_accuracy == expected.converged_accuracy
            assert row.training_seconds == expected.training_seconds
            assert row.phases == expected.phases
            assert store.evaluations(STUDY, number) == list(expected.evaluations)
        found = {found.version: found for found in registry.policies()}
        assert found == {
            version: replace(policy_of(policy, number), version=version)
            for number, version in versions.items()
        }
        aliases = registry.aliases(policy.fingerprint)
        assert aliases.pop(CURRENT) == len(versions)
        assert aliases == {f"of-{number}": version for number, version in versions.items()}
        assert list(database_findings(database)) == []


@pytest.mark.parametrize(
    ("any_url", "processes", "each"),
    [("sqlite", 4, 6), ("postgresql", 5, 5)],
    indirect=["any_url"],
)
def test_many_writers_lose_and_double_nothing(
    url: str,
    processes: int,
    each: int,
    at_once: AtOnce,
    identity: WorkloadIdentity,
    search: SearchInfo,
    record: TrialRecord,
    policy: TimingPolicy,
) -> None:
    def work(process: int) -> dict[int, int]:
        numbers = range(process * each, (process + 1) * each)
        with open_database(url, create=True) as database:
            TrialStore(database).register(identity, "digits", search)
            return {number: write(database, record, policy, number) for number in numbers}

    versions: dict[int, int] = {}
    for answer in at_once(work, processes):
        versions |= answer
    assert len(versions) == processes * each
    check_everything(url, record, policy, versions)


@contextlib.contextmanager
def working(work: Callable[[int], None], processes: int) -> Iterator[list[BaseProcess]]:
    """Runs `work(0)`, `work(1)`, ... meanwhile, each in a process of its own."""
    context = multiprocessing.get_context("fork")
    children: list[BaseProcess] = []
    for number in range(processes):
        children.append(context.Process(target=work, args=(number,)))
        children[-1].start()
    yield children
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * processes


def test_writers_outlast_a_restart_of_the_server(
    identity: WorkloadIdentity, search: SearchInfo, record: TrialRecord, policy: TimingPolicy
) -> None:
    processes, each, restarts = 3, 8, ("fast", "immediate")
    context = multiprocessing.get_context("fork")
    written: Any = context.Queue()
    done = context.Value("i", 0)
    with postgresql() as server:
        url = server.get_uri()
        with open_database(url, create=True) as database:
            TrialStore(database).register(identity, "digits", search)

        def work(process: int) -> None:
            with open_database(url, create=False) as database:
                for number in range(process * each, (process + 1) * each):
                    written.put((number, write(database, record, policy, number)))
                    with done.get_lock():
                        done.value += 1

        with working(work, processes) as writers:
            for count, mode in enumerate(restarts):
                while done.value < (count + 1) * 6:
                    time.sleep(0.002)
                    assert all(writer.exitcode in (None, 0) for writer in writers)
                stop_server(server, mode)
                time.sleep(2.0 * (count == 0))  # longer than a few quick attempts would last
                server.ensure_postgres_running()
            versions = dict(written.get(timeout=100) for _ in range(processes * each))
        check_everything(url, record, policy, versions)
