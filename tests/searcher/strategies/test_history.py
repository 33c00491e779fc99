"""Which runs of a search count."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from syncswitch.searcher.strategies.adaptive.strategy import History
from syncswitch.searcher.strategies.observation import Observation

GRID = (25.0, 50.0, 100.0)

RUNS = st.lists(
    st.builds(
        Observation,
        switch_percent=st.sampled_from([*GRID, 33.0]),
        accuracy=st.floats(0, 1),
        diverged=st.booleans(),
        trial_number=st.integers(0, 50),
        replicate=st.integers(0, 3),
        plateau_accuracy=st.none() | st.floats(0, 1),
    ),
    max_size=12,
    unique_by=lambda run: run.trial_number,
)


@given(RUNS, st.randoms(use_true_random=False))
def test_a_replicate_of_a_switch_point_counts_once_whatever_the_order(
    runs: list[Observation], chance: random.Random
) -> None:
    history = History.of(runs, GRID)
    names = [(run.switch_percent, run.replicate) for run in history.runs]
    assert len(set(names)) == len(names)
    wanted = {(run.switch_percent, run.replicate) for run in runs if run.switch_percent in GRID}
    assert set(names) == wanted
    chance.shuffle(runs)
    assert History.of(runs, GRID) == history
    assert sum(map(history.made, range(3))) == len(names)


def test_the_first_of_several_counts() -> None:
    late = Observation(50, 0.8, trial_number=7)
    first = replace(late, accuracy=0.9, trial_number=3)
    assert History.of([late, first], GRID).runs == (first,)


def test_only_runs_that_count_say_what_stopping_changes() -> None:
    stopped = Observation(50, 0.80, stopped_early=True)
    whole = Observation(100, 0.90, trial_number=1, plateau_accuracy=0.89)
    again = replace(whole, trial_number=2, plateau_accuracy=0.5)
    foreign = replace(again, switch_percent=33.0)
    corrected, _ = History.of([stopped, whole, again, foreign], GRID).runs
    assert round(corrected.accuracy, 12) == 0.81


@given(RUNS, st.sampled_from([0, 1, 2]))
def test_a_further_run_has_the_first_replicate_that_is_free(
    runs: list[Observation], index: int
) -> None:
    history = History.of(runs, GRID)
    used = {run.replicate for run in history.at(index)}
    free = history.next_replicate(index)
    assert free not in used
    assert used.issuperset(range(free))
