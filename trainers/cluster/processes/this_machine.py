"""The launcher that starts the processes of a cluster on this machine, with GPUs or without.

Only the steps of workers use GPUs, one GPU per step. Updates, batches and evaluations run on CPUs.
A process sees the GPUs that its environment named when TensorFlow was imported, and no others
later; so with GPUs each part is a fresh process, not a fork of one that has imported TensorFlow.
"""

from __future__ import annotations

import math
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from syncswitch.storage.errors import OptionHint, RetryableError, UserError
from syncswitch.trainers.cluster.members.launcher import (
    Launcher,
    ProcessState,
    ProcessStatus,
    with_last_output,
)
from syncswitch.trainers.cluster.processes.fork_server import shared_fork_server

if TYPE_CHECKING:
    from syncswitch.trainers.cluster.exchange.parts import PartConfig
    from syncswitch.trainers.cluster.exchange.security import Address, Part

VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
NO_GPU: Mapping[str, str] = {VISIBLE_GPUS: "-1"}
"""The environment of a process that must not use any GPU."""

GROWTH: Mapping[str, str] = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
"""The environment of a worker on a GPU: without it, TensorFlow takes all memory at once."""

_SMALLEST_SHARE = 0.01
_START_SECONDS = 60.0
# A fresh process imports TensorFlow, beside others that do.
_FRESH_START_SECONDS = 300.0


def thread_limits(threads: int) -> dict[str, str]:
    """Returns the environment that gives TensorFlow so many threads, but at least one."""
    limit = str(max(1, threads))
    return {"TF_NUM_INTRAOP_THREADS": limit, "TF_NUM_INTEROP_THREADS": limit}


def check_gpus_per_worker(gpus_per_worker: float) -> None:
    """Raises UserError for a share that is not possible."""
    if gpus_per_worker != 0.0 and not _SMALLEST_SHARE <= gpus_per_worker <= 1.0:
        raise UserError(
            "a step runs on one GPU",
            parameter="gpus_per_worker",
            value=gpus_per_worker,
            allowed="1, 0 for none, or a fraction such as 0.5 for workers that share one",
            remedy=OptionHint("workers", verb="for more GPUs use more"),
        )


def place_on_gpus(
    workers: int, gpus: Sequence[str], gpus_per_worker: float
) -> tuple[Mapping[str, str], ...]:
    """Assigns each worker a GPU, or a share of one; returns the environment of each.

    `gpus` are named as in `CUDA_VISIBLE_DEVICES`. `gpus_per_worker` is 1, 0 for none, or a fraction
    for workers that share one, 0.5 for two. Raises UserError if there are not enough GPUs.
    """
    check_gpus_per_worker(gpus_per_worker)
    if not gpus_per_worker:
        return (NO_GPU,) * workers
    # 0.33 means a third, like 0.3333.
    sharers = math.floor(1.0 / gpus_per_worker + 1e-9)
    needed = math.ceil(workers / sharers)
    if needed > len(gpus):
        listed = f"{len(gpus)} ({', '.join(gpus)})" if gpus else "none"
        # Rounded down: a larger share would not fit.
        fitting_share = math.floor(100 * len(gpus) / workers) / 100
        raise UserError(
            f"{workers} workers need {needed} GPUs, and this process sees {listed}",
            parameter="gpus_per_worker",
            value=gpus_per_worker,
            remedy=(
                OptionHint("workers", verb="use fewer"),
                f"a smaller share such as {fitting_share:g}",
                f"look at {VISIBLE_GPUS}",
            ),
            code="cluster-unusable",
        )
    return tuple({VISIBLE_GPUS: gpus[worker // sharers], **GROWTH} for worker in range(workers))


def visible_gpus(environment: Mapping[str, str], count: int) -> tuple[str, ...]:
    """Returns the names of the GPUs that this process sees, for `CUDA_VISIBLE_DEVICES`.

    `count` is the number of GPUs that TensorFlow sees: CUDA stops at the first unknown name.
    """
    named = environment.get(VISIBLE_GPUS)
    if named is None:
        return tuple(map(str, range(count)))
    return tuple(name.strip() for name in named.split(","))[:count]


class LocalLauncher(Launcher):
    """Forks parts from a process that has imported TensorFlow, or starts fresh ones for GPUs.

    They connect through sockets in a folder that no other user may enter; nothing of the cluster is
    on any network. `environments` are those of the workers, see `place_on_gpus`; by default they
    use no GPU, even if the machine has some.
    """

    kind = "processes"

    def __init__(
        self,
        environments: Sequence[Mapping[str, str]] = (),
        servers: int = 1,
        *,
        has_gpus: bool = False,
    ) -> None:
        self.servers = servers
        self.has_gpus = has_gpus
        self._environments = environments
        self._is_fresh = any(environment != NO_GPU for environment in environments)
        self.start_seconds = _FRESH_START_SECONDS if self._is_fresh else _START_SECONDS
        self._process_ids: dict[Part, int] = {}

    @override
    def open(self, reference: str | None, workers: int, folder: Path) -> None:
        self._reference = reference
        self._folder = folder
        self._fork_server = shared_fork_server()
        # Together the workers have as many threads as there are cores.
        self._limits = thread_limits((os.cpu_count() or 1) // workers)
        self.secret = secrets.token_bytes(32)
        self.listen = self._socket()

    @override
    def start(self, part: Part, chief: Address) -> None:
        from syncswitch.trainers.cluster.exchange.parts import PartConfig

        self.signal(part, 9)
        role, number = part
        has_own = role == "worker" and bool(self._environments)
        self._process_ids[part] = self._fork_server.fork(
            _run_part,
            (PartConfig(part, chief, self._socket(), self.secret, self._reference), self._is_fresh),
            str(self._log(part)),
            {**self._limits, **(self._environments[number] if has_own else NO_GPU)},
        )

    @override
    def status(self, part: Part) -> ProcessStatus:
        try:
            found = self._fork_server.status(self._process_ids[part])
        except RetryableError as error:
            found = ProcessStatus(ProcessState.DEAD, str(error))
        return with_last_output(found, self._log(part))

    @override
    def signal(self, part: Part, number: int) -> None:
        if part in self._process_ids:
            self._fork_server.signal(self._process_ids[part], number)

    @override
    def close(self) -> None:
        for part in list(self._process_ids):
            self.signal(part, 9)
            del self._process_ids[part]

    def _log(self, part: Part) -> Path:
        return self._folder / "{}-{}.log".format(*part)

    def _socket(self) -> Address:
        return str(self._folder / f"{secrets.token_hex(6)}.socket")


def _run_part(argument: tuple[PartConfig, bool]) -> None:
    """Runs a part, in a forked process; a fresh one replaces it where that is needed."""
    config, is_fresh = argument
    from syncswitch.trainers.cluster.exchange.parts import program, serve_chief

    if is_fresh:
        # TensorFlow, imported anew, sees the GPU in the environment.
        arguments, secret = program(config)
        os.execve(sys.executable, [sys.executable, *arguments], {**os.environ, **secret})
    serve_chief(config)
