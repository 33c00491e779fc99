"""Processes at work on one database, whose server is restarted under them."""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from dataclasses import replace
from typing import Any

import pytest

from syncswitch.storage.database.check import database_findings
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import RetryableError
from syncswitch.storage.policies.registry import CURRENT, PolicyRegistry
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import Evaluation, TrialRecord
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Owner
from tests.conftest import postgresql, stop_server
from tests.storage.conftest import IDENTITY, POLICY, RECORD, SEARCH

pytestmark = pytest.mark.slow


def record_of(number: int) -> TrialRecord:
    """A run unlike any other."""
    return replace(
        RECORD,
        spec=replace(RECORD.spec, replicate=number, seed=number),
        evaluations=tuple(
            Evaluation(step, step + number / 1000, 0.5 + step / 10_000, 1 / step)
            for step in range(1, 10 + number % 7)
        ),
        converged_accuracy=number / 1000,
        training_seconds=1000.0 + number,
    )


def policy_of(number: int) -> TimingPolicy:
    return replace(POLICY, study=f"study-{number}", switch_percent=number / 10, evidence=())


def write(database: Database, number: int) -> int:
    """One run and one policy, from the beginning to the end; gives the policy's version."""
    store, registry = TrialStore(database), PolicyRegistry(database)
    measured = record_of(number)
    store.begin(SEARCH.study, number, measured.spec, Owner.current())
    with contextlib.suppress(RetryableError):  # as in a search: a beat may be lost
        store.heartbeat(SEARCH.study, number, 10)
    store.complete(SEARCH.study, number, measured)
    version = registry.publish(policy_of(number)).version
    registry.set_alias(POLICY.job.fingerprint, f"of-{number}", version)
    return version


def check_everything(database: Database, versions: dict[int, int]) -> None:
    """Each run and policy is there once, as it was written, and nothing else."""
    assert sorted(versions.values()) == list(range(1, len(versions) + 1))
    store, registry = TrialStore(database), PolicyRegistry(database)
    rows = store.numbered(SEARCH.study)
    assert sorted(rows) == sorted(versions)
    for number, row in rows.items():
        expected = record_of(number)
        assert (row.state, row.replicate, row.seed) == ("complete", number, number)
        assert row.result.converged_accuracy == expected.converged_accuracy
        assert row.times.training_seconds == expected.training_seconds
        assert row.phases == expected.phases
        assert store.evaluations(SEARCH.study, number) == list(expected.evaluations)
    assert {found.version: found for found in registry.policies()} == {
        version: replace(policy_of(number), version=version) for number, version in versions.items()
    }
    aliases = registry.aliases(POLICY.job.fingerprint)
    assert aliases.pop(CURRENT) == len(versions)
    assert aliases == {f"of-{number}": version for number, version in versions.items()}
    assert list(database_findings(database)) == []


def test_writers_outlast_a_restart_of_the_server() -> None:
    processes, each, restarts = 3, 8, ("fast", "immediate")
    context = multiprocessing.get_context("fork")
    written: Any = context.Queue()
    done = context.Value("i", 0)
    with postgresql() as server:
        url = server.get_uri()
        with open_database(url, create=True) as database:
            TrialStore(database).register(IDENTITY, "digits", SEARCH)

        def work(process: int) -> None:
            with open_database(url, create=False) as database:
                for number in range(process * each, (process + 1) * each):
                    written.put((number, write(database, number)))
                    with done.get_lock():
                        done.value += 1

        writers = [context.Process(target=work, args=(number,)) for number in range(processes)]
        for writer in writers:
            writer.start()
        for count, mode in enumerate(restarts):
            while done.value < (count + 1) * 6:
                time.sleep(0.002)
                assert all(writer.exitcode in (None, 0) for writer in writers)
            stop_server(server, mode)
            time.sleep(2.0 * (count == 0))  # longer than a few quick attempts would last
            server.ensure_postgres_running()
        versions = dict(written.get(timeout=100) for _ in range(processes * each))
        for writer in writers:
            writer.join()
        assert [writer.exitcode for writer in writers] == [0] * processes
        with open_database(url, create=False) as database:
            check_everything(database, versions)
