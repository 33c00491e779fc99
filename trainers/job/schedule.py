"""Divides a trial into stretches of one protocol each, and refuses what cannot be trained; pure.

Everything is counted in worker-steps, never in optimizer steps.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from syncswitch.storage.errors import OptionHint, UnsuitableProtocolError, UserError
from syncswitch.storage.records.job import ScheduledJob
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.protocols import Exchange, check_protocols, choose_protocol


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of worker-steps after which the cluster is drained.

    Draining makes no difference to BSP, unless an online policy has moved the end away from the end
    of a round, which is then short. The other protocols start afresh: no worker is ahead, and
    replicas and their slots are replaced by their mean.
    """

    protocol: str
    start_worker_step: int  # done before it
    end_worker_step: int  # done after it
    checkpoint_percents: tuple[float, ...] = ()  # of W, written at its end
    is_trial: bool = False  # to see how fast it is; replicas then move as one worker's steps do


def percent_to_worker_steps(percent: float, total_worker_steps: int, round_size: int = 1) -> int:
    """Converts a percentage of W into worker-steps, to the nearest whole round; 100 % is exactly W.

    A round that is cut short would be an update with another batch size in the middle of the job,
    so only the very last round of a job may be short. More than 0 % is at least one round, so that
    no switch point is in fact the one at 0 %.
    """
    if percent >= 100.0:
        return total_worker_steps
    rounds = math.floor(percent / 100.0 * total_worker_steps / round_size + 0.5)
    if percent > 0.0:
        rounds = max(1, rounds)
    return min(rounds * round_size, total_worker_steps)


def segments(spec: TrialSpec, start_worker_step: int = 0) -> list[Segment]:
    """Divides a trial, from a worker-step on, at its switch and its checkpoints."""
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
    """Finds the segment that follows when the cluster is drained; None at the end of the job.

    Detours through the second protocol count towards W, but not towards the first one's share.
    """
    identity = spec.identity
    W = identity.total_worker_steps
    if done >= W:
        return None
    missing = switch_worker_step(spec) - first_protocol_done
    is_first = missing > 0 and not is_detour
    end = min(W, done + missing) if is_first else W
    checkpoints = checkpoint_steps(spec)
    end = min([end, *(step for step in checkpoints if step > done)])
    protocol = identity.first_protocol if is_first else identity.second_protocol
    percents = checkpoints.get(end, ())
    if is_first and end == done + missing:
        percents = percents_at_switch(spec, percents)
    return Segment(protocol, done, end, percents)


def switch_points(spec: TrialSpec) -> tuple[float, ...]:
    """Lists the switch points that a guarded run tries one after the other; the last one is 100.

    A switch point less than a round after the one before, or at the end of the job, is left out.
    """
    points, last = [spec.switch_percent], switch_worker_step(spec)
    for percent in spec.retry_percents:
        step = switch_worker_step(replace(spec, switch_percent=percent))
        if last < step < spec.identity.total_worker_steps:
            points.append(percent)
            last = step
    return (*points, 100.0)


def after_failures(spec: TrialSpec, failures: int) -> TrialSpec:
    """Returns a trial as it is carried out after this many of its switches have failed."""
    return replace(spec, switch_percent=switch_points(spec)[failures]) if failures else spec


def keeps_switch(spec: TrialSpec) -> bool:
    """Whether a trial writes a checkpoint at its switch, so that it can go back there."""
    is_written = spec.checkpoint_directory is not None and bool(spec.checkpoint_percents)
    return spec.band is not None and spec.switch_percent < 100 and is_written


def percents_at_switch(spec: TrialSpec, others: tuple[float, ...] = ()) -> tuple[float, ...]:
    """Percentages of the checkpoint at the switch; the last one is part of the file's name."""
    if not keeps_switch(spec):
        return others
    return (*(one for one in others if one != spec.switch_percent), spec.switch_percent)


def checkpoint_steps(spec: TrialSpec) -> dict[int, tuple[float, ...]]:
    """Maps each worker-step after which a checkpoint is written to its percentages of W."""
    identity, switch = spec.identity, switch_worker_step(spec)
    W = identity.total_worker_steps
    size = round_worker_steps(identity.second_protocol, identity.workers)
    percents: dict[int, tuple[float, ...]] = {}
    for percent in spec.checkpoint_percents:
        if percent <= spec.switch_percent:
            step = min(switch_worker_step(replace(spec, switch_percent=percent)), switch)
        elif percent >= 100.0:
            step = W
        else:
            rounds = max(0, math.floor((percent / 100.0 * W - switch) / size + 0.5))
            step = min(W, switch + rounds * size)
        percents[step] = (*percents.get(step, ()), percent)
    return percents


def checkpoint_path(spec: TrialSpec, percent: float, suffix: str) -> Path:
    """Path of a trial's checkpoint at `percent` of W."""
    name = f"seed-{spec.seed}-switch-{spec.switch_percent!r}-at-{float(percent)!r}{suffix}"
    return (spec.checkpoint_directory or Path.cwd()) / name


def switch_worker_step(spec: TrialSpec) -> int:
    """Worker-step at which a trial leaves its first protocol."""
    round_size = round_worker_steps(spec.identity.first_protocol, spec.identity.workers)
    return percent_to_worker_steps(
        spec.switch_percent, spec.identity.total_worker_steps, round_size
    )


def round_worker_steps(protocol: str, workers: int) -> int:
    """Worker-steps in a round; 1 for a protocol without rounds, or one known to a command only."""
    try:
        return choose_protocol(protocol).exchange.gradients_per_update(workers)
    except UserError:
        return 1


def decay_factor(boundaries: Sequence[tuple[int, float]], worker_step: int) -> float:
    """Factor on the learning rate at `worker_step`; 1 before the first boundary."""
    position = bisect_right([step for step, _ in boundaries], worker_step)
    return boundaries[position - 1][1] if position else 1.0


def last_boundary(boundaries: Iterable[tuple[int, float]]) -> int:
    """Worker-step of the last learning-rate decay; 0 if there is none."""
    return max((step for step, _ in boundaries), default=0)


def check_length(identity: ScheduledJob) -> None:
    """Refuses to search for the switch of a job too short for a round of each protocol."""
    W, n = identity.total_worker_steps, identity.workers
    if 2 * n > W:
        raise UserError(
            f"workload {identity.name!r} has {W:,} worker-steps, fewer than two rounds of {n:,} "
            "workers",
            remedy=(OptionHint("workers", verb="use fewer"), "make the job longer"),
            code="parameter-invalid",
        )


def check_trial(spec: TrialSpec, own: ScheduledJob) -> None:
    """Refuses a trial of another job, with unknown protocols, or with an impossible switch."""
    identity = spec.identity
    check_protocols((identity.first_protocol, identity.second_protocol), identity.workers)
    check_job(spec, own)


def check_embeddings(spec: TrialSpec, layers: Sequence[str]) -> None:
    """Refuses protocols that average whole models where rows of these layers are trained apart."""
    if not layers:
        return
    identity = spec.identity
    seconds = [one.second_protocol for one in (*spec.candidates, *spec.fallbacks)]
    for text in (identity.first_protocol, identity.second_protocol, *seconds):
        if choose_protocol(text).exchange is Exchange.REPLICA:
            raise UnsuitableProtocolError(
                f"protocol {text!r} averages whole models, and workload {identity.name!r} trains"
                f" the table of layer {layers[0]!r} by its rows, which are kept on parameter"
                " servers; take bsp, asp, ssp, dssp or gba, or set least_embedding_values to None"
            )


def check_job(spec: TrialSpec, own: ScheduledJob) -> None:
    """Refuses a trial of another job, or with an impossible switch."""
    identity = spec.identity
    if identity.fingerprint != own.fingerprint:
        raise UserError(
            f"trial of workload {identity.name!r} ({identity.fingerprint[:12]}) with "
            f"{identity.workers} workers given to a trainer of {own.name!r} "
            f"({own.fingerprint[:12]}) with {own.workers}; make a trainer for it"
        )
    if identity.protocols != own.protocols:
        raise UserError(
            f"trial of workload {identity.name!r} with {identity.protocols.described} given to a"
            f" trainer with {own.protocols.described}; make a trainer for it"
        )
    if not 0 <= spec.switch_percent <= 100:
        raise UserError(
            f"switch_percent is {spec.switch_percent}; give a number from 0 to 100",
            code="parameter-invalid",
        )
    percents, least = spec.retry_percents, spec.switch_percent
    row = (least, *percents, 100.0)
    if percents and any(not before < after for before, after in itertools.pairwise(row)):
        raise UserError(
            f"switches after a failed one are {list(percents)}: give percentages above {least:g}"
            " and below 100, each above the one before",
            code="parameter-invalid",
        )


def check_position(spec: TrialSpec, worker_step: int, first_protocol_worker_steps: int) -> None:
    """Refuses a checkpoint that the fork's own trial would not have reached."""
    W, switch = spec.identity.total_worker_steps, switch_worker_step(spec)
    if worker_step > W:
        raise UserError(
            f"checkpoint {spec.fork_from} is at worker-step {worker_step:,}, beyond the "
            f"{W:,} of workload {spec.identity.name!r}; give an earlier one",
            code="checkpoint-unusable",
        )
    if first_protocol_worker_steps != min(worker_step, switch):
        raise UserError(
            f"checkpoint {spec.fork_from} has {first_protocol_worker_steps:,} of its "
            f"{worker_step:,} worker-steps in the first protocol, but this trial "
            f"switches at {switch:,}; give one from before that, or of the same switch",
            code="checkpoint-unusable",
        )
