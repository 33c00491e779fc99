"""Searches of jobs with recorded runs of sweeps."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from generated_trainer import GeneratedTrainer, identity
from searches import QUICK, search

from syncswitch.searcher.comparison import Comparison
from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.search.search import SearchResult
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.comparison import ComparisonStrategy
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.records.trial import TrialSpec

POINTS = (100.0, 75.0, 50.0, 25.0, 12.5)
RUNS = 5
PLAN = SearchPlan(AdaptiveStrategy(settings=3))


class FailsNowAndThen(GeneratedTrainer):
    """At 25 % the first two seeds are lucky, and the others lose far too much."""

    def _accuracy(self, spec: TrialSpec) -> float:
        fails = spec.switch_percent == 25.0 and spec.replicate in (2, 3, 4)
        return super()._accuracy(spec) - (0.1 if fails else 0.0)


def sweep(url: str, trainer: GeneratedTrainer, runs: int, percents: tuple[float, ...]) -> None:
    trainer.runs.clear()
    strategy = ComparisonStrategy(len(percents), runs, percents=percents)
    with open_database(url, create=True) as database:
        Comparison(database, identity(), strategy, lambda: trainer, patience=QUICK).run()


def found(url: str, trainer: GeneratedTrainer, plan: SearchPlan = PLAN) -> SearchResult:
    trainer.runs.clear()
    return search(url, trainer, plan)


def test_all_of_them_are_looked_at_though_fewer_would_have_done(
    sqlite_url: str, tmp_path: Path
) -> None:
    trainer = FailsNowAndThen(knee_percent=25.0)
    alone = found(f"sqlite:///{tmp_path / 'alone.db'}", trainer).policy
    assert alone.switch_percent == 25.0
    sweep(sqlite_url, trainer, RUNS, (*POINTS, 33.0))
    result = found(sqlite_url, trainer)
    assert trainer.runs == []
    assert result.cost.paid_seconds == 0
    evidence = Counter(run.switch_percent for run in result.policy.evidence)
    assert evidence == dict.fromkeys(POINTS, RUNS)
    # With a guard three failures of five are made up for, and said.
    assert result.policy.switch_percent == 25.0
    assert alone.kept_share is not None
    assert result.policy.kept_share is not None
    assert result.policy.kept_share < 0.7 < alone.kept_share
    assert found(sqlite_url, trainer) == result


def test_another_search_takes_what_a_sweep_had_left_to_the_first(sqlite_url: str) -> None:
    """It begins with the sweep's replicates, and makes the missing ones that it wants."""
    trainer = FailsNowAndThen(knee_percent=25.0)
    policy = found(sqlite_url, trainer).policy
    made = {(run.switch_percent, run.replicate) for run in policy.evidence}
    sweep(sqlite_url, trainer, RUNS, POINTS)
    swept = set(trainer.runs)
    # Of a decided search nothing changes.
    assert found(sqlite_url, trainer).policy == policy
    assert trainer.runs == []
    assert swept | made >= {(percent, number) for percent in POINTS for number in range(RUNS)}
    assert made.isdisjoint(swept)
    result = found(sqlite_url, trainer, replace(PLAN, strategy=replace(PLAN.strategy, uses=100)))
    evidence = {(run.switch_percent, run.replicate) for run in result.policy.evidence}
    assert evidence == swept | set(trainer.runs)


def test_other_seeds_and_other_trainers_are_no_runs_of_the_search(sqlite_url: str) -> None:
    trainer = FailsNowAndThen(knee_percent=25.0)
    sweep(sqlite_url, trainer, 1, POINTS)
    for plan in (replace(PLAN, base_seed=1), replace(PLAN, trainer="simulated")):
        result = found(sqlite_url, trainer, plan)
        assert len(trainer.runs) == len(result.policy.evidence) > 0


def test_the_strategy_of_the_paper_has_its_number_of_runs(sqlite_url: str) -> None:
    trainer = FailsNowAndThen(knee_percent=25.0)
    sweep(sqlite_url, trainer, 3, POINTS)
    result = found(sqlite_url, trainer, SearchPlan(PaperStrategy(settings=3, runs=2)))
    assert trainer.runs == []
    assert set(Counter(run.switch_percent for run in result.policy.evidence).values()) == {2}
