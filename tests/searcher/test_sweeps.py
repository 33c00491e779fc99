"""A policy on a job that it was not found for: which runs are made, and what they say."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import partial
from operator import attrgetter

import pytest
from command_line import database_file
from generated_trainer import ASP_SECONDS, BSP_SECONDS, GeneratedTrainer
from searches import PLAN, policies_of, search, swept, trials_of

from syncswitch.searcher.search.loop import TrialLoop
from syncswitch.searcher.search.optuna_storage import check_database
from syncswitch.searcher.search.plan import SearchPlan, replicate_seed
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.searcher.sweeps import EvaluatedSwitchPoint, Sweep
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.trials.store import TrialStore
from tests.processes import exit_code_of
from tests.records import changed
from tests.storage.conftest import POLICY

pytestmark = pytest.mark.usefixtures("our_tables")

EARLIER = 3.125
"""Of the foreign policy: before the generated knee, where accuracy is lost."""


def compare(
    url: str,
    percent: float,
    trainer: GeneratedTrainer | None = None,
    *,
    runs: int = 3,
    threshold: float = 0.01,
    seed: int = 0,
) -> Sweep:
    """A sweep with one policy of another job."""
    policy = changed(POLICY, switch_percent=percent, threshold=threshold)
    changes = {"threshold": threshold, "seed": seed, "policies": (policy,)}
    return swept(url, trainer or GeneratedTrainer(), (percent,), runs, **changes)


def point(found: Sweep, percent: float) -> EvaluatedSwitchPoint:
    at = found.jobs[0].at(percent)
    assert at is not None
    return at


@pytest.fixture
def own_search(url: str) -> None:
    """A finished search of the job itself."""
    search(url)


def seconds_at(percent: float) -> float:
    return BSP_SECONDS * percent / 100 + ASP_SECONDS * (1 - percent / 100)


def test_a_job_without_a_policy_of_its_own(url: str) -> None:
    trainer = GeneratedTrainer()
    found = compare(url, 25.0, trainer)
    assert trainer.runs == [(p, r) for p in (100.0, 25.0) for r in range(3)]
    assert trainer.closed == 1
    (job,) = found.jobs
    assert (job.own_policy, job.new_runs) == (None, 6)
    assert [one.runs for one in job.switch_points] == [3, 3]
    assert found.keeps_accuracy(point(found, 25.0))
    gain = found.speed_up(found.jobs[0], 25.0)
    assert gain is not None
    assert gain.value == pytest.approx(BSP_SECONDS / seconds_at(25.0))
    assert policies_of(url) == []
    rows = trials_of(url)
    assert {row.origin.study for row in rows} == {job.study}
    assert {row.seed for row in rows} == {replicate_seed(0, number) for number in range(3)}
    assert check_database(url) == []

    idle = GeneratedTrainer()
    assert compare(url, 25.0, idle) == found
    assert (idle.runs, idle.closed) == ([], 0)


@pytest.mark.usefixtures("own_search")
def test_only_what_is_not_recorded_is_made(url: str) -> None:
    trainer = GeneratedTrainer()
    found = compare(url, EARLIER, trainer)
    # Of the search there are two runs each at 100 % and at its answer, 12.5 %.
    assert trainer.runs == [(100.0, 2), (EARLIER, 0), (EARLIER, 1), (EARLIER, 2), (12.5, 2)]
    (job,) = found.jobs
    assert job.own_policy is not None
    assert job.own_policy.switch_percent == 12.5
    found_runs = [(point.switch_percent, point.runs) for point in job.switch_points]
    assert found_runs == [(100.0, 3), (EARLIER, 3), (12.5, 3)]
    assert not found.keeps_accuracy(point(found, EARLIER))
    assert [policy.version for policy in policies_of(url)] == [1]

    further = GeneratedTrainer()
    assert point(compare(url, EARLIER, further, runs=4), EARLIER).runs == 4
    assert further.runs == [(100.0, 3), (EARLIER, 3), (12.5, 3)]


def test_means_intervals_and_what_is_kept_are_those_of_the_runs(url: str) -> None:
    found = compare(url, 25.0, GeneratedTrainer(noise=0.01))
    rows = [row for row in trials_of(url) if row.switch_percent == 25.0]
    a, b, c = (row.result.converged_accuracy or 0.0 for row in rows)
    mean = (a + b + c) / 3
    deviation = (((a - mean) ** 2 + (b - mean) ** 2 + (c - mean) ** 2) / 2) ** 0.5
    quarter = point(found, 25.0)
    assert quarter.mean_accuracy == pytest.approx(mean)
    # Student's quantile for two degrees of freedom, over the root of three.
    assert quarter.accuracy_half_width == pytest.approx(4.302653 * deviation / 3**0.5)
    assert quarter.training_seconds == pytest.approx(seconds_at(25.0))
    assert point(compare(url, 50.0, runs=1), 50.0).accuracy_half_width is None

    assert len(quarter.accuracies) == found.kept_runs(quarter) == 3
    target = found.target_accuracy
    assert target is not None
    limit = replace(quarter, accuracies=(target - 0.01, target - 0.0101, 1.0))
    assert found.kept_runs(limit) == 2
    assert found.keeps_accuracy(quarter)
    assert not found.keeps_accuracy(replace(quarter, diverged_runs=1))


def test_the_policys_threshold_decides(url: str) -> None:
    trainer = GeneratedTrainer(noise=0.0)  # loses 0.1 at half of the knee
    for threshold, keeps in ((0.0999, False), (0.1, True)):
        found = compare(url, 6.25, trainer, threshold=threshold)
        assert found.keeps_accuracy(point(found, 6.25)) is keeps
    assert len(trainer.runs) == 6


def test_runs_that_cannot_be_compared_do_not_count(url: str) -> None:
    search(url, None, replace(PLAN, trainer="local/processes"))
    trainer = GeneratedTrainer()
    found = compare(url, 12.5, trainer)
    own = found.jobs[0].own_policy
    assert own is not None
    assert own.switch_percent == 12.5  # there is one point for both
    assert trainer.runs == [(percent, run) for percent in (100.0, 12.5) for run in range(3)]


@pytest.mark.usefixtures("own_search")
def test_one_training_is_not_counted_twice(url: str) -> None:
    search(url, None, SearchPlan(PaperStrategy(halvings=2, runs=2)))  # the same seeds
    trainer = GeneratedTrainer()
    found = compare(url, 25.0, trainer)
    assert trainer.runs == [(100.0, 2), (25.0, 2)]
    assert point(found, 100.0).runs == 3
    # Of other seeds there are enough now.
    idle = GeneratedTrainer()
    assert compare(url, 25.0, idle, seed=9).jobs[0].new_runs == 0
    assert idle.runs == []


@pytest.mark.usefixtures("own_search")
def test_runs_that_were_stopped_early_do_not_count(url: str) -> None:
    with closing(sqlite3.connect(database_file(url))) as database, database:
        database.execute(
            "UPDATE syncswitch_trials SET stopped_early = 1"
            " WHERE switch_percent = 100 AND replicate = 0"
        )
    trainer = GeneratedTrainer()
    assert point(compare(url, 12.5, trainer, runs=2), 100.0).runs == 2
    assert trainer.runs == [(100.0, 0)]


def _compare_and_die(url: str, runs: int) -> None:
    real, calls = TrialLoop.run_trial, []

    def deadly(self: TrialLoop[object], *arguments: object) -> None:
        calls.append(1)
        if len(calls) > runs:
            os._exit(9)
        real(self, *arguments)  # type: ignore[arg-type]

    TrialLoop.run_trial = deadly  # type: ignore[method-assign]
    compare(url, 25.0)


def test_killed_again_and_again_it_ends_as_if_it_never_was(url: str) -> None:
    for runs in (1, 2):
        assert exit_code_of(partial(_compare_and_die, url, runs)) == 9
    trainer = GeneratedTrainer()
    found = compare(url, 25.0, trainer)
    assert trainer.runs == [(25.0, 0), (25.0, 1), (25.0, 2)]
    undisturbed = compare(f"{url}-undisturbed", 25.0)
    assert found == undisturbed


def test_a_search_does_not_make_again_what_a_sweep_made(url: str) -> None:
    compare(url, 12.5, runs=2)
    trainer = GeneratedTrainer()
    found = search(url, trainer)
    # The search wants two runs each of 100, 50, 25 and 12.5 %.
    assert trainer.runs == [(p, r) for p in (50.0, 25.0) for r in range(2)]
    assert found.cost.completed_runs == 8
    paid = sum(2 * seconds_at(percent) for percent in (50.0, 25.0))
    assert found.cost.paid_seconds == pytest.approx(paid)
    with open_database(url, create=False) as database:
        store = TrialStore(database)
        rows = store.trials(study=found.policy.study)
        copied = [row for row in rows if row.switch_percent in (100.0, 12.5)]
        original = [row for row in store.trials() if row.origin.study != found.policy.study]
        key = attrgetter("switch_percent", "replicate", "result.converged_accuracy", "phases")
        assert sorted(map(key, copied)) == sorted(map(key, original))
        assert all(row.times.paid_seconds == 0 for row in copied)
        number = copied[0].origin.trial_number
        assert number is not None
        assert len(store.evaluations(found.policy.study, number)) == 5
    assert check_database(url) == []
    # It finds what it would have found alone, and other seeds are other runs.
    alone = found.policy
    assert (alone.switch_percent, len(alone.evidence)) == (12.5, 8)
    other = GeneratedTrainer()
    search(url, other, replace(PLAN, base_seed=1))
    assert len(other.runs) == 8
