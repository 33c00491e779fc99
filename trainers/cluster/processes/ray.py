"""The launcher on a Ray cluster: parameter servers and workers as actors in a placement group.

The chief is a process that the searcher starts on a node of the cluster; its actors end with it.
Each node needs this package, TensorFlow and Ray, in the versions of the chief; only the chief loads
workloads. Parameter servers and the chief use no GPUs. Each of several trials at the same time has
a placement group of its own, with its own CPUs and GPUs.

Parts listen only at the addresses of their nodes, at ports that the system chooses, talk only to
processes that know their secret, and encrypt all messages. But Ray, which hands them the secret,
authenticates nobody unless it is set up to: use a cluster on a network that is closed to others.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from syncswitch.storage.errors import OptionHint, RetryableError, UserError, one_line
from syncswitch.trainers.cluster.members.launcher import (
    Launcher,
    ProcessState,
    ProcessStatus,
    status_of,
    with_last_output,
)
from syncswitch.trainers.cluster.processes.tf_config import host_and_port
from syncswitch.trainers.cluster.processes.this_machine import (
    GROWTH,
    NO_GPU,
    check_gpus_per_worker,
    thread_limits,
)

if TYPE_CHECKING:
    from syncswitch.trainers.cluster.exchange.security import Address, Part

_LOG = logging.getLogger(__name__)

AUTO = "auto"
START_HEAD = "ray start --head"
PLACEMENTS = ("spread", "pack")
_CLIENT = "ray://"
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "error"}

_PROBE_SECONDS = 2.0
_CONNECT_SECONDS = 30.0
_ROOM_SECONDS = 600.0
_LOOK_SECONDS = 5.0
# An actor that does nothing else answers within milliseconds.
_ANSWER_SECONDS = 0.5
# To be placed, maybe on another node, and to import TensorFlow while others do.
_START_SECONDS = 300.0
_PATIENCE_SECONDS = 300.0

_LONGEST_CAUSE = 160
_CAUSE = re.compile(r"\bactor (?:is dead|died) because\b|^[\w.]+(?:Error|Exception): ")

Resources = Mapping[str, float]
"""Amounts by Ray's name of the resource: `CPU` or `GPU`."""

_NAMES = ("CPU", "GPU")
# Amounts are multiples of a ten-thousandth, whose sums are not exact.
_TOLERANCE = 1e-6


@dataclass
class RayLauncher(Launcher):
    """Starts an actor for each part, in one placement group; they end with the chief.

    `address` is that of the head, `host:port`, or `auto` for a cluster on this machine or the one
    that RAY_ADDRESS names. `placement`: `spread` over as many nodes as possible, or `pack`.
    """

    kind = "ray"

    address: str = AUTO
    cpus_per_worker: float = 1.0
    gpus_per_worker: float = 0.0
    cpus_per_ps: float = 1.0
    placement: str = PLACEMENTS[0]
    servers: int = 1

    def __post_init__(self) -> None:
        self.has_gpus = self.gpus_per_worker > 0
        self.start_seconds, self.least_patience_seconds = _START_SECONDS, _PATIENCE_SECONDS
        # The `PartActor` of each part, and the pending call of its `status`.
        self._actors: dict[Part, Any] = {}
        self._asked: dict[Part, Any] = {}

    def check(self) -> None:
        if importlib.util.find_spec("ray") is None:
            raise UserError(
                "the trainer ray needs Ray, which is not installed: pip install 'syncswitch[ray]',"
                " here and on each node of the cluster",
                code="package-missing",
            )
        for name in ("cpus_per_worker", "cpus_per_ps"):
            if not 0.0 < (cpus := getattr(self, name)) < float("inf"):
                raise UserError(
                    parameter=name, value=cpus, allowed="a number above 0, such as 1 or 0.5"
                )
        check_gpus_per_worker(self.gpus_per_worker)
        if self.address != AUTO:
            split_address(self.address)

    @override
    def open(self, reference: str | None, workers: int, folder: Path) -> None:
        connect(self.address)
        import ray

        self._reference = reference
        self._group = _reserved(self, workers)
        self.secret = secrets.token_bytes(32)
        self.listen = (ray.util.get_node_ip_address(), 0)

    @override
    def start(self, part: Part, chief: Address) -> None:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        if part in self._actors and (report := self.status(part).report):
            _LOG.warning("%s %d of the Ray cluster: %s", *part, report)
        self._end(part)
        is_worker = part[0] == "worker"
        gpus = self.gpus_per_worker if is_worker else 0.0
        cpus = self.cpus_per_worker if is_worker else self.cpus_per_ps
        environment = thread_limits(int(cpus))
        environment |= GROWTH if gpus else NO_GPU
        # The bundles of parameter servers come first.
        bundle = part[1] + self.servers * is_worker
        place = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)
        actor_class = ray.remote(PartActor).options(
            num_cpus=cpus, num_gpus=gpus, scheduling_strategy=place
        )
        arguments = part, chief, self.secret, environment, self._reference
        self._actors[part] = actor_class.remote(*arguments)

    @override
    def status(self, part: Part) -> ProcessStatus:
        import ray

        asked = self._asked.get(part) or self._actors[part].status.remote()
        self._asked[part] = asked
        try:
            found: ProcessStatus = ray.get(asked, timeout=_ANSWER_SECONDS)
        except ray.exceptions.GetTimeoutError:
            # The next caller waits for the same answer.
            report = "its node does not answer, or it has found none; check `ray status`"
            return ProcessStatus(ProcessState.RUNNING, report)
        except ray.exceptions.RayError as error:
            found = ProcessStatus(ProcessState.DEAD, cause_of_death(str(error)))
        self._asked.pop(part, None)
        return found

    @override
    def signal(self, part: Part, number: int) -> None:
        if part in self._actors:
            # Not awaited: the node of the actor may be gone.
            self._actors[part].signal.remote(number)

    @override
    def close(self) -> None:
        for part in list(self._actors):
            self._end(part)

    def _end(self, part: Part) -> None:
        import ray

        if part in self._actors:
            self._asked.pop(part, None)
            ray.kill(self._actors.pop(part))


def connect(address: str) -> None:
    """Connects this process to the Ray cluster, as a driver; raises UserError if none answers."""
    if address != AUTO:
        try:
            socket.create_connection(split_address(address), timeout=_PROBE_SECONDS).close()
        except OSError as error:
            raise UserError(
                "nobody listens there",
                parameter="ray_address",
                value=address,
                remedy=(
                    f"start a cluster there with `{START_HEAD}`, check the port",
                    f"use {AUTO} on one of its nodes",
                ),
                code="cluster-unusable",
            ) from error
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    failures: list[Exception] = []

    def join() -> None:
        try:
            import ray

            ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
        except Exception as error:
            failures.append(error)

    # Ray would wait minutes for a cluster that is gone; it has no option for that.
    thread = threading.Thread(target=join, daemon=True)
    thread.start()
    thread.join(_CONNECT_SECONDS)
    if thread.is_alive():
        raise UserError(
            f"the cluster there does not answer within {_CONNECT_SECONDS:.0f} s",
            parameter="ray_address",
            value=address,
            remedy=("check `ray status`", "give the address of another cluster"),
            code="cluster-unusable",
        )
    if failures:
        raise UserError(
            f"cannot join the Ray cluster ({one_line(failures[0])}); start one with"
            f" `{START_HEAD}`, and join this machine to it with `ray start` and its address",
            parameter="ray_address",
            value=address,
            code="cluster-unusable",
        )
    import psutil

    if any(state.isup and name != "lo" for name, state in psutil.net_if_stats().items()):
        _LOG.warning(
            "Ray does not authenticate anybody unless RAY_AUTH_MODE=token is set; use it behind a"
            " firewall"
        )


def split_address(address: str) -> tuple[str, int]:
    """Splits an address other than `auto`; raises UserError if that is not possible."""
    if address.startswith(_CLIENT):
        raise UserError(
            "that is for Ray Client, and the chief has to be on a node of the cluster, where its"
            " workers reach it",
            parameter="ray_address",
            value=address,
            remedy=OptionHint("ray_address", AUTO, "start the search there, with"),
        )
    try:
        return host_and_port(address)
    except ValueError as error:
        raise UserError(
            f"give {AUTO}, or host:port of the cluster's head, as `{START_HEAD}` prints it",
            parameter="ray_address",
            value=address,
        ) from error


def _reserved(launcher: RayLauncher, workers: int) -> Any:
    """Waits for room for each part; returns the placement group, parameter servers first.

    Raises RetryableError if others use the cluster for too long.
    """
    import ray
    from ray.util.placement_group import placement_group

    check_capacity([node["Resources"] for node in ray.nodes() if node["Alive"]], launcher, workers)
    group = placement_group(bundles(launcher, workers), strategy=launcher.placement.upper())
    if not group.wait(_LOOK_SECONDS):
        _LOG.warning("waiting for room on the Ray cluster, which others use")
        if not group.wait(_ROOM_SECONDS):
            raise RetryableError(
                f"the Ray cluster had no room for {workers:,} workers for {_ROOM_SECONDS:.0f} s;"
                " check `ray status` to see who uses it",
                code="cluster-lost",
            )
    return group


def bundles(launcher: RayLauncher, workers: int) -> list[dict[str, float]]:
    """Returns the resources of each parameter server and then of each worker."""
    worker = {"CPU": launcher.cpus_per_worker}
    if launcher.gpus_per_worker:
        worker["GPU"] = launcher.gpus_per_worker
    servers = ({"CPU": launcher.cpus_per_ps} for _ in range(launcher.servers))
    return [*servers, *(dict(worker) for _ in range(workers))]


def check_capacity(nodes: Sequence[Resources], launcher: RayLauncher, workers: int) -> None:
    """Raises UserError if the parts would not fit even on the empty cluster."""
    servers = launcher.servers
    server, *_, worker = bundles(launcher, workers)
    # For each number of servers on the nodes so far, the most workers that fit beside them.
    most = {0: 0}
    for node in nodes:
        rooms = [
            _times(_rest(node, server, count), worker)
            for count in range(min(servers, _times(node, server)) + 1)
        ]
        found: dict[int, int] = {}
        for (before, fitting), (count, room) in product(most.items(), enumerate(rooms)):
            total = before + count
            if total <= servers:
                found[total] = max(found.get(total, 0), fitting + room)
        most = found
    if most.get(servers, -1) >= workers:
        return
    kinds = Counter(map(_text, nodes)).items()
    said = [f"{count:,} node{'' if count == 1 else 's'} with {text}" for text, count in kinds]
    many = "a parameter server" if servers == 1 else f"{servers:,} parameter servers"
    raise UserError(
        f"the Ray cluster has no room for {many} with {_text(server)}{' each' * (servers > 1)} and"
        f" {workers:,} workers with {_text(worker)} each: it has"
        f" {', '.join(said) or 'no living node'}",
        remedy=(
            OptionHint("workers", verb="use fewer"),
            OptionHint("cpus_per_worker", verb="smaller"),
            OptionHint("gpus_per_worker", verb="smaller"),
            "add nodes",
        ),
        code="cluster-unusable",
    )


def _times(node: Resources, bundle: Resources) -> int:
    return min(
        math.floor(node.get(name, 0.0) / amount + _TOLERANCE) for name, amount in bundle.items()
    )


def _rest(node: Resources, bundle: Resources, times: int) -> dict[str, float]:
    return {name: node.get(name, 0.0) - times * bundle.get(name, 0.0) for name in _NAMES}


def _text(amounts: Resources) -> str:
    named = ((amounts.get(name, 0.0), name) for name in _NAMES)
    said = [f"{amount:g} {name}{'' if amount == 1 else 's'}" for amount, name in named if amount]
    return " and ".join(said) or "nothing"


class PartActor:
    """An actor with the process of a part, which ends with it; Ray makes one call at a time."""

    def __init__(
        self,
        part: Part,
        chief: Address,
        secret: bytes,
        environment: Mapping[str, str],
        reference: str | None,
    ) -> None:
        import ray

        from syncswitch.trainers.cluster.exchange.parts import PartConfig, program

        self._host = ray.util.get_node_ip_address()
        arguments, own = program(PartConfig(part, chief, (self._host, 0), secret, reference))
        # It has no name, so it cannot outlive the actor.
        self._log = tempfile.TemporaryFile(prefix="syncswitch-part-")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, **environment, **own},
        )

    def status(self) -> ProcessStatus:
        """Returns the status of the process; no report if it ended well, as without a chief."""
        found = status_of(self._process.pid, self._process.poll())
        if not self._process.returncode:
            return replace(found, report="")
        found = with_last_output(found, Path(f"/proc/self/fd/{self._log.fileno()}"))
        return replace(found, report=f"on {self._host} {found.report}")

    def signal(self, number: int) -> None:
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait()


def cause_of_death(text: str) -> str:
    """Extracts the cause from Ray's page-long report on a dead actor, and says what to do."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it says nothing"]
    # The last line with a cause names the root of the others.
    line = next((line for line in reversed(lines) if _CAUSE.search(line)), lines[0])
    cause = line.split(". ")[0].rstrip(".")[:_LONGEST_CAUSE]
    is_missing = "ModuleNotFoundError" in text or "failed to import" in text
    return cause + "; pip install 'syncswitch[ray]' on each node" * is_missing
