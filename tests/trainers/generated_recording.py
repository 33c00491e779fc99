"""A test tool: recorded runs that follow from a small model of training.

The accuracy saturates with the worker-steps, with noise of the seed and the switch point; too high
a learning rate explodes at once, too low a one stays at chance.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from syncswitch.storage.metrics import converged_accuracy
from syncswitch.storage.records.job import ScheduledJob
from syncswitch.storage.records.trial import Evaluation, PhaseRecord, TrialSpec
from syncswitch.trainers.job.schedule import segments
from syncswitch.trainers.protocols import Exchange, choose_protocol
from syncswitch.trainers.replay import RecordedRun, Recording
from syncswitch.trainers.run.record import cut_phases

WORKER_STEP_SECONDS = {"bsp": 0.01, "asp": 0.004}
SWITCH_SECONDS = 0.05
CHANCE = 0.1
PLATEAU = 0.95
LEARNING_WORKER_STEPS = 60.0
NOISE = 0.003


def recording_of(
    identity: ScheduledJob, settings: Sequence[float], seeds: Sequence[int]
) -> Recording:
    """One run for each switch point and seed."""
    runs = tuple(
        run_of(identity, switch_point, seed) for switch_point in settings for seed in seeds
    )
    return Recording(identity, runs, reference=identity.name)


def run_of(identity: ScheduledJob, candidate_percent: float, seed: int) -> RecordedRun:
    """A run; its name says the switch point and the seed."""
    phases = tuple(_phases(TrialSpec(identity, candidate_percent, seed)))
    seconds = sum(phase.seconds for phase in phases)
    W = identity.total_worker_steps
    run = RecordedRun(
        candidate_percent=candidate_percent,
        accuracy=0.0,
        training_seconds=seconds,
        worker_steps=W,
        phases=phases,
        switch_overhead_seconds=SWITCH_SECONDS if len(phases) > 1 else 0.0,
        seed=seed,
        name=f"{candidate_percent:g} % seed {seed}",
    )
    run = replace(run, evaluations=tuple(_evaluations(identity, run)))
    if _explodes(identity):
        run = _ended(run, 2 * identity.workers, includes_its_evaluation=False)
    decay = (identity.recipe.learning_rate_boundaries or ((W, 1.0),))[0][0]
    if not _learns(identity):
        late = [one.worker_step for one in run.evaluations if one.worker_step > decay]
        run = _ended(run, late[0], includes_its_evaluation=True) if late else run
    first = [one.seconds for one in run.phases if one.protocol == identity.first_protocol]
    return replace(
        run, accuracy=converged_accuracy(run.evaluations), first_seconds=math.fsum(first)
    )


def _explodes(identity: ScheduledJob) -> bool:
    return (identity.recipe.learning_rate or 0.0) > 1e3


def _learns(identity: ScheduledJob) -> bool:
    return (identity.recipe.learning_rate or 0.0) > 1e-6


def _phases(spec: TrialSpec) -> Iterator[PhaseRecord]:
    workers = spec.identity.workers
    for segment in segments(spec):
        steps = segment.end_worker_step - segment.start_worker_step
        is_stale = choose_protocol(segment.protocol).exchange is Exchange.PUSH
        yield PhaseRecord(
            segment.protocol,
            segment.start_worker_step,
            segment.end_worker_step,
            steps * WORKER_STEP_SECONDS[segment.protocol],
            workers - 1.0 if is_stale else 0.0,
            2 * workers if is_stale else 0,
        )


def _evaluations(identity: ScheduledJob, run: RecordedRun) -> Iterator[Evaluation]:
    clock, random_ = run.clock(), random.Random(f"{run.name} {run.candidate_percent}")
    interval = identity.recipe.evaluation_interval_worker_steps or 1
    W = identity.total_worker_steps
    due = [_after_the_round(identity, run, multiple) for multiple in range(interval, W, interval)]
    for step in sorted({*due, W}):
        learned = 1 - math.exp(-step / LEARNING_WORKER_STEPS) if _learns(identity) else 0.0
        noise = random_.gauss(0, NOISE) if learned else 0.0
        accuracy = min(1.0, CHANCE + (PLATEAU - CHANCE) * learned + noise)
        yield Evaluation(step, clock.seconds_at(step), accuracy, 2.3 * (1 - 0.9 * learned))


def _after_the_round(identity: ScheduledJob, run: RecordedRun, worker_step: int) -> int:
    """A test that is due waits for the end of its round."""
    phase = next(one for one in run.phases if worker_step <= one.end_worker_step)
    size = choose_protocol(phase.protocol).exchange.gradients_per_update(identity.workers)
    rounds = math.ceil((worker_step - phase.start_worker_step) / size)
    return min(phase.start_worker_step + rounds * size, phase.end_worker_step)


def _ended(run: RecordedRun, worker_step: int, *, includes_its_evaluation: bool) -> RecordedRun:
    last = worker_step if includes_its_evaluation else worker_step - 1
    clock = run.clock()
    return replace(
        run,
        diverged=True,
        worker_steps=worker_step,
        training_seconds=clock.seconds_at(worker_step),
        phases=cut_phases(run.phases, 0, worker_step, clock),
        evaluations=tuple(one for one in run.evaluations if one.worker_step <= last),
    )
