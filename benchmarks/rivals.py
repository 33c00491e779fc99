"""What users would take instead of a strategy of ours: a grid, chance, and general optimizers.

Each is told the candidates below 100 %: the first protocol alone is acceptable by definition, and
the answer where nothing else is. A new job first measures A with 5 runs of the first protocol
alone; all runs are paid from their start to their end.
"""

from __future__ import annotations

import importlib.util
import statistics
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from benchmarks.problems import BASELINE_PERCENT, Problem
from syncswitch.searcher.simulation.simulator import PlayedRun, SimulatedSearch
from syncswitch.searcher.strategies.baseline import ROUNDING

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.samplers import BaseSampler

TRIALS = 20
BASELINE_RUNS = 5

Sampler = Callable[[int], "BaseSampler"]


class _Buyer:
    """Pays whole runs, and remembers them."""

    def __init__(self, problem: Problem, is_known: bool) -> None:
        self._problem = problem
        self._runs: dict[float, list[PlayedRun]] = defaultdict(list)
        self.seconds = 0.0
        if is_known:
            target = problem.known_accuracy
        else:
            target = _mean_accuracy([self.buy(BASELINE_PERCENT) for _ in range(BASELINE_RUNS)])
        self.least_accuracy = target - problem.threshold

    def buy(self, percent: float) -> PlayedRun:
        """The next run at a switch point."""
        made = self._runs[percent]
        run = self._problem.run_at(percent, len(made))
        assert run is not None  # the grid holds what there are runs of
        self.seconds += run.seconds
        made.append(run)
        return run

    def judged_by_means(self) -> float:
        """The earliest switch point whose runs are acceptable on average."""
        fit = [
            percent
            for percent, runs in self._runs.items()
            if not any(run.diverged for run in runs)
            and _mean_accuracy(runs) >= self.least_accuracy - ROUNDING
        ]
        return min(fit, default=BASELINE_PERCENT)

    def search(self, answer: float) -> SimulatedSearch:
        """What was paid for an answer."""
        return SimulatedSearch(answer, self.seconds, sum(map(len, self._runs.values())))


def _mean_accuracy(runs: Sequence[PlayedRun]) -> float:
    return statistics.fmean(run.accuracy for run in runs)


def grid_search(problem: Problem, is_known: bool, *, repeats: int) -> Iterable[SimulatedSearch]:
    """Every candidate the same number of times."""
    buyer = _Buyer(problem, is_known)
    for percent in problem.grid[:-1]:
        for _ in range(repeats):
            buyer.buy(percent)
    yield buyer.search(buyer.judged_by_means())


def optuna_search(
    problem: Problem, is_known: bool, *, sampler: Sampler
) -> Iterable[SimulatedSearch]:
    """Least training time, with accuracy as a constraint.

    Returns:
        The same runs with two answers: judged by the means of the switch points, and Optuna's own
        best trial.
    """
    import optuna

    buyer = _Buyer(problem, is_known)
    candidates = problem.grid[:-1]

    def train(trial: Trial) -> float:
        percent = candidates[trial.suggest_int("place", 0, len(candidates) - 1)]
        run = buyer.buy(percent)
        trial.set_constraint("accuracy", buyer.least_accuracy - run.accuracy)
        return run.seconds

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(sampler=sampler(problem.number))
        study.optimize(train, n_trials=TRIALS)
    yield buyer.search(buyer.judged_by_means())
    yield buyer.search(_best_trial(study, candidates))


def _best_trial(study: Study, candidates: tuple[float, ...]) -> float:
    try:
        place: int = study.best_trial.params["place"]
    except ValueError:  # none is feasible
        return BASELINE_PERCENT
    return candidates[place]


def random_sampler(seed: int) -> BaseSampler:
    """Chance."""
    from optuna.samplers import RandomSampler

    return RandomSampler(seed=seed)


def tpe_sampler(seed: int) -> BaseSampler:
    """Optuna's default."""
    from optuna.samplers import TPESampler

    return TPESampler(seed=seed)


def gp_sampler(seed: int) -> BaseSampler:
    """Bayesian optimization with a Gaussian process."""
    from optuna.samplers import GPSampler

    return GPSampler(seed=seed)


def has_gp() -> bool:
    """Whether Optuna's Gaussian process can be used: it needs PyTorch."""
    return importlib.util.find_spec("torch") is not None
