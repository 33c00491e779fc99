"""Replayed searches: what their runs measure and cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.problems import generated_problem
from reproduction.simulator import PlayedRun, SimulatedSearch, played_run, search_with
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.early_stopping import StopRule
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.records.trial import Evaluation, PhaseRecord
from syncswitch.trainers.replay import RecordedRun

FIRST_SECONDS, SECOND_SECONDS = 100.0, 40.0

RunAt = Callable[[float, int], PlayedRun | None]


def whole(percent: float, accuracy: float = 0.92) -> PlayedRun:
    """A run that cannot be stopped."""
    share = percent / 100
    first = FIRST_SECONDS * share
    return PlayedRun(accuracy, False, first + SECOND_SECONDS * (1 - share), first)


def stoppable(percent: float, stopped_seconds: float) -> PlayedRun:
    return replace(whole(percent), plateau_accuracy=0.918, stopped_seconds=stopped_seconds)


def good_down_to(percent: float) -> RunAt:
    """Runs lose 0.1 below a switch point."""
    return lambda at, _: whole(at, 0.92 if at >= percent else 0.82)


def test_a_search_pays_all_its_runs() -> None:
    strategy = PaperStrategy(halvings=2, runs=2)
    search = search_with(strategy, good_down_to(50))
    # 100 % and 50 % are accepted, 25 % is not: 100, 70 and 55 s, each twice.
    assert search == SimulatedSearch(50, 450.0, 6, None, (100, 100, 50, 50, 25, 25))


def test_with_shared_prefixes_a_replicate_pays_its_start_once() -> None:
    strategy = PaperStrategy(halvings=2, runs=2, share_prefix=True)
    search = search_with(strategy, good_down_to(50))
    # The first runs were at 100 %, so what follows pays nothing but its second phase.
    assert search.seconds == pytest.approx(2 * (100 + 20 + 30))
    known = search_with(replace(strategy, target_accuracy=0.92), good_down_to(75))
    # First 50 %, which is too early, then 75 % on top of it.
    assert (known.switch_percent, known.runs) == (75, 4)
    assert known.seconds == pytest.approx(2 * (70 + 25 + 10))


def test_a_stopped_run_pays_up_to_there_and_is_corrected() -> None:
    strategy = PaperStrategy(halvings=1, runs=2, early_stop=True, target_accuracy=0.929)

    def run_at(percent: float, replicate: int) -> PlayedRun:
        return stoppable(percent, 60.0)

    # The first run shows what stopping changes, and the second is stopped.
    search = search_with(strategy, run_at)
    assert (search.seconds, search.whole_percents) == (70 + 60, (50,))
    assert search.switch_percent == 50  # 0.918 + 0.002 is acceptable, 0.918 would not be
    never = search_with(replace(strategy, early_stop=False), run_at)
    assert (never.seconds, never.whole_percents) == (140, (50, 50))


def test_forks_and_stops_meet() -> None:
    rule = PaperStrategy(halvings=1, runs=2, share_prefix=True, early_stop=True)

    # The baseline is stopped from its first run on, at 40 % of W: candidates go on from there.
    first = search_with(rule, lambda at, _: stoppable(100, 40.0) if at == 100 else whole(at))
    assert first.seconds == pytest.approx(2 * (40 + 10 + 20))
    # A run that is known at 45 s and inherits 50 s is not stopped before it begins.
    late = search_with(rule, lambda at, _: whole(100) if at == 100 else stoppable(50, 45.0))
    assert late.seconds == pytest.approx(2 * (100 + 20))
    assert late.whole_percents == (100, 100, 50, 50)


def test_a_diverged_run_ends_the_repeats_and_is_not_whole() -> None:
    strategy = PaperStrategy(halvings=1, runs=5, target_accuracy=0.92)
    lost = PlayedRun(0.0, True, 30.0, 30.0)
    search = search_with(strategy, lambda percent, _: lost)
    assert search == SimulatedSearch(100, 30.0, 1)


def test_where_nothing_is_recorded_a_search_ends_with_what_it_accepted() -> None:
    strategy = PaperStrategy(halvings=3, runs=1, target_accuracy=0.92)
    search = search_with(strategy, lambda percent, _: None if percent == 25 else whole(percent))
    assert (search.switch_percent, search.runs, search.confidence) == (50, 1, None)


def test_a_recorded_run_is_known_where_its_curve_says() -> None:
    accuracies = [0.7, 0.8, 0.78, 0.82, 0.79, 0.83, 0.8, 0.84, *[0.91] * 12]
    run = RecordedRun(
        candidate_percent=50,
        accuracy=0.912,
        training_seconds=200.0,
        first_seconds=120.0,
        worker_steps=2000,
        evaluations=tuple(Evaluation(100 * n, 10.0 * n, a, 1.0) for n, a in enumerate(accuracies)),
        phases=(
            PhaseRecord("bsp", 0, 1000, 120.0, 0.0, 0),
            PhaseRecord("asp", 1000, 2000, 80.0, 3.0, 9),
        ),
    )
    # The switch is at the tenth evaluation, and the fifth after it, at 150 s, settles it.
    played = played_run(run, StopRule(0.005))
    assert played == PlayedRun(0.912, False, 200.0, 120.0, pytest.approx(0.91), 150.0)
    assert played_run(run, None) == PlayedRun(0.912, False, 200.0, 120.0)
    alone = replace(run, phases=run.phases[:1])
    assert played_run(alone, StopRule(0.005)).stopped_seconds == 120.0
    diverged = replace(run, diverged=True)
    assert played_run(diverged, StopRule(0.005)) == PlayedRun(0.912, True, 200.0, 120.0)


STRATEGIES = st.sampled_from([PaperStrategy, AdaptiveStrategy])


@given(STRATEGIES, st.integers(0, 10_000), st.booleans(), st.booleans())
def test_what_is_saved_is_never_paid(
    kind: Any, number: int, share_prefix: bool, early_stop: bool
) -> None:
    job = generated_problem(number)
    strategy = kind(runs=3, share_prefix=share_prefix, early_stop=early_stop)
    search = search_with(strategy, job.run_at)
    assert search == search_with(strategy, job.run_at)
    assert search.switch_percent in strategy.grid()
    assert search.runs <= strategy.most_runs
    assert len(search.whole_percents) <= search.runs
    if kind is PaperStrategy and not early_stop:
        # What runs cost is nothing to it, so the same runs are made, and paid in full.
        in_full = search_with(replace(strategy, share_prefix=False), job.run_at)
        assert (in_full.switch_percent, in_full.runs) == (search.switch_percent, search.runs)
        assert search.seconds <= in_full.seconds
