"""Runs of a search end where the guard of a later run would send them back."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from generated_trainer import GeneratedTrainer
from searches import search

from syncswitch.searcher.search.observations import observations_of
from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.search.reporter import ReportedTrial, Reporter
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.guard import FailedSwitch
from syncswitch.storage.records.trial import (
    Evaluation,
    RunEvent,
    TrialRecord,
    TrialSpec,
    TrialState,
)
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.trainers.trainer import Observer, Verdict
from tests.failing import fails

TESTS = 20
KNEE = 50.0


class Testing(GeneratedTrainer):
    """Tests 20 times, obeys the observer, and is half as accurate below the knee."""

    __test__ = False

    def _record(self, spec: TrialSpec, observer: Observer, started_at: datetime) -> TrialRecord:
        total = spec.identity.total_worker_steps
        made: list[Evaluation] = []
        is_stopped = False
        for number in range(1, TESTS + 1):
            step = total * number // TESTS
            fails = spec.switch_percent < KNEE and step > spec.switch_percent / 100 * total
            accuracy = 0.9 * min(1.0, 2 * number / TESTS) * (0.5 if fails else 1.0)
            made.append(Evaluation(step, float(number), accuracy, 1.0))
            if observer.on_evaluation(made[-1]) is Verdict.STOP:
                is_stopped = number < TESTS
                # Workers that were under way come to their end, which is tested, too.
                made.append(replace(made[-1], worker_step=step + 1))
                observer.on_evaluation(made[-1])
                break
        last = [test.accuracy for test in made[-5:]]
        return replace(
            super()._record(spec, Observer(), started_at),
            worker_steps=made[-1].worker_step,
            evaluations=tuple(made),
            phases=(),
            converged_accuracy=sum(last) / len(last),
            stopped_early=is_stopped,
            training_seconds=float(len(made)),
        )


class Counter(Reporter):
    def __init__(self) -> None:
        self.alarms: list[int] = []

    def on_event(self, trial: ReportedTrial, event: RunEvent) -> None:
        if event.kind == "alarmed":
            self.alarms.append(trial.number)


def failing_runs(url: str, **options: Any) -> list[tuple[StoredTrial, list[RunEvent]]]:
    """Returns the runs of a search below the knee, with their events."""
    plan = SearchPlan(AdaptiveStrategy(**{"halvings": 3, "early_stop": True, **options}))
    counter = Counter()
    result = search(url, Testing(), plan, reporter=counter)
    assert len(counter.alarms) == len(set(counter.alarms))  # each is told once
    assert result.policy.switch_percent >= KNEE
    with open_database(url, create=False) as database:
        store = TrialStore(database)
        rows = [
            (row, store.events(row.origin.study or "", row.origin.trial_number or 0))
            for row in store.trials()
        ]
    assert all(row.state == TrialState.COMPLETE for row, _ in rows)
    assert not any(events for row, events in rows if row.switch_percent >= KNEE)
    failing = [(row, events) for row, events in rows if row.switch_percent < KNEE]
    assert failing
    return failing


def test_a_failing_run_ends_at_its_third_low_test(url: str) -> None:
    for run, (alarm,) in failing_runs(url):
        assert run.result.stopped_early
        assert run.worker_steps < run.total_worker_steps / 2
        assert (alarm.kind, alarm.worker_step) == ("alarmed", run.worker_steps)
        assert (run.guard.state, run.guard.held_percent) == ("alarmed", None)
        at_alarm = (alarm.worker_step, alarm.elapsed_seconds, 0.0, run.result.final_accuracy)
        assert run.failed == (FailedSwitch(run.switch_percent, alarm.reason, *at_alarm, "asp"),)
        assert observations_of([run])[0].alarmed
        assert alarm.reason.startswith("3 evaluations in a row are below those of runs without")


def test_how_much_it_loses_is_measured_where_that_is_wanted(url: str) -> None:
    for run, events in failing_runs(url, early_stop=False):
        assert not events
        assert not observations_of([run])[0].alarmed


class Refusing(GeneratedTrainer):
    """Cannot train before its user mends something."""

    def _record(self, spec: TrialSpec, observer: Observer, started_at: datetime) -> TrialRecord:
        raise UserError("there is no such file")


def test_a_run_that_its_user_has_to_mend_is_told_of_once(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    plan = SearchPlan(PaperStrategy(halvings=2, runs=1))
    with fails("input-invalid", "there is no such file"):
        search(url, Refusing(), plan)
    # No search goes on as if that switch point had diverged.
    assert not [said for said in caplog.messages if "gave no result" in said]
