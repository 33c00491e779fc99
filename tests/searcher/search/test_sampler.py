"""Optuna's own test suites for samplers, and studies as users of Optuna run them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.testing.pytest_samplers import BasicSamplerTestCase, SingleOnlySamplerTestCase

from syncswitch.searcher.search.sampler import BinarySearchSampler
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.paper import PaperStrategy
from tests.failing import fails

optuna.logging.set_verbosity(optuna.logging.ERROR)


class TestForeignParameters(BasicSamplerTestCase, SingleOnlySamplerTestCase):
    """The suites' parameters belong to the independent sampler."""

    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: BinarySearchSampler(seed=1)


class TestOwnParameter(BasicSamplerTestCase, SingleOnlySamplerTestCase):
    """The suites' parameter "x" is the one that the sampler owns.

    The independent sampler has a relative search space.
    """

    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        def make() -> BaseSampler:
            independent = TPESampler(seed=1, multivariate=True, n_startup_trials=2)
            strategy = PaperStrategy(halvings=3, runs=2)
            return BinarySearchSampler(strategy, parameter="x", independent_sampler=independent)

        return make


SPACE = {"switch_percent": FloatDistribution(0, 100)}
PERCENTS = [100, 100, 50, 50, 25, 25, 12.5, 12.5, 6.25, 6.25]


def _knee(percent: float) -> float:
    return 0.95 if percent >= 12.5 else 0.80


def test_optimize_stops_by_itself_with_the_answer() -> None:
    sampler = BinarySearchSampler(PaperStrategy(halvings=4, runs=2), seed=1)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(
        lambda trial: _knee(trial.suggest_float("switch_percent", 0, 100)),
        n_trials=100,
        callbacks=[sampler.stop_when_decided],
    )
    assert [trial.params["switch_percent"] for trial in study.trials] == PERCENTS
    assert study.ask(SPACE).params == {"switch_percent": 12.5}


def test_a_new_sampler_on_the_same_study_goes_on() -> None:
    study = optuna.create_study(direction="maximize")
    for _ in PERCENTS:
        study.sampler = BinarySearchSampler(PaperStrategy(halvings=4, runs=2))
        trial = study.ask(SPACE)
        study.tell(trial, _knee(trial.params["switch_percent"]))
    assert [trial.params["switch_percent"] for trial in study.trials] == PERCENTS


def maximizing(strategy: PaperStrategy) -> optuna.Study:
    return optuna.create_study(direction="maximize", sampler=BinarySearchSampler(strategy))


def test_failed_and_pruned_trials_do_not_count_but_diverged_ones_do() -> None:
    study = maximizing(PaperStrategy(halvings=2, runs=3))
    for state in (optuna.trial.TrialState.FAIL, optuna.trial.TrialState.PRUNED):
        trial = study.ask(SPACE)
        assert trial.params["switch_percent"] == 100
        study.tell(trial, state=state)
    for _ in range(3):
        study.tell(study.ask(SPACE), 0.9)
    trial = study.ask(SPACE)
    assert trial.params["switch_percent"] == 50
    trial.set_user_attr("diverged", True)
    study.tell(trial, 0.95)
    assert study.ask(SPACE).params["switch_percent"] == 75


def test_runs_in_flight_count() -> None:
    study = maximizing(PaperStrategy(runs=2, target_accuracy=0.9))
    trials = [study.ask(SPACE) for _ in range(6)]
    # After the two that are needed those that may be needed next, on both sides.
    assert [trial.params["switch_percent"] for trial in trials] == [50, 50, 25, 75, 25, 75]


def test_the_range_of_the_distribution_is_searched() -> None:
    strategy = PaperStrategy(halvings=2, runs=1, target_accuracy=0.5)
    study = optuna.create_study(sampler=BinarySearchSampler(strategy, parameter="share"))
    trial = study.ask({"share": FloatDistribution(0.2, 0.6)})
    assert trial.params["share"] == pytest.approx(0.4)


def test_other_trials_of_the_study_do_no_harm() -> None:
    study = optuna.create_study(sampler=BinarySearchSampler(PaperStrategy(runs=1), parameter="x"))
    study.tell(study.ask({"x": optuna.distributions.CategoricalDistribution(["a", "b"])}), 0.5)
    infinite = study.ask({"y": FloatDistribution(0, 1)})
    study.tell(infinite, float("inf"))
    # Optuna refuses two kinds of distribution for one name, so the owner may be asked directly.
    value = study.sampler.sample_independent(
        study, study.trials[-1], "x", FloatDistribution(0, 100)
    )
    assert value == 100


@pytest.mark.parametrize("strategy", [PaperStrategy(halvings=4, runs=1), AdaptiveStrategy()])
def test_an_error_is_minimized(strategy: Strategy) -> None:
    found = []
    for direction, sign in (("maximize", 1), ("minimize", -1)):
        sampler = BinarySearchSampler(strategy)
        study = optuna.create_study(direction=direction, sampler=sampler)
        study.optimize(
            lambda trial, sign=sign: sign * _knee(trial.suggest_float("switch_percent", 0, 100)),
            callbacks=[sampler.stop_when_decided],
        )
        found.append([trial.params["switch_percent"] for trial in study.trials])
    assert found[0] == found[1]
    assert study.ask(SPACE).params == {"switch_percent": 12.5}


def _pruned() -> float:
    raise optuna.TrialPruned


@pytest.mark.parametrize("bad", [lambda: float("nan"), _pruned])
@pytest.mark.parametrize("worst", [20, 60, 101])
def test_a_point_without_results_counts_as_diverged(
    caplog: pytest.LogCaptureFixture, bad: Callable[[], float], worst: float
) -> None:
    """It is asked for R times; the study ends without any number of trials."""
    sampler = BinarySearchSampler(PaperStrategy(halvings=4, runs=2))
    study = optuna.create_study(direction="maximize", sampler=sampler)

    def objective(trial: optuna.Trial) -> float:
        return 0.9 if trial.suggest_float("switch_percent", 0, 100) >= worst else bad()

    def optimize() -> None:
        study.optimize(objective, callbacks=[sampler.stop_when_decided])

    if worst > 100:
        with fails("baseline-diverged"):
            optimize()
    else:
        optimize()
    asked = Counter(trial.params["switch_percent"] for trial in study.trials)
    assert set(asked.values()) == {2}
    failed = [f"{one:g} gave no result 2 times" for one in asked if one < worst]
    # Optuna has words of its own.
    said = [one.getMessage() for one in caplog.records if one.name.startswith("syncswitch")]
    assert len(said) == len(failed)
    assert all(any(one in line for line in said) for one in failed)


@pytest.mark.parametrize(
    "suggest",
    [
        lambda trial: trial.suggest_int("switch_percent", 0, 100),
        lambda trial: trial.suggest_int("switch_percent", 0, 100, step=5),
        lambda trial: trial.suggest_float("switch_percent", 0, 100, step=0.5),
        lambda trial: trial.suggest_float("switch_percent", 1e-3, 100, log=True),
    ],
)
def test_the_nearest_value_of_a_parameter_with_steps_is_taken(suggest: Any) -> None:
    sampler = BinarySearchSampler(PaperStrategy(halvings=4, runs=1))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(lambda trial: _knee(suggest(trial) + 3), callbacks=[sampler.stop_when_decided])
    values = [trial.params["switch_percent"] for trial in study.trials]
    assert values == pytest.approx([100, 50, 25, 12.5, 6.25], abs=2.5)


@pytest.mark.parametrize("step", [2, 5, 10, 20, 50])
@pytest.mark.parametrize("knee", [3, 17, 22, 48, 81])
def test_no_value_of_a_parameter_with_steps_is_asked_for_too_often(step: int, knee: int) -> None:
    sampler = BinarySearchSampler(PaperStrategy(halvings=6, runs=3))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(
        lambda trial: float(trial.suggest_int("switch_percent", 0, 100, step=step) >= knee),
        n_trials=60,
        callbacks=[sampler.stop_when_decided],
    )
    asked = Counter(trial.params["switch_percent"] for trial in study.trials)
    assert set(asked.values()) == {3}
