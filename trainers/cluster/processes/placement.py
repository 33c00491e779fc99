"""The devices of the parts of a cluster, and the environments that assign them; pure.

Only the steps of workers use GPUs, one GPU per step. Updates, batches and evaluations run on CPUs.
A process sees the GPUs that its environment named when TensorFlow was imported, and no others
later; so with GPUs each part is a fresh process, not a fork of one that has imported TensorFlow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from syncswitch.storage.errors import UserError

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
NO_GPU: Mapping[str, str] = {VISIBLE_GPUS: "-1"}
"""The environment of a process that must not use any GPU."""

_SMALLEST_SHARE = 0.01
GROWTH: Mapping[str, str] = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
"""The environment of a worker on a GPU: without it, TensorFlow takes all memory at once."""


@dataclass(frozen=True)
class Placement:
    """The environments with which the workers of a cluster are started.

    Parts other than workers have `NO_GPU`.
    """

    workers: tuple[Mapping[str, str], ...]
    has_gpus: bool = False

    @property
    def needs_fresh_processes(self) -> bool:
        """Whether a worker's environment differs from that of the process that would fork it."""
        return any(environment != NO_GPU for environment in self.workers)

    def environment(self, job: str, task: int) -> Mapping[str, str]:
        """Returns the environment of a part."""
        return self.workers[task] if job == "worker" else NO_GPU


def thread_limits(threads: int) -> dict[str, str]:
    """Returns the environment that gives TensorFlow so many threads, but at least one."""
    limit = str(max(1, threads))
    return {"TF_NUM_INTRAOP_THREADS": limit, "TF_NUM_INTEROP_THREADS": limit}


def place_on_cpus(workers: int) -> Placement:
    """Returns the placement of a cluster that uses no GPUs, even if the machine has some."""
    return Placement((NO_GPU,) * workers)


def place_on_gpus(workers: int, gpus: Sequence[str], gpus_per_worker: float) -> Placement:
    """Assigns each worker a GPU, or a share of one.

    `gpus` are named as in `CUDA_VISIBLE_DEVICES`. `gpus_per_worker` is 1, 0 for none, or a fraction
    for workers that share one, 0.5 for two.

    Raises:
        UserError: There are not enough GPUs, or the share is not possible.
    """
    check_gpus_per_worker(gpus_per_worker)
    if not gpus_per_worker:
        return place_on_cpus(workers)
    # 0.33 means a third, like 0.3333.
    sharers = math.floor(1.0 / gpus_per_worker + 1e-9)
    needed = math.ceil(workers / sharers)
    if needed > len(gpus):
        listed = f"{len(gpus)} ({', '.join(gpus)})" if gpus else "none"
        # Rounded down: a larger share would not fit.
        fitting_share = math.floor(100 * len(gpus) / workers) / 100
        raise UserError(
            f"--gpus-per-worker {gpus_per_worker:g} needs {needed} GPUs for {workers} workers, and"
            f" this process sees {listed}; use fewer --workers, a smaller share such as"
            f" {fitting_share:g}, or look at {VISIBLE_GPUS}"
        )
    environments = tuple(
        {VISIBLE_GPUS: gpus[worker // sharers], **GROWTH} for worker in range(workers)
    )
    return Placement(environments, has_gpus=True)


def check_gpus_per_worker(gpus_per_worker: float) -> None:
    """Raises UserError for a share that is not possible."""
    if gpus_per_worker != 0.0 and not _SMALLEST_SHARE <= gpus_per_worker <= 1.0:
        raise UserError(
            f"--gpus-per-worker is {gpus_per_worker:g}: a step runs on one GPU, so give 1, 0 for"
            " none, or a fraction such as 0.5 for workers that share one; for more GPUs use more"
            " --workers"
        )


def visible_gpus(environment: Mapping[str, str], count: int) -> tuple[str, ...]:
    """Returns the names of the GPUs that this process sees, for `CUDA_VISIBLE_DEVICES`.

    `count` is the number of GPUs that TensorFlow sees: CUDA stops at the first unknown name.
    """
    named = environment.get(VISIBLE_GPUS)
    if named is None:
        return tuple(map(str, range(count)))
    return tuple(name.strip() for name in named.split(","))[:count]
