"""Trains on actors of a Ray cluster, which finds them their nodes."""

from __future__ import annotations

import logging
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from typing_extensions import override

from syncswitch.trainers.cluster.exchange.handshake import Address, Part
from syncswitch.trainers.cluster.exchange.parts import Place, program
from syncswitch.trainers.cluster.exchange.plans import WORKER
from syncswitch.trainers.cluster.members.engine import Condition, Engine, Life
from syncswitch.trainers.cluster.processes.condition import condition_of, with_last_words
from syncswitch.trainers.cluster.processes.messages import ChiefPlan
from syncswitch.trainers.cluster.processes.placement import (
    NO_GPU,
    gpu_worker_environment,
    thread_limits,
)
from syncswitch.trainers.cluster.processes.process_trainer import ProcessTrainer
from syncswitch.trainers.cluster.processes.zygote import Zygote
from syncswitch.trainers.cluster.ray.connection import connect, reserve
from syncswitch.trainers.cluster.ray.options import RayOptions


class PartActor:
    """One process, which ends with its actor; Ray calls one method after the other.

    Args:
        part: What it is.
        chief: Where it finds its chief.
        secret: Of the cluster.
        environment: Besides that of the actor, which names the GPUs that Ray gives it.
        reference: Of the workload; see `Place`.
    """

    def __init__(
        self,
        part: Part,
        chief: Address,
        secret: bytes,
        environment: Mapping[str, str],
        reference: str | None,
    ) -> None:
        import ray

        self._host = ray.util.get_node_ip_address()
        arguments, own = program(Place(part, chief, (self._host, 0), secret, reference))
        # It has no name that could outlive the actor.
        self._log = tempfile.TemporaryFile(prefix="syncswitch-part-")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, **environment, **own},
        )

    def condition(self) -> Condition:
        """Condition of the process, with its last words unless it left because its chief had."""
        found = condition_of(self._process.pid, self._process.poll())
        if not self._process.returncode:
            return replace(found, report="")
        found = with_last_words(found, Path(f"/proc/self/fd/{self._log.fileno()}"))
        return replace(found, report=f"on {self._host} {found.report}")

    def signal(self, number: int) -> None:
        """Sends the process a signal, if it is there; where that kills, it is dead then."""
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait()


_LOG = logging.getLogger(__name__)

# An actor that does nothing else answers within milliseconds.
_ANSWER_SECONDS = 0.5
_LONGEST_CAUSE = 160
_CAUSE = re.compile(r"\bactor (?:is dead|died) because\b|^[\w.]+(?:Error|Exception): ")


@dataclass
class _Keeper:
    """The keeper of one process.

    Attributes:
        actor: A `PartActor`.
        asked: The condition, once it has been asked for and until it has answered.
    """

    actor: Any
    asked: Any = None


class RayEngine(Engine):
    """Each process has an actor of its own, in one placement group; they end with this process.

    Args:
        group: Placement group: the parameter servers' bundles first, then the workers'.
        options: What each is to have.
        reference: Of the workload; see `Place`.
    """

    kind = "ray"
    # To be placed, perhaps on another node, and to import TensorFlow beside others that do.
    start_seconds = 120.0

    def __init__(self, group: Any, options: RayOptions, reference: str | None = None) -> None:
        import ray

        self._reference = reference

        self._group = group
        self._options = options
        self.has_gpus = options.gpus_per_worker > 0
        self._keepers: dict[Part, _Keeper] = {}
        self.secret = secrets.token_bytes(32)
        self.listen = (ray.util.get_node_ip_address(), 0)

    @override
    def start(self, part: Part, chief: Address) -> None:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        if part in self._keepers and (report := self.condition(part).report):
            _LOG.warning("%s %d of the Ray cluster: %s", *part, report)
        self._end(part)
        options, is_worker = self._options, part[0] == WORKER
        gpus = options.gpus_per_worker if is_worker else 0.0
        cpus = options.cpus_per_worker if is_worker else options.cpus_per_ps
        environment = thread_limits(int(cpus))
        environment |= gpu_worker_environment(gpus) if gpus else NO_GPU
        place = PlacementGroupSchedulingStrategy(
            self._group, placement_group_bundle_index=bundle_number(options, part)
        )
        actor_class = ray.remote(PartActor).options(
            num_cpus=cpus, num_gpus=gpus, scheduling_strategy=place
        )
        arguments = part, chief, self.secret, environment, self._reference
        self._keepers[part] = _Keeper(actor_class.remote(*arguments))

    @override
    def condition(self, part: Part) -> Condition:
        import ray

        keeper = self._keepers[part]
        asked = keeper.asked = keeper.asked or keeper.actor.condition.remote()
        try:
            found: Condition = ray.get(asked, timeout=_ANSWER_SECONDS)
        except ray.exceptions.GetTimeoutError:
            # Whoever asks next waits for the same answer.
            report = "its node does not answer, or it has found none; look at `ray status`"
            return Condition(Life.RUNNING, report)
        except ray.exceptions.RayError as error:
            found = Condition(Life.DEAD, cause_of_death(str(error)))
        keeper.asked = None
        return found

    @override
    def signal(self, part: Part, number: int) -> None:
        if part in self._keepers:
            # Nobody waits for an actor whose node is gone.
            self._keepers[part].actor.signal.remote(number)

    @override
    def close(self) -> None:
        for part in list(self._keepers):
            self._end(part)

    def _end(self, part: Part) -> None:
        import ray

        if part in self._keepers:
            ray.kill(self._keepers.pop(part).actor)


def new_engine(plan: ChiefPlan, zygote: Zygote) -> RayEngine:
    """The engine of a chief on a node of a Ray cluster; its options are `RayOptions`.

    Raises:
        UserError: There is no such cluster, or it is too small.
        RetryableError: Others use the cluster.
    """
    connect(plan.options)
    return RayEngine(reserve(plan.options, plan.workers), plan.options, plan.reference)


class RayTrainer(ProcessTrainer):
    """Trains on actors of a Ray cluster.

    Args:
        reference: The workload, as `load_workload` takes it; the chief alone loads it.
        workers: n.
        options: Where, and what each part is to have.

    Raises:
        UserError: Ray is not installed, there is no such cluster, it is too small, or the workload
            cannot be loaded.
        RetryableError: Others use the cluster, or it loses a part that starts.
    """

    # A part that is placed on another node has to find one, and to import TensorFlow there.
    least_patience_seconds = 300.0

    def __init__(self, reference: str, workers: int, options: RayOptions) -> None:
        options.check()
        super().__init__(
            reference,
            workers,
            options,
            f"{__name__}:new_engine",
            options.parameter_servers,
        )


def bundle_number(options: RayOptions, part: Part) -> int:
    """Which of the placement group's bundles is for a part."""
    role, number = part
    return number + options.parameter_servers * (role == WORKER)


def cause_of_death(text: str) -> str:
    """The cause in Ray's page-long report on a dead actor, and what to do."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it says nothing"]
    # What the last one names has led to the others.
    line = next((line for line in reversed(lines) if _CAUSE.search(line)), lines[0])
    cause = line.split(". ")[0].rstrip(".")[:_LONGEST_CAUSE]
    is_missing = "ModuleNotFoundError" in text or "failed to import" in text
    return cause + "; pip install 'syncswitch[ray]' on each node" * is_missing
