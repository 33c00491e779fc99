"""When a run may be stopped, and what that changes."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.problems import recorded_jobs
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.early_stopping import StopRule, corrected, correction, may_stop
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.records.trial import Evaluation

INTERVAL = 100
DECAY = 10 * INTERVAL
RULE = StopRule(precision=0.005)


def curve(accuracies: Sequence[float]) -> list[Evaluation]:
    """Evaluations at 100, 200, ... worker-steps, a second each."""
    return [
        Evaluation((index + 1) * INTERVAL, index + 1.0, accuracy, 1.0)
        for index, accuracy in enumerate(accuracies)
    ]


# Restless until the decay after the tenth evaluation, a jump, and then calm.
RESTLESS = [0.70, 0.80, 0.78, 0.82, 0.79, 0.83, 0.80, 0.84, 0.81, 0.83]
CALM = [0.910, 0.911, 0.910, 0.912, 0.911, 0.912, 0.913, 0.912]
STEP = RESTLESS + CALM


class TestKnowing:
    def test_a_run_is_known_at_its_fifth_evaluation_after_the_decay(self) -> None:
        assert next(n for n in range(len(STEP)) if RULE.knows(curve(STEP[:n]))) == 15
        assert RULE.known_at(curve(STEP)) == 15
        assert RULE.plateau_accuracy(curve(STEP)) == pytest.approx(statistics.fmean(CALM[:5]))

    @pytest.mark.parametrize(
        ("accuracies", "why"),
        [
            (STEP[:14], "the window reaches back before the jump"),
            ([*RESTLESS, 0.906, 0.909, 0.910, 0.912, 0.9115], "it spans more than the precision"),
            ([*RESTLESS[:-1], 0.911, *CALM[:5]], "it was there before"),
            ([0.900 + 0.001 * n for n in range(15)], "it was as calm before"),
            ([0.5, 0.9, *CALM[:5]], "nobody knows how restless it was before"),
        ],
    )
    def test_what_keeps_a_run_from_being_known(self, accuracies: list[float], why: str) -> None:
        assert not RULE.knows(curve(accuracies)), why

    def test_all_five_are_after_the_switch_and_the_last_decay(self) -> None:
        known = curve(STEP[:15])
        first = known[10].worker_step
        assert RULE.knows(known, switch_worker_step=first - 1)
        assert not RULE.knows(known, switch_worker_step=first)
        assert replace(RULE, not_before_worker_step=first - 1).knows(known)
        assert not replace(RULE, not_before_worker_step=first).knows(known)

    def test_the_last_evaluation_saves_nothing(self) -> None:
        assert RULE.known_at(curve(STEP[:15])) is None
        assert RULE.plateau_accuracy(curve(STEP[:15])) is None

    @given(
        st.lists(st.sampled_from([0.0, 0.002, 0.004, 0.02]), min_size=25, max_size=25),
        st.integers(0, 25),
        st.integers(0, 1500),
    )
    def test_it_is_decided_by_what_came_before_and_sooner_with_less_precision(
        self, noise: list[float], count: int, switch: int
    ) -> None:
        accuracies = [
            accuracy + extra for accuracy, extra in zip([*STEP, *[0.913] * 7], noise, strict=True)
        ]
        whole = RULE.known_at(curve(accuracies), switch)
        part = RULE.known_at(curve(accuracies[:count]), switch)
        assert part == (whole if whole is not None and whole < count else None)
        coarse = replace(RULE, precision=0.01).known_at(curve(accuracies), switch)
        if whole is not None:
            assert coarse is not None
            assert coarse <= whole

    def test_of_the_published_runs_the_accuracy_is_known_at_two_thirds(
        self, published: Path
    ) -> None:
        jobs = recorded_jobs(published)
        missing, saved = [], []
        for job in jobs.values():
            for run in job.runs.played.values():
                if run.plateau_accuracy is not None:
                    missing.append(run.accuracy - run.plateau_accuracy)
                    saved.append(1 - run.stopped_seconds / run.seconds)
        assert len(missing) >= 30
        # What is missing is less than the precision asked for, and much the same for all runs.
        assert 0 < statistics.fmean(missing) < 0.0025
        assert statistics.stdev(missing) < 0.002
        assert max(saved) > 1 / 3 - 0.01
        eight = jobs["resnet32-cifar10-8"].runs
        whole = [eight.played[run.name] for run in eight.recording.at(100.0)]
        assert sum(run.plateau_accuracy is not None for run in whole) >= 3


def test_the_strategy_of_a_search_follows_from_beta_and_the_schedule() -> None:
    strategy = PaperStrategy(threshold=0.02)
    assert StopRule.of(strategy, [(400, 0.1), (600, 0.01)]) == StopRule(0.01, 600)
    assert StopRule.of(strategy, None) == StopRule(0.01)


def test_rest_promises_nothing_where_runs_may_still_fail() -> None:
    adaptive = AdaptiveStrategy()
    assert StopRule.of(adaptive, [(DECAY, 0.1)]).trusts_rest
    for unknown in (None, []):
        assert StopRule.of(adaptive, unknown).known_at(curve(STEP)) is None
        assert StopRule.of(PaperStrategy(), unknown).known_at(curve(STEP)) == 15


def run(percent: float, accuracy: float, plateau: float | None = None) -> Observation:
    return Observation(percent, accuracy, plateau_accuracy=plateau)


def stopped(percent: float, accuracy: float) -> Observation:
    return Observation(percent, accuracy, stopped_early=True)


def test_a_candidate_is_stopped_once_somebody_knows_what_that_changes() -> None:
    strategy = AdaptiveStrategy()
    assert may_stop(strategy, 100, [])
    assert not may_stop(strategy, 50, [run(100, 0.92), stopped(100, 0.91)])
    assert may_stop(strategy, 50, [run(100, 0.92, 0.918)])
    whole = replace(strategy, early_stop=False)
    assert not may_stop(whole, 100, [])
    assert not may_stop(whole, 50, [run(100, 0.92, 0.918)])


def test_what_is_missing_is_the_mean_of_runs_that_were_made_to_their_end() -> None:
    diverged = replace(run(25, 0.1, 0.9), diverged=True)
    known = [run(100, 0.920, 0.918), run(50, 0.910, 0.909), run(50, 0.9), diverged]
    assert correction(known) == pytest.approx(0.0015)
    assert correction([run(100, 0.92), stopped(50, 0.9)]) is None


def test_only_stopped_runs_are_corrected_and_stay_accuracies() -> None:
    lost = replace(stopped(6.25, 0.1), diverged=True)
    runs = [run(100, 0.920, 0.910), stopped(50, 0.905), run(25, 0.9), stopped(12.5, 0.995), lost]
    assert [one.accuracy for one in corrected(runs)] == pytest.approx([0.92, 0.915, 0.9, 1.0, 0.1])
    assert corrected(runs[1:]) == runs[1:]


OBSERVATIONS = st.lists(
    st.builds(
        lambda accuracy, missing, kind: (
            run(50, accuracy, accuracy - missing if kind else None)
            if kind < 2
            else stopped(50, accuracy - missing)
        ),
        st.floats(0.1, 0.9),
        st.floats(-0.01, 0.01),
        st.integers(0, 2),
    ),
    max_size=8,
)


@given(OBSERVATIONS, st.randoms(use_true_random=False))
def test_a_correction_keeps_differences_and_does_not_depend_on_the_order(
    runs: list[Observation], chance: random.Random
) -> None:
    after, difference = corrected(runs), correction(runs) or 0.0
    expected = [run.accuracy + difference * run.stopped_early for run in runs]
    assert [run.accuracy for run in after] == pytest.approx(expected)
    order = list(range(len(runs)))
    chance.shuffle(order)
    assert corrected([runs[i] for i in order]) == [after[i] for i in order]
