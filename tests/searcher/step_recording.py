"""A test tool: recorded runs whose accuracy jumps at the decay of the learning rate, then rests."""

from __future__ import annotations

import random
from dataclasses import replace

from syncswitch.storage.records.trial import Evaluation, PhaseRecord
from syncswitch.trainers.replay import RecordedRun, Recording
from tests.identities import GENERATED

FIRST_SECONDS = 100.0
SECOND_SECONDS = 30.0
DECAY = 0.5
TARGET = 0.92
GRID = (3.125, 6.25, 12.5, 25.0, 50.0, 100.0)


def step_recording(
    knee_percent: float = 12.5,
    *,
    runs: int = 6,
    noise: float = 0.002,
    loss_per_octave: float = 0.03,
    diverges_below_percent: float = 0.0,
) -> Recording:
    """Some runs at each switch point of a grid of 5 halvings."""
    made = []
    for switch_point in GRID:
        for number in range(runs):
            draw = random.Random(f"{switch_point} {number}")
            octaves, at = 0, switch_point
            while at < knee_percent:
                octaves, at = octaves + 1, 2 * at
            accuracy = TARGET - loss_per_octave * octaves + draw.gauss(0, noise)
            made.append(
                _run(switch_point, number, accuracy, switch_point < diverges_below_percent, draw)
            )
    return Recording(GENERATED, tuple(made), reference="jobs.py:it")


def _run(
    switch_point: float, number: int, accuracy: float, diverged: bool, draw: random.Random
) -> RecordedRun:
    W, interval = GENERATED.total_worker_steps, 100
    switch = round(W * switch_point / 100 / GENERATED.workers) * GENERATED.workers
    end = W if not diverged else switch + (W - switch) // 4 // interval * interval
    first = FIRST_SECONDS * switch / W
    second = SECOND_SECONDS * (end - switch) / W
    phases = (
        PhaseRecord("bsp", 0, switch, first, 0.0, 0),
        PhaseRecord("asp", switch, end, second, 3.0, 9),
    )

    def seconds(step: int) -> float:
        return FIRST_SECONDS * min(step, switch) / W + SECOND_SECONDS * max(0, step - switch) / W

    evaluations = []
    for step in range(interval, end + 1, interval):
        is_calm = step > DECAY * W
        level = accuracy if is_calm else accuracy - 0.1 - 0.3 * (1 - step / (DECAY * W))
        value = level + draw.gauss(0, 0.0004 if is_calm else 0.02)
        evaluations.append(Evaluation(step, seconds(step), value, 0.1))
    run = RecordedRun(
        candidate_percent=switch_point,
        accuracy=0.1 if diverged else accuracy,
        training_seconds=first + second,
        diverged=diverged,
        first_seconds=first,
        worker_steps=end,
        evaluations=tuple(evaluations),
        phases=tuple(phase for phase in phases if phase.end_worker_step > phase.start_worker_step),
        name=f"{switch_point:g} % run {number}",
    )
    return replace(run, switch_overhead_seconds=0.01)
