"""The strategies that are compared, and how one search of theirs is judged."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import rivals
from benchmarks.problems import Problem, earliest_acceptable, is_acceptable
from syncswitch.searcher.simulation.simulator import SimulatedSearch, search_with
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.paper import PaperStrategy

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
        runs: How many they were.
        is_success: It found the right answer of its strategy's grid.
        is_too_early: Its answer loses more than beta.
        policy_time: Of a training with its answer, in the same unit; None where that is too early.
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
    """All that can be tried here."""
    found = [
        _paper(REFERENCE),
        _paper("paper 3x3", runs=3),
        _paper("paper 5x5, shared prefix", share_prefix=True),
        _paper("paper 5x5, early stop", early_stop=True),
        _paper("paper 5x5, both", share_prefix=True, early_stop=True),
        _adaptive(_ADAPTIVE),
        _adaptive(f"{_ADAPTIVE}, bare switch", guarded=False),
        _adaptive(f"{_ADAPTIVE}, no shared prefix", share_prefix=False),
        _adaptive(f"{_ADAPTIVE}, no early stop", early_stop=False),
        _adaptive(f"{_ADAPTIVE}, neither", share_prefix=False, early_stop=False),
        *(Contender((f"grid, {repeats} runs each",), _grid(repeats)) for repeats in (3, 5)),
        _optuna("random", rivals.random_sampler),
        _optuna("Optuna TPE", rivals.tpe_sampler),
    ]
    if rivals.has_gp():
        found.append(replace(_optuna("Optuna GP", rivals.gp_sampler), is_slow=True))
    return found


def judged(contender: Contender, problem: Problem, is_known: bool) -> Iterator[tuple[str, Outcome]]:
    """Lets a strategy search; one outcome for each of its names."""
    expected = contender.right_answer(problem)
    for name, search in zip(contender.names, contender.search(problem, is_known), strict=True):
        yield name, _outcome(problem, search, expected)


def answer_without_noise(problem: Problem) -> float:
    """What the paper's strategy answers where it sees the true curve.

    Its answers may lie between those of repeated halving.
    """
    strategy = PaperStrategy(
        settings=problem.settings,
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
        settings=problem.settings,
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
    problem: Problem,
    is_known: bool,
    **options: bool,
) -> Sequence[SimulatedSearch]:
    strategy = AdaptiveStrategy(
        settings=problem.settings,
        threshold=problem.threshold,
        target_accuracy=problem.known_accuracy if is_known else None,
        target_runs=problem.known_runs,
        **options,  # type: ignore[arg-type]
    ).among(problem.grid)
    return [search_with(strategy, problem.run_at)]


def _grid(repeats: int) -> Search:
    return functools.partial(rivals.grid_search, repeats=repeats)


def _optuna(name: str, sampler: rivals.Sampler) -> Contender:
    return Contender(
        (f"{name}, means", f"{name}, best trial"),
        functools.partial(rivals.optuna_search, sampler=sampler),
    )
