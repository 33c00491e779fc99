"""When a run may be stopped, and what that changes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest

from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.early_stopping import StopRule, corrected, correction, may_stop
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.records.trial import Evaluation

INTERVAL = 100
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
        assert next(n for n in range(len(STEP)) if RULE.is_settled(curve(STEP[:n]))) == 15
        assert RULE.settled_after(curve(STEP)) == 15
        assert RULE.plateau_accuracy(curve(STEP)) == pytest.approx(statistics.fmean(CALM[:5]))
        # To stop a run at its last evaluation saves nothing.
        assert (
            RULE.settled_after(curve(STEP[:15])) is RULE.plateau_accuracy(curve(STEP[:15])) is None
        )

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
        assert not RULE.is_settled(curve(accuracies)), why

    def test_all_five_are_after_the_switch_and_the_last_decay(self) -> None:
        known = curve(STEP[:15])
        first = known[10].worker_step
        assert RULE.is_settled(known, switch_worker_step=first - 1)
        assert not RULE.is_settled(known, switch_worker_step=first)
        assert replace(RULE, not_before_worker_step=first - 1).is_settled(known)
        assert not replace(RULE, not_before_worker_step=first).is_settled(known)


def test_the_rule_of_a_search_follows_from_beta_the_schedule_and_how_runs_may_fail() -> None:
    paper, adaptive = PaperStrategy(threshold=0.02), AdaptiveStrategy(threshold=0.02)
    for strategy in (paper, adaptive):
        assert StopRule.of(strategy, [(400, 0.1), (600, 0.01)]) == StopRule(0.01, 600)
    assert StopRule.of(paper, None) == StopRule(0.01)
    assert StopRule.of(adaptive, None) == StopRule(0.01, trusts_rest=False)
    assert StopRule.of(adaptive, []).settled_after(curve(STEP)) is None


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
