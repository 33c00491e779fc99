"""What the database says that a search cost is what the search itself says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from generated_trainer import GeneratedTrainer, identity

from syncswitch.searcher.loop.search import Search
from syncswitch.searcher.results.result import SearchResult
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.searcher.study.plan import SearchPlan
from syncswitch.searcher.study.repair import Patience
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.queries.search_costs import StudyCost, study_costs
from syncswitch.storage.queries.summaries import switch_point_statistics

QUICK = Patience(poll_seconds=0.01, retry_seconds=0.0)


@pytest.fixture
def database(url: str, our_tables: None) -> Iterator[Database]:
    with open_database(url, create=False) as opened:
        yield opened


def search(
    database: Database, trainer: GeneratedTrainer, strategy: PaperStrategy
) -> tuple[SearchResult, StudyCost]:
    plan = SearchPlan(strategy)
    result = Search(database, identity(), plan, lambda: trainer, patience=QUICK).run()
    (cost,) = study_costs(database, study=result.policy.study)
    return result, cost


def assert_equal(found: StudyCost, result: SearchResult) -> None:
    cost = result.cost
    assert found.paid_seconds == pytest.approx(cost.paid_seconds, rel=1e-12)
    assert (found.completed_runs, found.failed_runs) == (cost.trials, cost.failed_trials)
    assert found.running_runs == 0
    assert found.wall_seconds == cost.wall_seconds > 0
    assert found.policy_version == result.policy.version
    assert found.strategy == result.policy.strategy


@pytest.mark.parametrize("diverges_below_percent", [0.0, 30.0])
def test_the_cost_is_that_of_the_search(database: Database, diverges_below_percent: float) -> None:
    trainer = GeneratedTrainer(
        failures=2, delay_seconds=0.01, diverges_below_percent=diverges_below_percent
    )
    result, found = search(database, trainer, PaperStrategy(3, 2))
    assert_equal(found, result)
    assert found.failed_runs == 2
    assert found.baseline_seconds == pytest.approx(result.cost.baseline_seconds, rel=1e-12)
    assert found.bsp_multiples == pytest.approx(result.cost.bsp_multiples, rel=1e-12)


def test_an_estimated_baseline_is_not_in_the_database(database: Database) -> None:
    strategy = PaperStrategy(2, 1, target_accuracy=0.95)
    result, found = search(database, GeneratedTrainer(delay_seconds=0.01), strategy)
    assert result.cost.is_estimated
    assert_equal(found, result)
    assert (found.baseline_seconds, found.bsp_multiples) == (None, None)


def test_the_switch_points_are_those_of_the_closing_table(database: Database) -> None:
    result, found = search(database, GeneratedTrainer(delay_seconds=0.01), PaperStrategy(3, 2))
    settings = switch_point_statistics(database, study=found.study)
    assert len(settings) == len(result.switch_points) == 4
    for one, shown in zip(settings, result.switch_points, strict=True):
        assert one.candidate_percent == shown.summary.switch_percent
        assert (one.runs, one.diverged_runs) == (shown.summary.runs, shown.summary.diverged_runs)
        assert one.mean_accuracy == pytest.approx(shown.summary.mean_accuracy, rel=1e-12)
        assert one.sd_accuracy == pytest.approx(shown.summary.standard_deviation, rel=1e-9)
        assert one.mean_training_seconds == pytest.approx(shown.training_seconds, rel=1e-12)
        assert one.target_accuracy == result.policy.target_accuracy
    chosen = [one for one in settings if one.candidate_percent == result.policy.switch_percent]
    assert chosen[0].speed_up == pytest.approx(result.policy.speed_up, rel=1e-12)
