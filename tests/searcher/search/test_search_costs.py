"""The cost of a search in the database is the one that it reports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from generated_trainer import GeneratedTrainer
from searches import search

from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.queries.search_costs import study_costs
from syncswitch.storage.queries.summaries import switch_point_statistics


@pytest.fixture
def database(url: str, our_tables: None) -> Iterator[Database]:
    with open_database(url, create=False) as opened:
        yield opened


@pytest.mark.parametrize(
    ("diverges_below_percent", "target_accuracy"), [(0.0, None), (30.0, None), (0.0, 0.95)]
)
def test_the_cost_is_that_of_the_search(
    database: Database, diverges_below_percent: float, target_accuracy: float | None
) -> None:
    trainer = GeneratedTrainer(
        failures=2, delay_seconds=0.01, diverges_below_percent=diverges_below_percent
    )
    strategy = PaperStrategy(3, 2, target_accuracy=target_accuracy)
    result = search(database.url, trainer, SearchPlan(strategy))
    (found,) = study_costs(database, study=result.policy.study)
    cost = found.cost
    assert result.cost == cost
    assert (cost.failed_runs, cost.running_runs) == (2, 0)
    assert cost.baseline_is_estimated == (target_accuracy is not None)
    assert cost.baseline_seconds == pytest.approx(100)
    assert cost.wall_seconds > 0
    assert (found.policy_version, found.strategy) == (result.policy.version, "paper")


def test_the_switch_points_are_those_of_the_closing_table(database: Database) -> None:
    result = search(database.url)
    settings = switch_point_statistics(database, study=result.policy.study)
    assert len(settings) == len(result.switch_points) == 4
    for one, shown in zip(settings, result.switch_points, strict=True):
        assert one.candidate_percent == shown.summary.switch_percent
        assert (one.runs, one.diverged_runs) == (shown.summary.runs, shown.summary.diverged_runs)
        assert one.mean_accuracy == pytest.approx(shown.summary.mean_accuracy, rel=1e-12)
        assert one.sd_accuracy == pytest.approx(shown.summary.standard_deviation, rel=1e-9)
        assert one.mean_training_seconds == pytest.approx(shown.training_seconds, rel=1e-12)
        assert one.target_accuracy == result.policy.target_accuracy
    chosen = [one for one in settings if one.candidate_percent == result.policy.switch_percent]
    assert chosen[0].speed_up == pytest.approx(result.policy.measured.speed_up, rel=1e-12)
