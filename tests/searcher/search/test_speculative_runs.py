"""Speculative and cancelled runs on the command line."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from command_line import Invoke
from generated_trainer import GeneratedTrainer, identity

from syncswitch.storage.database.engine import open_database
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import CANCELLED, Owner, SearchInfo

pytestmark = pytest.mark.usefixtures("our_tables")

JOB = identity()
SEARCH = SearchInfo("ahead", JOB.fingerprint, "paper", 3, 2, 0.01, None, "local", 1)


def made(percent: float, replicate: int) -> TrialRecord:
    return GeneratedTrainer().train(TrialSpec(JOB, percent, 7, replicate))


@pytest.fixture
def ahead(url: str) -> None:
    """Two runs that were needed, one speculative, one that failed, and one that was cancelled."""
    with open_database(url, create=True) as database:
        store, owner = TrialStore(database), Owner.current()
        store.register(JOB, "generated", SEARCH)
        runs = [made(100.0, 0), made(100.0, 1), made(50.0, 0)]
        for number, record in enumerate(runs):
            store.begin("ahead", number, record.spec, owner, speculative=number == 2)
            store.complete("ahead", number, record)
        store.begin("ahead", 3, made(25.0, 0).spec, owner)
        store.fail("ahead", 3, "the server was lost")
        part = replace(made(25.0, 1), worker_steps=900, training_seconds=12.5)
        store.begin("ahead", 4, part.spec, owner, speculative=True)
        store.cancel("ahead", 4, part, CANCELLED)


@pytest.mark.usefixtures("ahead")
def test_it_is_shown_which_are_speculative_and_which_were_cancelled(invoke: Invoke) -> None:
    header, _, *rows = invoke("trials").stdout.splitlines()
    assert header.split() == ["run", "candidate", "speculative", "end", "accuracy", "seconds"]
    cells = [" ".join(row.split()[4:6]) for row in rows]
    assert cells == ["- whole", "- whole", "yes whole", "- failed", "yes cancelled"]
    assert rows[-1].split()[6:] == ["-", "12.5"]
    found = json.loads(invoke("trials", "--json").stdout)
    names = ("speculative", "state", "end", "paid_seconds", "failure")
    assert [tuple(trial[name] for name in names) for trial in found[2:]] == [
        (True, "complete", "whole", 70.0, None),
        (False, "failed", None, None, "the server was lost"),
        (True, "failed", "cancelled", 12.5, CANCELLED),
    ]
    (search,) = json.loads(invoke("status", "--json").stdout)
    counts = ("finished", "in_flight", "failed", "cancelled", "speculative")
    assert [search[f"{name}_runs"] for name in counts] == [3, 0, 1, 1, 2]
    shown = invoke("status").stdout
    assert "3 of at most 8 runs, 1 stale or failed, 2 speculative, 1 cancelled" in shown
    assert "last failure: 25 %, run 1: the server was lost" in shown


@pytest.mark.usefixtures("one_version")
def test_where_no_run_is_speculative_nothing_is_said_of_it(invoke: Invoke) -> None:
    for command in ("status", "trials"):
        table = invoke(command).stdout
        assert "cancelled" not in table
        assert "speculative" not in table
