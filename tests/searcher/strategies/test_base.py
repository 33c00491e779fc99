"""What all strategies have: thresholds, switch points, directions; and what runs cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from syncswitch.cli.search.launch.run import run as run_command
from syncswitch.cli.words import OPTION_WORDS
from syncswitch.searcher.command_lines import DERIVED, search_command
from syncswitch.searcher.strategies import registry
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.baseline import measured_threshold
from syncswitch.searcher.strategies.observation import Observation, TrialCost, TrialCosts
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.searcher.strategies.planner import Key
from syncswitch.searcher.strategies.registry import (
    STRATEGIES,
    make_strategy,
    stored_strategy,
    switch_points_of,
)
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.metric import Metric
from tests.failing import fails
from tests.identities import GENERATED
from tests.searcher.strategies.strategy_contract import answer_of, info_of, played

ERROR = Metric("error", "min", "m", 0.0, None)


@pytest.mark.parametrize(
    ("accuracies", "largest_loss", "runs", "threshold"),
    [
        ([-10.0, -11.0], None, 3, None),
        # Student's t(0.95; 2) = 2.920 times sqrt(1 + 1 / 3), for a standard deviation of 1.
        ([-10.0, -11.0, -12.0], None, 3, 3.4),
        ([-10.0, -11.0, -12.0, -99.0], None, 3, 3.4),
        ([-1.0, 0.0, -1.0], 1.0, 3, 0.5),
        ([-10.0, -11.0, -12.0, -11.0], None, 5, None),
        # t(0.95; 4) = 2.132 times sqrt(1 + 1 / 5), for a standard deviation of sqrt(1 / 2).
        ([-10.0, -11.0, -12.0, -11.0, -11.0, -99.0], None, 5, 1.7),
        # t(0.95; 19) = 1.729 times sqrt(1 + 1 / 20), for one of sqrt(20 / 19).
        ([-10.0, -12.0] * 10, None, 20, 1.8),
    ],
)
def test_a_threshold_is_the_prediction_limit_of_a_further_run(
    accuracies: Sequence[float], largest_loss: float | None, runs: int, threshold: float | None
) -> None:
    assert measured_threshold(accuracies, largest_loss, runs) == threshold


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("halving", (25.0, 50.0)),
        ("fine", (25.0, 37.5, 50.0, 75.0)),
        ("60,40,20", (20.0, 40.0, 60.0)),
        ("100, 12.5", (12.5,)),
    ],
)
def test_switch_points_are_what_is_meant(text: str, points: tuple[float, ...]) -> None:
    options = {"halvings": 2, "runs": 5, "threshold": 0.01, "target_accuracy": None}
    strategy = make_strategy("adaptive", switch_points=text, **options)  # type: ignore[arg-type]
    assert strategy.grid() == (*points, 100.0)


@pytest.mark.parametrize("text", ["", "coarse", "0", "101", "nan", "100", "50,,25", "-5"])
def test_other_switch_points_are_refused(text: str) -> None:
    with fails("parameter-invalid", r"switch_points is .*: give halving, fine, or 1 to 64"):
        switch_points_of(text, 2)


def test_where_only_some_switch_points_can_be_run_the_others_are_left_out() -> None:
    strategy = AdaptiveStrategy(halvings=2)
    assert strategy.grid() == (25.0, 50.0, 75.0, 100.0)
    assert strategy.among((25.0, 50.0, 75.0, 100.0)) == strategy
    assert strategy.among((25.0, 50.0, 100.0)).grid() == (25.0, 50.0, 100.0)


def path(strategy: Strategy, seed: int, metric: Metric, scale: float) -> list[float]:
    """Returns the switch points of the runs, and then the answer."""
    knee = (10.0, 30.0, 60.0)[seed]

    def run_at(percent: float, replicate: int, number: int) -> Observation:
        noise = np.random.default_rng([seed, number]).normal(scale=0.003)
        error = scale * (0.1 + noise + (0.05 if percent < knee else 0.0))
        accuracy = metric.accuracy(error if metric.is_less_better else 1 - error)
        return Observation(percent, accuracy, trial_number=number, replicate=replicate)

    seen = played(strategy, run_at)
    return [*(run.switch_percent for run in seen), answer_of(strategy, seen).switch_percent]


@pytest.mark.parametrize("strategy", [AdaptiveStrategy(), PaperStrategy(runs=2)])
@pytest.mark.parametrize("seed", range(3))
def test_an_error_is_searched_as_the_accuracy_that_it_leaves(strategy: Strategy, seed: int) -> None:
    usual = path(strategy, seed, Metric(), 1.0)
    assert path(strategy.measured_by(ERROR), seed, ERROR, 1.0) == usual
    in_metres = replace(strategy.measured_by(ERROR), threshold=1000 * strategy.threshold)
    assert path(in_metres, seed, ERROR, 1000.0) == usual


FIRST, SECOND = 100.0, 40.0


def run(
    percent: float, *, replicate: int = 0, reached_percent: float = 100.0, paid_seconds: float = 0
) -> Observation:
    cost = TrialCost(paid_seconds, FIRST, SECOND if percent < 100 else None, reached_percent)
    return Observation(percent, 0.9, replicate=replicate, cost=cost)


WHOLE = run(100, paid_seconds=100)
DIVERGED = Observation(25, 0.1, diverged=True, cost=TrialCost(30.0, None, None))
PACES = [WHOLE, run(50, paid_seconds=70)]
UNTIMED = [Observation(100, 0.9), Observation(25, 0.9)]
STOPPED = [run(100, reached_percent=80), run(50, reached_percent=60)]


@pytest.mark.parametrize(
    ("runs", "shares", "paid", "expected"),
    [
        ([], True, 0, {(100, 0): 1, (25, 0): 0.25 + 0.75 * 0.3}),
        (PACES, False, 1.7, {(100, 0): 1, (25, 0): 0.55, (25, 1): 0.55}),
        ([run(50), run(12.5)], True, 0, {(100, 0): 0.5, (50, 0): 0.2, (25, 0): 0.3, (50, 1): 0.7}),
        # One more of the replicate that was stopped at 80 % costs next to nothing.
        (STOPPED, True, 0, {(100, 1): 0.7, (25, 1): 0.25 + 0.45 * 0.4, (100, 0): 0.02}),
        ([run(100, reached_percent=50), run(100, replicate=1)], True, 0, {(100, 0): 0.75 - 0.5}),
        ([WHOLE, DIVERGED], False, 1.3, {(50, 0): 0.5 + 0.5 * 0.3}),
        (UNTIMED, True, 2, {(50, 0): 0.5 * 0.3}),
    ],
    ids=["new", "paces", "prefixes", "ends", "short prefix", "diverged", "each counts as one"],
)
def test_runs_say_what_the_next_one_costs(
    runs: Sequence[Observation], shares: bool, paid: float, expected: Mapping[Key, float]
) -> None:
    costs = TrialCosts.of(runs, 100.0, share_prefix=shares)
    assert costs.paid == pytest.approx(paid)
    assert {key: costs.next(*key) for key in expected} == pytest.approx(expected)


def test_a_switch_does_not_save_the_start_of_a_run() -> None:
    """It takes 20 s here; of the runs that switch, the first phase holds it."""
    runs = [Observation(100.0, 0.9, cost=TrialCost(0, FIRST + 20, None))]
    for percent in (2.0, 25.0):
        cost = TrialCost(0, FIRST + 20 / (percent / 100), SECOND)
        runs.append(Observation(percent, 0.9, cost=cost))
        costs = TrialCosts.of(runs, 100.0, share_prefix=False)
    measured = 20 + 0.02 * FIRST + 0.98 * SECOND
    assert costs.until(2.0, 1.0) == pytest.approx(measured / (FIRST + 20), rel=0.02)


STORED_OPTIONS = {
    "adaptive": "accuracy_range bearing budget early_stop expected_runs goes_back guarded"
    " least_runs min_kept_share owns_momentum owns_optimizer recorded share_prefix switch_points"
    " target_runs threshold_runs",
    "paper": "accuracy_range baseline_runs early_stop share_prefix threshold_runs",
    "sweep": "accuracy_range early_stop guarded has_baseline percents share_prefix threshold_runs"
    " wanted",
}
"""The names of options in databases of this release: never remove one, add new ones here."""


@pytest.mark.parametrize(("name", "stored"), STORED_OPTIONS.items())
def test_strategies_know_the_options_of_stored_searches(name: str, stored: str) -> None:
    assert " ".join(sorted(registry._BY_NAME[name]().options)) == stored


@dataclass(frozen=True, slots=True)
class Later(AdaptiveStrategy):
    """A later version, with other defaults."""

    early_stop: bool = False
    expected_runs: int = 99
    budget: float | None = 7.0
    switch_points: tuple[float, ...] = (10.0,)


def test_a_search_stays_what_it_was_when_defaults_change(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = AdaptiveStrategy(min_kept_share=0.9)
    stored = info_of(begun)
    monkeypatch.setitem(registry._BY_NAME, "adaptive", Later)
    assert stored_strategy(stored).options == begun.options
    # Its command says what has to be given now.
    line = OPTION_WORDS.command(search_command(GENERATED, "job", stored, RunConditions()))
    assert line.endswith(" --seed 0 --early-stop --min-kept-share 0.9 --expected-runs 30")


@pytest.mark.parametrize("kind", STRATEGIES.values())
def test_users_give_every_option_that_is_not_derived(kind: type[Strategy]) -> None:
    """Otherwise the command that makes a search again would lack it."""
    assert kind().options.keys() - DERIVED <= {one.name for one in run_command.params}
