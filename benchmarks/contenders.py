"""The strategies that are compared, how one search of theirs is judged, and what many say; pure.

Beside ours there is what users would take instead: a grid, chance, and general optimizers.

Each is told the candidates below 100 %: the first protocol alone is acceptable by definition, and
the answer where nothing else is. A new job first measures A with 5 runs of the first protocol
alone; all runs are paid from their start to their end.
"""

from __future__ import annotations

import functools
import importlib.util
import statistics
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmarks.problems import BASELINE_PERCENT, Problem, earliest_acceptable, is_acceptable
from reproduction.measures import ratio_of_means, share
from reproduction.simulator import PlayedRun, SimulatedSearch, search_with
from syncswitch.searcher.speed_up import Estimate, known_mean, mean
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.baseline import ROUNDING
from syncswitch.searcher.strategies.paper import PaperStrategy

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


def _sampler(kind: str, seed: int) -> BaseSampler:
    from optuna import samplers

    made: BaseSampler = getattr(samplers, kind)(seed=seed)
    return made


def has_gp() -> bool:
    """Whether Optuna's Gaussian process can be used, which needs PyTorch."""
    return importlib.util.find_spec("torch") is not None


REFERENCE = "paper 5x5"
"""What costs are compared with."""
_ADAPTIVE = "adaptive"

Search = Callable[[Problem, bool], Iterable[SimulatedSearch]]
Answer = Callable[[Problem], float]


@dataclass(frozen=True)
class Contender:
    """A strategy.

    Attributes:
        names: One for each of its answers.
        search: Searches, given a problem and whether A is known; one result for each name.
        right_answer: The one that counts as success.
        is_slow: Takes a second for each problem.
    """

    names: tuple[str, ...]
    search: Search
    right_answer: Answer = earliest_acceptable
    is_slow: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """One search, judged.

    Attributes:
        answer: Switch point in percent.
        cost: Training time of its runs, in trainings with the first protocol alone.
        runs: Number of runs.
        is_success: It found the right answer of its strategy's grid.
        is_too_early: Its answer loses more than beta.
        policy_time: Time of a training with the answer, in the same unit; None if it is too early.
        regret: By how much this is above the time of the best switch on no grid; None as above.
    """

    answer: float
    cost: float
    runs: int
    is_success: bool
    is_too_early: bool
    policy_time: float | None
    regret: float | None


def contenders() -> list[Contender]:
    """All contenders that can be tried on this machine."""
    found = [
        _paper(REFERENCE),
        _paper("paper 3x3", runs=3),
        _paper("paper 5x5, shared prefix", share_prefix=True),
        _paper("paper 5x5, early stop", early_stop=True),
        _paper("paper 5x5, both", share_prefix=True, early_stop=True),
        _adaptive(_ADAPTIVE),
        _adaptive(f"{_ADAPTIVE}, no guard", guarded=False),
        _adaptive(f"{_ADAPTIVE}, no shared prefix", share_prefix=False),
        _adaptive(f"{_ADAPTIVE}, no early stop", early_stop=False),
        _adaptive(f"{_ADAPTIVE}, neither", share_prefix=False, early_stop=False),
        *(Contender((f"grid, {repeats} runs each",), _grid(repeats)) for repeats in (3, 5)),
        _optuna("random", "RandomSampler"),
        _optuna("Optuna TPE", "TPESampler"),
    ]
    if has_gp():
        found.append(replace(_optuna("Optuna GP", "GPSampler"), is_slow=True))
    return found


def judged(contender: Contender, problem: Problem, is_known: bool) -> Iterator[tuple[str, Outcome]]:
    """Lets a strategy search; one outcome for each of its names."""
    expected = contender.right_answer(problem)
    for name, search in zip(contender.names, contender.search(problem, is_known), strict=True):
        yield name, _outcome(problem, search, expected)


def answer_without_noise(problem: Problem) -> float:
    """The answer of the paper's strategy if it sees the true curve.

    Its answers may lie between those of repeated halving.
    """
    strategy = PaperStrategy(
        halvings=problem.halvings,
        runs=1,
        threshold=problem.threshold,
        target_accuracy=problem.target_accuracy,
    )
    return search_with(strategy, lambda percent, _: problem.true_run_at(percent)).switch_percent


def _outcome(problem: Problem, search: SimulatedSearch, expected: float) -> Outcome:
    answer = search.switch_percent
    policy_time = regret = None
    if is_fit := is_acceptable(problem, answer):
        policy_time = problem.policy_seconds(answer) / problem.first_seconds
        best = problem.policy_seconds(problem.best_percent) / problem.first_seconds
        regret = policy_time - best
    return Outcome(
        answer=answer,
        cost=search.seconds / problem.first_seconds,
        runs=search.runs,
        is_success=answer == expected,
        is_too_early=not is_fit,
        policy_time=policy_time,
        regret=regret,
    )


def _paper(name: str, **options: Any) -> Contender:
    return Contender(
        (name,), functools.partial(_search_as_paper, **options), right_answer=answer_without_noise
    )


def _search_as_paper(
    problem: Problem,
    is_known: bool,
    *,
    runs: int = 5,
    share_prefix: bool = False,
    early_stop: bool = False,
) -> Sequence[SimulatedSearch]:
    strategy = PaperStrategy(
        halvings=problem.halvings,
        runs=runs,
        threshold=problem.threshold,
        target_accuracy=problem.known_accuracy if is_known else None,
        share_prefix=share_prefix,
        early_stop=early_stop,
    )
    return [search_with(strategy, problem.run_at)]


def _adaptive(name: str, **options: Any) -> Contender:
    return Contender((name,), functools.partial(_search_adaptively, **options))


def _search_adaptively(
    problem: Problem, is_known: bool, **options: bool
) -> Sequence[SimulatedSearch]:
    strategy = AdaptiveStrategy(
        halvings=problem.halvings,
        threshold=problem.threshold,
        target_accuracy=problem.known_accuracy if is_known else None,
        target_runs=problem.known_runs,
        owns_momentum=problem.owns_momentum,
        **options,  # type: ignore[arg-type]
    ).among(problem.grid)
    return [search_with(strategy, problem.run_at)]


def _grid(repeats: int) -> Search:
    return functools.partial(grid_search, repeats=repeats)


def _optuna(name: str, sampler: str) -> Contender:
    return Contender(
        (f"{name}, means", f"{name}, best trial"),
        functools.partial(optuna_search, sampler=functools.partial(_sampler, sampler)),
    )


_ANSWERS = 3


@dataclass(frozen=True, slots=True)
class Score:
    """One strategy on some problems; see `Outcome` for the measures.

    Attributes:
        problems: Number of problems.
        answers: The most frequent answers in percent, and how often each was given.
        runs: Mean number of runs of a search.
        cost: Mean cost of a search.
        cost_ratio: Mean cost by that of the reference on the same problems.
        success_percent: Share of the searches that answer right.
        too_early_percent: Share of the searches whose answer is too early.
        regret: On average; None where every answer was too early.
        policy_time: The same.
    """

    strategy: str
    problems: int
    answers: list[tuple[float, int]]
    runs: float
    cost: Estimate
    cost_ratio: Estimate
    success_percent: Estimate
    too_early_percent: Estimate
    regret: Estimate | None
    policy_time: Estimate | None


def score(
    strategy: str, outcomes: Mapping[int, Outcome], reference: Mapping[int, Outcome]
) -> Score:
    """Sums up one strategy.

    Args:
        strategy: Its name.
        outcomes: By the number of the problem.
        reference: Outcomes of the strategy to compare costs with, at least on the same problems.
    """
    values = list(outcomes.values())
    costs = [outcome.cost for outcome in values]
    return Score(
        strategy=strategy,
        problems=len(values),
        answers=Counter(outcome.answer for outcome in values).most_common(_ANSWERS),
        runs=statistics.fmean(outcome.runs for outcome in values),
        cost=mean(costs),
        cost_ratio=ratio_of_means(costs, [reference[number].cost for number in outcomes]),
        success_percent=share(outcome.is_success for outcome in values),
        too_early_percent=share(outcome.is_too_early for outcome in values),
        regret=known_mean(outcome.regret for outcome in values),
        policy_time=known_mean(outcome.policy_time for outcome in values),
    )
