"""Runs in advance that turn out not to be needed, with two searchers in one process."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from generated_trainer import GeneratedTrainer, identity
from searches import SINGLE, search

from syncswitch.searcher.search.reporter import ReportedTrial, Reporter
from syncswitch.searcher.search.search import (
    Patience,
    SearchResult,
    SearchState,
    TrialObserver,
)
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import RetryableError
from syncswitch.storage.records.trial import Evaluation, TrialRecord, TrialSpec
from syncswitch.storage.trials.store import TrialStore
from syncswitch.trainers.trainer import Observer, Verdict

QUICK = Patience(poll_seconds=0.01, heartbeat_interval_seconds=0.0)


@dataclass
class Slow(GeneratedTrainer):
    """Trains as soon as it is told to."""

    has_begun: threading.Event = field(default_factory=threading.Event)
    may_go_on: threading.Event = field(default_factory=threading.Event)

    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        self.has_begun.set()
        assert self.may_go_on.wait(60)
        return super().train(spec, observer)


@dataclass
class Overtaking(GeneratedTrainer):
    """Lets another search begin a run in advance while its own second run is under way."""

    url: str = ""
    other: Slow = field(default_factory=Slow)
    found: list[SearchResult] = field(default_factory=list)

    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        if len(self.runs) == 1:
            self.thread = threading.Thread(
                target=lambda: self.found.append(
                    search(self.url, self.other, SINGLE, patience=QUICK)
                )
            )
            self.thread.start()
            assert self.other.has_begun.wait(60)
        return super().train(spec, observer)


def test_it_is_stopped_and_keeps_its_cost_alone(url: str) -> None:
    # The second candidate is 75 %, and the other search has begun 25 %.
    trainer = Overtaking(knee_percent=80.0, url=url)
    result = search(url, trainer, SINGLE, patience=QUICK)
    trainer.other.may_go_on.set()
    trainer.thread.join(60)
    assert trainer.runs == [(100.0, 0), (50.0, 0), (75.0, 0)]
    assert trainer.other.runs == [(25.0, 0)]
    with open_database(url, create=False) as database:
        store = TrialStore(database)
        (cancelled,) = (row for row in store.trials() if row.switch_percent == 25.0)
        assert cancelled.is_cancelled
        assert cancelled.speculative
        assert cancelled.converged_accuracy is None
        assert not store.evaluations(str(cancelled.study), cancelled.trial_number or 0)
    (other,) = trainer.found
    assert other.policy == result.policy
    assert 25.0 not in {run.switch_percent for run in other.policy.evidence}
    cost = other.cost
    assert (cost.completed_runs, cost.cancelled_runs, cost.failed_runs) == (3, 1, 0)
    assert cost.speculative_runs == 1
    assert cancelled.paid_seconds is not None
    assert cost.paid_seconds == pytest.approx(result.cost.paid_seconds + cancelled.paid_seconds)


def test_a_busy_database_cancels_nothing() -> None:
    answers = iter([RetryableError("locked"), False, True])

    def is_decided() -> bool:
        answer = next(answers)
        if isinstance(answer, RetryableError):
            raise answer
        return answer

    run = ReportedTrial(0, 25.0, 1, None, 100, "bsp", is_speculative=True)
    loop: Any = SimpleNamespace(
        reporter=Reporter(),
        patience=Patience(heartbeat_interval_seconds=0.0),
        is_decided=is_decided,
        warn_once=lambda _: None,
    )
    state = SearchState(PaperStrategy(), [], {})
    observer = TrialObserver(loop, run, TrialSpec(identity(), 25.0, seed=0), state)
    verdicts = [observer.on_evaluation(Evaluation(step, 1.0, 0.5, 1.0)) for step in (10, 20, 30)]
    assert verdicts == [Verdict.CONTINUE, Verdict.CONTINUE, Verdict.STOP]
    assert observer.is_cancelled
