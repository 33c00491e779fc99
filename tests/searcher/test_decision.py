"""The pure rule: known answers, and properties that hold for every history."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.searcher.decision import (
    Decided,
    NextRun,
    Observation,
    Wait,
)
from syncswitch.searcher.rules.paper import PaperRule
from syncswitch.storage.errors import UserError

# Mean converged accuracies of the paper's setup 1 (Sync-Switch, Table II).
PAPER_SETUP_1 = {100: 0.9188, 50: 0.9202, 25: 0.9178, 12.5: 0.9142, 6.25: 0.9182, 3.125: 0.9037}

Measure = Callable[[float, int], Observation]


def run_search(rule: PaperRule, measure: Measure, most: int = 1000) -> list[Observation]:
    finished: list[Observation] = []
    while isinstance(decision := rule.decide(finished), NextRun):
        finished.append(measure(decision.switch_percent, len(finished)))
        assert len(finished) <= most
    return finished


def from_means(means: dict[float, float]) -> Measure:
    return lambda percent, number: Observation(percent, means[percent], trial_number=number)


@pytest.mark.parametrize("runs", [1, 5])
def test_paper_setup_1(runs: int) -> None:
    rule = PaperRule(settings=5, runs=runs)
    finished = run_search(rule, from_means(PAPER_SETUP_1))
    decision = rule.decide(finished)
    assert isinstance(decision, Decided)
    assert decision.switch_percent == 6.25
    assert decision.target_accuracy == pytest.approx(0.9188)
    assert len(finished) == rule.most_runs == 6 * runs
    assert [s.accepted for s in rule.progress(finished).summaries] == [True] * 5 + [False]


def test_the_printed_band_rejects_a_better_candidate() -> None:
    means = {100: 0.90, 50: 0.95, 75: 0.90}
    rule = PaperRule(settings=1, runs=1, two_sided=True)
    assert rule.decide(run_search(rule, from_means(means))) == Decided(100, 0.90)
    rule = PaperRule(settings=1, runs=1)
    assert rule.decide(run_search(rule, from_means(means))) == Decided(50, 0.90)


def test_exactly_the_allowed_loss_is_accepted() -> None:
    for permille in range(100, 1000):
        target, mean = permille / 1000, (permille - 10) / 1000
        rule = PaperRule(settings=1, runs=3, target_accuracy=target)
        finished = [Observation(50, mean, trial_number=n) for n in range(3)]
        assert rule.decide(finished) == Decided(50, target)


def test_a_given_target_saves_the_baseline() -> None:
    rule = PaperRule(settings=2, runs=2, target_accuracy=0.9)
    assert rule.decide([]) == NextRun(50)
    assert rule.most_runs == 4


def test_runs_in_flight_are_not_made_twice() -> None:
    rule = PaperRule(runs=3)
    assert rule.decide([], [100, 100]) == NextRun(100)
    assert rule.decide([], [100, 100, 100]) == Wait(100)
    assert rule.decide([Observation(100, 0.9)], [100, 100]) == Wait(100)
    assert rule.decide([Observation(100, 0.9)], [100, 50]) == NextRun(100)


def test_one_diverged_run_rejects_a_setting_whatever_the_mean() -> None:
    rule = PaperRule(settings=1, runs=5, target_accuracy=0.5)
    finished = [Observation(50, 0.99, trial_number=n) for n in range(4)]
    assert rule.decide(finished) == NextRun(50)
    finished.append(Observation(50, 0.99, diverged=True, trial_number=4))
    assert rule.decide(finished) == Decided(100, 0.5)
    # The verdict is known after the first one: no further runs are paid for.
    assert rule.decide(finished[-1:]) == Decided(100, 0.5)


def test_a_diverged_baseline_is_the_users_to_mend() -> None:
    with pytest.raises(UserError, match="learning rate is too high"):
        PaperRule(runs=5).decide([Observation(100, 0.1, diverged=True)])


def test_only_the_first_runs_of_a_setting_count() -> None:
    rule = PaperRule(settings=1, runs=2, target_accuracy=0.9)
    good = [Observation(50, 0.9, trial_number=n) for n in (0, 1)]
    late = Observation(50, 0.0, diverged=True, trial_number=2)
    assert rule.decide([late, *good]) == Decided(50, 0.9)


def test_summaries_of_an_unfinished_search() -> None:
    rule = PaperRule(settings=2, runs=2)
    finished = [
        Observation(100, 0.90, trial_number=0),
        Observation(100, 0.92, trial_number=1),
        Observation(50, 0.91, trial_number=2),
    ]
    progress = rule.progress(finished)
    baseline, candidate = progress.summaries
    assert baseline.mean_accuracy == pytest.approx(0.91)
    assert baseline.standard_deviation == pytest.approx(0.01414, abs=1e-5)
    assert (candidate.runs, candidate.accepted, candidate.standard_deviation) == (1, None, None)
    assert (progress.lower_percent, progress.upper_percent) == (0, 100)
    assert progress.open_percent == 50
    assert progress.target_accuracy == pytest.approx(0.91)


rules = st.builds(
    PaperRule,
    settings=st.integers(1, 8),
    runs=st.integers(1, 4),
    threshold=st.floats(0.001, 0.2),
    target_accuracy=st.none() | st.floats(0.3, 0.9),
    two_sided=st.booleans(),
)


def noisy(seed: int) -> Measure:
    """Any accuracy, at times diverged (never at 100 percent), the same for the same run."""

    def measure(percent: float, number: int) -> Observation:
        draw = random.Random(f"{seed} {percent} {number}")
        diverged = percent < 100 and draw.random() < 0.1
        return Observation(percent, draw.uniform(0.2, 1.0), diverged, number)

    return measure


@given(rules, st.integers(0, 10_000))
def test_every_search_ends_within_its_settings(rule: PaperRule, seed: int) -> None:
    finished = run_search(rule, noisy(seed), rule.most_runs)
    candidates = {run.switch_percent for run in finished} - {100.0}
    assert len(candidates) == rule.settings
    decision = rule.decide(finished)
    assert isinstance(decision, Decided)
    assert 0 < decision.switch_percent <= 100


@given(rules, st.integers(0, 10_000), st.randoms())
def test_the_order_of_observations_does_not_matter(
    rule: PaperRule, seed: int, shuffler: random.Random
) -> None:
    finished = run_search(rule, noisy(seed))
    # Runs beyond the R that count, as of searchers that did not see each other.
    finished += [noisy(seed + 1)(run.switch_percent, 1000 + n) for n, run in enumerate(finished)]
    part = finished[: shuffler.randint(0, len(finished))]
    shuffled = list(part)
    shuffler.shuffle(shuffled)
    assert rule.decide(part) == rule.decide(shuffled)
    assert rule.progress(part) == rule.progress(shuffled)


@given(rules, st.integers(0, 10_000))
def test_the_bracket_halves_and_holds_the_answer(rule: PaperRule, seed: int) -> None:
    finished = run_search(rule, noisy(seed))
    brackets = [rule.progress(finished[:count]) for count in range(len(finished) + 1)]
    for before, after in itertools.pairwise(brackets):
        assert before.lower_percent <= after.lower_percent
        assert after.upper_percent <= before.upper_percent
    last = brackets[-1]
    assert last.upper_percent - last.lower_percent == 100 / 2**rule.settings
    accepted = [s.switch_percent for s in last.summaries if s.accepted]
    assert last.upper_percent == min([100.0, *accepted])


@given(rules, st.integers(0, 10_000))
def test_a_decision_is_stable_under_further_runs(rule: PaperRule, seed: int) -> None:
    finished = run_search(rule, noisy(seed))
    decision = rule.decide(finished)
    more = [noisy(seed + 7)(run.switch_percent, 1000 + n) for n, run in enumerate(finished)]
    full = [run for run in more if not _settled_by_divergence(rule, finished, run)]
    assert rule.decide(finished + full) == decision


def _settled_by_divergence(rule: PaperRule, finished: list[Observation], run: Observation) -> bool:
    return sum(o.switch_percent == run.switch_percent for o in finished) < rule.runs
