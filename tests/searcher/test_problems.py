"""What the benchmark of search strategies takes for the truth, and how it counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.contenders import (
    REFERENCE,
    Outcome,
    answer_without_noise,
    contenders,
    judged,
    score,
)
from benchmarks.problems import (
    GeneratedProblem,
    earliest_acceptable,
    generated_problem,
    is_acceptable,
    recorded_jobs,
)

# Loses beta where it is at 10 %: half an octave below its knee.
PLAIN = GeneratedProblem(
    number=1,
    knee_percent=10 * 2**0.5,
    slope=0.02,
    bend=0.0,
    standard_deviation=0.0,
    ratio=0.2,
    diverges_below_percent=0.0,
)

numbers = st.integers(0, 10_000)
settings = st.sampled_from(PLAIN.grid)


def test_the_truth_of_a_plain_curve() -> None:
    assert PLAIN.best_percent == pytest.approx(10)
    assert earliest_acceptable(PLAIN) == 12.5
    # Multiples of 100/64: the search in finer steps ends just above 10.
    assert answer_without_noise(PLAIN) == pytest.approx(10.9375)
    assert PLAIN.policy_seconds(10.0) == pytest.approx(0.28)
    diverging = replace(PLAIN, diverges_below_percent=30.0)
    assert (diverging.best_percent, earliest_acceptable(diverging)) == (30.0, 50.0)
    bent = replace(PLAIN, bend=0.01)  # one octave is all it may lose
    assert (bent.best_percent, earliest_acceptable(bent)) == (50.0, 50.0)
    easy = replace(PLAIN, knee_percent=1.0)
    assert easy.best_percent == earliest_acceptable(easy) == easy.grid[0]


@given(numbers)
def test_the_best_switch_is_where_acceptable_ones_begin(number: int) -> None:
    problem = generated_problem(number)
    best = problem.best_percent
    assert is_acceptable(problem, best * (1 + 1e-6))
    assert best == problem.grid[0] or not is_acceptable(problem, best * (1 - 1e-6))
    assert earliest_acceptable(problem) == min(p for p in problem.grid if p >= best * (1 - 1e-6))
    assert best * (1 - 1e-6) <= answer_without_noise(problem) <= best + 100 / 64


@given(numbers, settings, st.integers(0, 20))
def test_a_run_depends_on_nothing_but_its_name(number: int, percent: float, replicate: int) -> None:
    run = generated_problem(number).run_at(percent, replicate)
    assert run == generated_problem(number).run_at(percent, replicate)
    assert run.first_seconds == percent / 100 <= run.seconds
    if run.plateau_accuracy is not None:
        assert run.plateau_accuracy <= run.accuracy
        assert run.first_seconds * (percent < 100) < run.stopped_seconds < run.seconds
    if not run.diverged:
        assert run.accuracy != generated_problem(number).run_at(percent, replicate + 1).accuracy


def test_without_noise_every_strategy_finds_its_answer() -> None:
    for contender in contenders():
        if contender.is_slow:
            continue
        for is_known in (False, True):
            for _, outcome in judged(contender, PLAIN, is_known):
                if contender.names[0].startswith("adaptive"):  # which looks at time, not at means
                    continue
                assert outcome.is_success
                assert not outcome.is_too_early
                assert outcome.regret is not None
                assert 0 <= outcome.regret <= 0.021


def test_a_grid_is_paid_whole_with_a_baseline() -> None:
    grid = next(c for c in contenders() if c.names == ("grid, 3 runs each",))
    each = sum(PLAIN.policy_seconds(percent) for percent in PLAIN.grid[:-1])
    for is_known, baseline in ((True, 0), (False, 5)):
        ((_, outcome),) = judged(grid, PLAIN, is_known)
        assert outcome.cost == pytest.approx(3 * each + baseline)
        assert outcome.runs == 18 + baseline


def test_the_published_runs_say_what_the_paper_says(published: Path) -> None:
    answers = {setup: job.problem(0) for setup, job in recorded_jobs(published).items()}
    assert {setup: p.best_percent for setup, p in answers.items()} == {
        "resnet32-cifar10-8": 6.25,
        "resnet32-cifar10-16": 50.0,
    }
    assert all(answer_without_noise(p) == p.best_percent for p in answers.values())
    # 5 runs of each switch point are recorded, so no draw changes what they cost; published 12.71.
    paper = next(c for c in contenders() if c.names == (REFERENCE,))
    ((_, outcome),) = judged(paper, answers["resnet32-cifar10-8"], False)
    assert outcome.cost == pytest.approx(12.71, rel=0.005)


def outcome(cost: float, is_success: bool, answer: float = 50.0) -> Outcome:
    return Outcome(answer, cost, 4, is_success, False, 0.5, 0.1)


def test_scores_compare_the_same_problems() -> None:
    reference = {0: outcome(10, True), 1: outcome(20, True), 2: outcome(1000, True)}
    result = score("half", {0: outcome(5, True), 1: outcome(10, False, 25.0)}, reference)
    assert result.answers == [(50.0, 1), (25.0, 1)]
    assert (result.problems, result.cost.value, result.success_percent.value) == (2, 7.5, 50)
    assert result.cost_ratio.value == result.cost_ratio.low == result.cost_ratio.high == 0.5
    too_early = replace(outcome(5, False), is_too_early=True, policy_time=None, regret=None)
    assert score("bad", {0: too_early}, reference).regret is None
