"""The devices of the parts of a cluster, and the environment that gives them to each; pure.

Only the steps of workers use GPUs, each step one of them. Updates, batches and evaluations are made
on CPUs. A process sees those GPUs that its environment named when TensorFlow was imported, and no
others afterwards; so with GPUs each part is a process of its own from the start, not a fork of one
that has imported TensorFlow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from syncswitch.storage.errors import UserError

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
NO_GPU: Mapping[str, str] = {VISIBLE_GPUS: "-1"}
"""Environment of a process that is to leave all GPUs alone."""

_SMALLEST_SHARE = 0.01
# TensorFlow takes all memory of a GPU at once otherwise.
_GROWTH = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}


@dataclass(frozen=True)
class Placement:
    """The devices and environments with which the parts of a cluster are started.

    Attributes:
        workers: Environment of each, in the order of their numbers, before TensorFlow is imported;
            the others have `NO_GPU`.
        has_gpus: Whether steps run on GPUs.
    """

    workers: tuple[Mapping[str, str], ...]
    has_gpus: bool = False

    @property
    def needs_fresh_processes(self) -> bool:
        """Whether a worker needs another environment than the process that would fork it."""
        return any(environment != NO_GPU for environment in self.workers)

    def environment(self, job: str, task: int) -> Mapping[str, str]:
        """The environment of one part."""
        return self.workers[task] if job == "worker" else NO_GPU


def thread_limits(threads: int) -> dict[str, str]:
    """Environment of a process whose TensorFlow has so many threads, and one at least."""
    limit = str(max(1, threads))
    return {"TF_NUM_INTRAOP_THREADS": limit, "TF_NUM_INTEROP_THREADS": limit}


def place_on_cpus(workers: int) -> Placement:
    """A cluster without GPUs, whatever the machine has."""
    return Placement((NO_GPU,) * workers)


def place_on_gpus(workers: int, gpus: Sequence[str], gpus_per_worker: float) -> Placement:
    """Gives each worker its GPU, or its share of one.

    Args:
        workers: n.
        gpus: Those that may be used, as `CUDA_VISIBLE_DEVICES` names them.
        gpus_per_worker: 0 for none; 1; or a fraction for workers that share one, 0.5 for two.
    """
    check_gpus_per_worker(gpus_per_worker)
    if not gpus_per_worker:
        return place_on_cpus(workers)
    # Three workers have 0.33 of a GPU each, as they have 0.3333.
    sharers = math.floor(1.0 / gpus_per_worker + 1e-9)
    needed = math.ceil(workers / sharers)
    if needed > len(gpus):
        listed = f"{len(gpus)} ({', '.join(gpus)})" if gpus else "none"
        # Rounded down, or one worker too few would share.
        fitting_share = math.floor(100 * len(gpus) / workers) / 100
        raise UserError(
            f"--gpus-per-worker {gpus_per_worker:g} needs {needed} GPUs for {workers} workers, and"
            f" this process sees {listed}; use fewer --workers, a smaller share such as"
            f" {fitting_share:g}, or look at {VISIBLE_GPUS}"
        )
    shared = gpu_worker_environment(gpus_per_worker)
    environments = tuple(
        {VISIBLE_GPUS: gpus[worker // sharers], **shared} for worker in range(workers)
    )
    return Placement(environments, has_gpus=True)


def gpu_worker_environment(gpus_per_worker: float) -> Mapping[str, str]:
    """Environment of a worker with a share of a GPU, besides the GPU's number."""
    return _GROWTH if gpus_per_worker > 0 else {}


def check_gpus_per_worker(gpus_per_worker: float) -> None:
    """Refuses a share that cannot be given."""
    if gpus_per_worker != 0.0 and not _SMALLEST_SHARE <= gpus_per_worker <= 1.0:
        raise UserError(
            f"--gpus-per-worker is {gpus_per_worker:g}: a step runs on one GPU, so give 1, 0 for"
            " none, or a fraction such as 0.5 for workers that share one; for more GPUs use more"
            " --workers"
        )


def visible_gpus(environment: Mapping[str, str], count: int) -> tuple[str, ...]:
    """Names of the GPUs that this process sees, as `CUDA_VISIBLE_DEVICES` of a child needs them."""
    named = environment.get(VISIBLE_GPUS)
    if named is None:
        return tuple(map(str, range(count)))
    return tuple(name.strip() for name in named.split(","))[:count]
