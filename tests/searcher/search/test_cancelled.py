"""Speculative runs, those that turn out not to be needed, and how both are shown."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from command_line import Invoke
from generated_trainer import GeneratedTrainer, identity
from searches import SINGLE, HeldTrainer, search

from syncswitch.searcher.search.observer import TrialObserver
from syncswitch.searcher.search.reporter import ReportedTrial, Reporter
from syncswitch.searcher.search.search import SearchResult
from syncswitch.searcher.search.study import Patience, SearchState
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import RetryableError
from syncswitch.storage.records.job import SearchInfo
from syncswitch.storage.records.trial import Evaluation, TrialRecord, TrialSpec
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import CANCELLED, Owner
from syncswitch.trainers.trainer import Observer, Verdict
from tests.wording import Said

QUICK = Patience(poll_seconds=0.01, heartbeat_interval_seconds=0.0)


@dataclass
class Overtaking(GeneratedTrainer):
    """Lets another search begin a run in advance while its own second run is under way."""

    url: str = ""
    other: HeldTrainer = field(default_factory=HeldTrainer)
    found: list[SearchResult] = field(default_factory=list)

    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        if len(self.runs) == 1:
            self.thread = threading.Thread(target=self._search_too)
            self.thread.start()
            assert self.other.has_begun.wait(60)
        return super().train(spec, observer)

    def _search_too(self) -> None:
        self.found.append(search(self.url, self.other, SINGLE, patience=QUICK))


def test_it_is_stopped_and_keeps_its_cost_alone(url: str) -> None:
    # The second candidate is 75 %, and the other search has begun 25 %.
    trainer = Overtaking(knee_percent=80.0, url=url)
    result = search(url, trainer, SINGLE, patience=QUICK)
    trainer.other.may_end.set()
    trainer.thread.join(60)
    assert trainer.runs == [(100.0, 0), (50.0, 0), (75.0, 0)]
    assert trainer.other.runs == [(25.0, 0)]
    with open_database(url, create=False) as database:
        store = TrialStore(database)
        (cancelled,) = (row for row in store.trials() if row.switch_percent == 25.0)
        assert cancelled.is_cancelled
        assert cancelled.speculative
        assert cancelled.result.converged_accuracy is None
        place = str(cancelled.origin.study), cancelled.origin.trial_number or 0
        assert not store.evaluations(*place)
    (other,) = trainer.found
    assert other.policy == result.policy
    assert 25.0 not in {run.switch_percent for run in other.policy.evidence}
    cost = other.cost
    assert (cost.completed_runs, cost.cancelled_runs, cost.failed_runs) == (3, 1, 0)
    assert cost.speculative_runs == 1
    assert cancelled.times.paid_seconds is not None
    paid = result.cost.paid_seconds + cancelled.times.paid_seconds
    assert cost.paid_seconds == pytest.approx(paid)


def test_a_busy_database_cancels_nothing() -> None:
    answers = iter([RetryableError("locked"), False, True])

    def is_decided() -> bool:
        answer = next(answers)
        if isinstance(answer, RetryableError):
            raise answer
        return answer

    run = ReportedTrial(0, 25.0, 1, None, identity(), is_speculative=True)
    study: Any = None  # asked nothing before the first heartbeat
    observer = TrialObserver(
        study,
        Reporter(),
        run,
        TrialSpec(identity(), 25.0, seed=0),
        SearchState(PaperStrategy(), [], {}),
        is_decided=is_decided,
        warn=pytest.fail,
        interval_seconds=0.0,
    )
    verdicts = [observer.on_evaluation(Evaluation(step, 1.0, 0.5, 1.0)) for step in (10, 20, 30)]
    assert verdicts == [Verdict.CONTINUE, Verdict.CONTINUE, Verdict.STOP]
    assert observer.is_cancelled


pytestmark = pytest.mark.usefixtures("our_tables")

JOB = identity()
SEARCH = SearchInfo("ahead", JOB.fingerprint, JOB.protocols, "paper", 3, 2, 0.01, None, "local", 1)


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
def test_it_is_shown_which_are_speculative_and_which_were_cancelled(
    invoke: Invoke, said: Said
) -> None:
    said(invoke("trials").stdout)
    found = invoke.answer("trials")
    names = ("speculative", "state", "end", "paid_seconds", "failure")
    assert [tuple(trial[name] for name in names) for trial in found[2:]] == [
        (True, "complete", "whole", 70.0, None),
        (False, "failed", None, None, "the server was lost"),
        (True, "failed", "cancelled", 12.5, CANCELLED),
    ]
    (search,) = invoke.answer("status")
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
