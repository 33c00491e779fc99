"""Refuses trials that a trainer cannot carry out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.job.schedule import switch_worker_step
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.protocols import Exchange, check_protocols, choose_protocol


def check_length(identity: WorkloadIdentity) -> None:
    """Refuses to search for the switch of a job too short for a round of each protocol."""
    W, n = identity.total_worker_steps, identity.workers
    if 2 * n > W:
        raise UserError(
            f"workload {identity.name!r} has {W:,} worker-steps, fewer than two rounds of {n:,} "
            "workers; take fewer --workers, or make the job longer"
        )


def check_trial(spec: TrialSpec, own: WorkloadIdentity) -> None:
    """Refuses a trial of another job, with unknown protocols, or with an impossible switch."""
    identity = spec.identity
    check_protocols((identity.first_protocol, identity.second_protocol), identity.workers)
    check_job(spec, own)


def check_embeddings(spec: TrialSpec, layers: Sequence[str]) -> None:
    """Refuses protocols that average whole models if the rows of layers are trained separately."""
    identity = spec.identity
    for text in (identity.first_protocol, identity.second_protocol):
        if layers and choose_protocol(text).exchange is Exchange.REPLICA:
            raise UserError(
                f"protocol {text!r} averages whole models, and workload {identity.name!r} trains"
                f" the table of layer {layers[0]!r} by its rows, which are kept on parameter"
                " servers; take bsp, asp, ssp, dssp or gba, or set least_embedding_values to None"
            )


def check_batch(workload: Workload, second_protocol: str) -> None:
    """Refuses the global batch after a switch to a protocol that combines gradients or models."""
    if workload.batch_after_switch == "same":
        return
    choice = choose_protocol(second_protocol)
    if choice.exchange is not Exchange.PUSH:
        raise UserError(
            f"workload {workload.name!r}: batch_after_switch is {workload.batch_after_switch!r},"
            " which is for protocols that apply each gradient by itself, and after the switch comes"
            f" {choice.text!r}; switch to asp, ssp or dssp, or leave batch_after_switch out"
        )


def check_job(spec: TrialSpec, own: WorkloadIdentity) -> None:
    """Refuses a trial of another job, or with an impossible switch."""
    identity = spec.identity
    if identity.fingerprint != own.fingerprint:
        raise UserError(
            f"trial of workload {identity.name!r} ({identity.fingerprint[:12]}) with "
            f"{identity.workers} workers given to a trainer of {own.name!r} "
            f"({own.fingerprint[:12]}) with {own.workers}; make a trainer for it"
        )
    if not 0 <= spec.switch_percent <= 100:
        raise UserError(f"switch_percent is {spec.switch_percent}; give a number from 0 to 100")
    _check_retries(spec.retry_percents, spec.switch_percent)


def _check_retries(percents: Sequence[float], least: float) -> None:
    """Refuses percentages that do not ascend from above `least` to below 100."""
    row = (least, *percents, *([100.0] if percents else []))
    if any(not before < after for before, after in itertools.pairwise(row)):
        raise UserError(
            f"switches after a failed one are {list(percents)}: give percents above {least:g} and"
            " below 100, each above the one before"
        )


def check_position(spec: TrialSpec, worker_step: int, first_protocol_worker_steps: int) -> None:
    """Refuses a checkpoint that the fork's own trial would not have reached."""
    W, switch = spec.identity.total_worker_steps, switch_worker_step(spec)
    if worker_step > W:
        raise UserError(
            f"checkpoint {spec.fork_from} is at worker-step {worker_step:,}, beyond the "
            f"{W:,} of workload {spec.identity.name!r}; give an earlier one"
        )
    if first_protocol_worker_steps != min(worker_step, switch):
        raise UserError(
            f"checkpoint {spec.fork_from} has {first_protocol_worker_steps:,} of its "
            f"{worker_step:,} worker-steps in the first protocol, but this trial "
            f"switches at {switch:,}; give one from before that, or of the same switch"
        )
