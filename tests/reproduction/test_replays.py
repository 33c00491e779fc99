"""Many searches on one recording: their draws, and processes that share the work."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

import pytest

from reproduction import replays
from reproduction.replays import PlayedRecording, simulate
from reproduction.simulator import PlayedRun
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.records.trial import PhaseRecord
from syncswitch.trainers.replay import RecordedRun
from tests.reproduction.recordings import RUNS, STOP, recorded
from tests.searcher.step_recording import step_recording


def test_a_switch_point_is_drawn_without_replacement() -> None:
    all_drawn = simulate(PaperStrategy(halvings=2, runs=3), RUNS, 20)
    assert {(search.switch_percent, search.seconds) for search in all_drawn} == {(50.0, 600.0)}
    # One that is used up is shuffled again.
    (search,) = simulate(PaperStrategy(halvings=2, runs=7), RUNS, 1)
    assert (search.seconds, search.runs) == (7 * 200.0, 21)


def test_a_seed_fixes_the_draws() -> None:
    strategy = PaperStrategy(halvings=1, runs=1, threshold=0.005)
    assert simulate(strategy, RUNS, 20, seed=3) == simulate(strategy, RUNS, 20, seed=3)
    assert simulate(strategy, RUNS, 20, seed=3) != simulate(strategy, RUNS, 20, seed=4)
    # More searches go on where fewer end.
    assert simulate(strategy, RUNS, 40, seed=3)[:20] == simulate(strategy, RUNS, 20, seed=3)


def test_means_are_those_of_a_switch_point() -> None:
    assert RUNS.means[50.0] == PlayedRun(pytest.approx(0.91), False, 60.0, 0.0)
    half_diverged = recorded((50.0, 0.9, 60.0), RecordedRun(50.0, 0.0, 0.0, diverged=True))
    assert half_diverged.means[50.0].diverged


@pytest.mark.parametrize("protocol", ["bsp", "asp"])
def test_of_a_run_that_is_recorded_as_stopped_the_rest_is_estimated(protocol: str) -> None:
    """The whole run has 3000 worker-steps."""
    phases = [PhaseRecord("bsp", 0, 1500, 75.0, 0.0, 0)]
    if protocol == "asp":
        phases.append(PhaseRecord("asp", 1500, 2000, 10.0, 3.0, 9))
    last = phases[-1]
    done = sum(phase.seconds for phase in phases)
    switch_point = 50.0 if protocol == "asp" else 100.0
    run = RecordedRun(
        switch_point,
        0.9,
        done,
        first_seconds=75.0,
        worker_steps=last.end_worker_step,
        phases=tuple(phases),
        stopped_early=True,
    )
    rest = (3000 - last.end_worker_step) / last.worker_steps_per_second
    assert recorded(run).played["0"] == PlayedRun(
        accuracy=0.9,
        diverged=False,
        seconds=pytest.approx(done + rest),
        first_seconds=pytest.approx(150.0 if protocol == "bsp" else 75.0),
        plateau_accuracy=0.9,
        stopped_seconds=done,
    )


ADAPTIVE = AdaptiveStrategy(halvings=3)


@pytest.fixture(scope="module")
def steps() -> PlayedRecording:
    return PlayedRecording.of(step_recording(noise=0.006), STOP)


@pytest.mark.parametrize("strategy", [ADAPTIVE, PaperStrategy(halvings=3, runs=2)])
@pytest.mark.parametrize("are_broken", [False, True])
def test_processes_that_work_or_break_change_nothing(
    steps: PlayedRecording, strategy: Strategy, are_broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools, pool_of = [], replays._pool

    @contextmanager
    def watched(processes: int) -> Iterator[ProcessPoolExecutor]:
        broken = ProcessPoolExecutor(processes, initializer=os._exit, initargs=(1,))
        with broken if are_broken else pool_of(processes) as pool:
            pools.append(pool)
            yield pool

    alone = simulate(strategy, steps, 60)
    monkeypatch.setattr(replays, "_pool", watched)
    monkeypatch.setattr(replays, "_WORTH_PROCESSES_SECONDS", 0.0)
    told: list[int] = []
    assert simulate(strategy, steps, 60, processes=2, on_done=told.append) == alone
    assert len(pools) == 1
    assert told == [25, 25, 10]


def test_what_is_soon_done_starts_no_process(
    steps: PlayedRecording, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(processes: int) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(replays, "_pool", refuse)
    assert len(simulate(PaperStrategy(halvings=1, runs=1), steps, 60, processes=2)) == 60
