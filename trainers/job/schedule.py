"""From a timing policy to phases, learning rates and batch sizes; pure.

The configuration policy (Sync-Switch paper, section IV-B): a protocol of rounds uses the global
batch n*B and the learning rate n*eta with the mean gradient, the others batch B and eta; batch and
momentum stay so after the switch unless the workload says otherwise. Replicas that are averaged
move together as far as a round does, so each takes steps of n*eta. Everything is counted in
worker-steps, never in optimizer steps.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.protocols import choose_protocol


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of worker-steps after which the cluster is drained.

    For BSP that changes nothing, unless online policies have moved a cut away from the end of a
    round, which is short then. Others start anew: nobody is ahead, replicas and their slots are
    their mean.

    Attributes:
        protocol: The protocol, as `ProtocolChoice.text` writes it.
        start_worker_step: Worker-steps done before.
        end_worker_step: Worker-steps done after.
        checkpoint_percents: Percents to which a checkpoint at the end belongs; empty for none.
    """

    protocol: str
    start_worker_step: int
    end_worker_step: int
    checkpoint_percents: tuple[float, ...] = ()


def percent_to_worker_steps(percent: float, total_worker_steps: int, round_size: int = 1) -> int:
    """Turns a percent of W into worker-steps, to the nearest whole round; 100 % is W exactly.

    Whole rounds, because a round that is cut short would be an update with another batch size in
    the middle of the job. Only the very last round of a job may be short. More than 0 % is at least
    one round: else a switch point would be another one under its name.
    """
    if percent >= 100.0:
        return total_worker_steps
    rounds = math.floor(percent / 100.0 * total_worker_steps / round_size + 0.5)
    if percent > 0.0:
        rounds = max(1, rounds)
    return min(rounds * round_size, total_worker_steps)


def segments(spec: TrialSpec, start_worker_step: int = 0) -> list[Segment]:
    """Cuts a trial at its switch and at its checkpoints.

    Returns:
        Segments in order, without empty ones, from `start_worker_step` to W.
    """
    result: list[Segment] = []
    done, first = start_worker_step, min(start_worker_step, switch_worker_step(spec))
    while (segment := next_segment(spec, done, first)) is not None:
        result.append(segment)
        done = segment.end_worker_step
        first = min(done, switch_worker_step(spec))
    return result


def next_segment(
    spec: TrialSpec, done: int, first_protocol_done: int, *, is_detour: bool = False
) -> Segment | None:
    """The segment that follows when the cluster is drained.

    Up to the switch the first protocol has its full share, wherever detours by way of the second
    one have put that: these count towards W, not towards the share.

    Returns:
        A segment up to the next known cut, which may be made earlier; None at the end of the job.
    """
    identity = spec.identity
    W = identity.total_worker_steps
    if done >= W:
        return None
    missing = switch_worker_step(spec) - first_protocol_done
    is_before_switch = missing > 0
    if is_before_switch:
        is_first = not is_detour
        end = min(W, done + missing) if is_first else W
    else:
        is_first = False
        end = W
    checkpoints = checkpoint_steps(spec)
    end = min([end, *(step for step in checkpoints if step > done)])
    protocol = identity.first_protocol if is_first else identity.second_protocol
    percents = checkpoints.get(end, ())
    if is_first and is_before_switch and end == done + missing:
        percents = percents_at_switch(spec, percents)
    return Segment(protocol, done, end, percents)


def switch_points(spec: TrialSpec) -> tuple[float, ...]:
    """Switch points of a guarded run, the next one after each failure; the last is 100, for none.

    A later one with fewer than a round between it and the one before, or before the end, is left
    out.
    """
    points = [spec.switch_percent]
    for percent in spec.retry_percents:
        steps = [
            switch_worker_step(replace(spec, switch_percent=one)) for one in (points[-1], percent)
        ]
        if steps[0] < steps[1] < spec.identity.total_worker_steps:
            points.append(percent)
    return (*points, 100.0)


def after_failures(spec: TrialSpec, failures: int) -> TrialSpec:
    """A trial as it is carried out when so many of its switches have failed."""
    return replace(spec, switch_percent=switch_points(spec)[failures]) if failures else spec


def keeps_switch(spec: TrialSpec) -> bool:
    """Whether the state at the switch is among a trial's checkpoints, so that it can go back."""
    is_written = spec.checkpoint_directory is not None and bool(spec.checkpoint_percents)
    return spec.band is not None and spec.switch_percent < 100 and is_written


def percents_at_switch(spec: TrialSpec, others: tuple[float, ...] = ()) -> tuple[float, ...]:
    """Percents of a checkpoint at the switch; the last one names the file."""
    if not keeps_switch(spec):
        return others
    return (*(one for one in others if one != spec.switch_percent), spec.switch_percent)


def checkpoint_steps(spec: TrialSpec) -> dict[int, tuple[float, ...]]:
    """Worker-steps after which a trial writes a checkpoint, and for which percents of W."""
    identity = spec.identity
    W = identity.total_worker_steps
    switch = switch_worker_step(spec)
    found: dict[int, tuple[float, ...]] = {}
    for percent in spec.checkpoint_percents:
        if percent <= spec.switch_percent:
            round_size = round_worker_steps(identity.first_protocol, identity.workers)
            step = min(percent_to_worker_steps(percent, W, round_size), switch)
        elif percent >= 100.0:
            step = W
        else:
            step = _worker_step_after_switch(spec, percent)
        found[step] = (*found.get(step, ()), percent)
    return found


def checkpoint_path(spec: TrialSpec, percent: float, suffix: str) -> Path:
    """The file of a trial's checkpoint at `percent` of W."""
    name = f"seed-{spec.seed}-switch-{spec.switch_percent!r}-at-{float(percent)!r}{suffix}"
    return (spec.checkpoint_directory or Path.cwd()) / name


def switch_worker_step(spec: TrialSpec) -> int:
    """Worker-step at which a trial leaves its first protocol."""
    round_size = round_worker_steps(spec.identity.first_protocol, spec.identity.workers)
    return percent_to_worker_steps(
        spec.switch_percent, spec.identity.total_worker_steps, round_size
    )


def _worker_step_after_switch(spec: TrialSpec, percent: float) -> int:
    """The worker-step at a percent of W, in whole rounds of the second protocol."""
    identity, start = spec.identity, switch_worker_step(spec)
    W = identity.total_worker_steps
    size = round_worker_steps(identity.second_protocol, identity.workers)
    rounds = max(0, math.floor((percent / 100.0 * W - start) / size + 0.5))
    return min(W, start + rounds * size)


@cache
def round_worker_steps(protocol: str, workers: int) -> int:
    """Worker-steps of a round; 1 for a protocol without rounds, or that only a command knows.

    Cached, as to find out that no installed package knows a protocol takes 10 ms.
    """
    try:
        return choose_protocol(protocol).exchange.gradients_per_update(workers)
    except UserError:
        return 1


def decay_factor(boundaries: Sequence[tuple[int, float]], worker_step: int) -> float:
    """Factor on the learning rate at `worker_step`; 1 before the first boundary."""
    position = bisect_right([step for step, _ in boundaries], worker_step)
    return boundaries[position - 1][1] if position else 1.0


def last_boundary(boundaries: Iterable[tuple[int, float]]) -> int:
    """Worker-step of the last learning-rate decay; 0 where there is none."""
    return max((step for step, _ in boundaries), default=0)
