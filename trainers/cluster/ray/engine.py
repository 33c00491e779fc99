"""The engine that starts the parts of a cluster as actors of a Ray cluster."""

from __future__ import annotations

import logging
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from typing_extensions import override

from syncswitch.storage.errors import RetryableError, UserError, one_line
from syncswitch.trainers.cluster.exchange.handshake import Address, Part
from syncswitch.trainers.cluster.exchange.parts import Place, program
from syncswitch.trainers.cluster.exchange.plans import WORKER
from syncswitch.trainers.cluster.members.engine import (
    Condition,
    Engine,
    Life,
    condition_of,
    with_last_words,
)
from syncswitch.trainers.cluster.processes.placement import GROWTH, NO_GPU, thread_limits
from syncswitch.trainers.cluster.ray.options import AUTO, RayOptions, bundles, check_capacity

_LOG = logging.getLogger(__name__)

_PROBE_SECONDS = 2.0
_CONNECT_SECONDS = 30.0
_ROOM_SECONDS = 600.0
_LOOK_SECONDS = 5.0
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_BACKEND_LOG_LEVEL": "error"}


def connect(options: RayOptions) -> None:
    """Connects this process to the Ray cluster, as a driver.

    Raises:
        UserError: There is no such cluster, or it does not answer.
    """
    if options.address != AUTO and not _listens(*options.host_and_port()):
        raise UserError(
            f"nobody listens at --ray-address {options.address}; start a cluster there with"
            f" `ray start --head`, check the port, or use {AUTO} on one of its nodes"
        )
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    failures: list[Exception] = []
    # Ray would wait minutes for a cluster that is gone; it has no option for that.
    thread = threading.Thread(target=_init, args=(options.address, failures), daemon=True)
    thread.start()
    thread.join(_CONNECT_SECONDS)
    if thread.is_alive():
        raise UserError(
            f"the Ray cluster at --ray-address {options.address} does not answer within"
            f" {_CONNECT_SECONDS:.0f} s; check `ray status`, or give the address of another cluster"
        )
    if failures:
        raise UserError(
            f"cannot join the Ray cluster at --ray-address {options.address}"
            f" ({one_line(failures[0])}); start one with `ray start --head`, and join this machine"
            " to it with `ray start --address`"
        )
    _warn_of_open_network()


def reserve(options: RayOptions, workers: int) -> Any:
    """Reserves room for each parameter server and worker, and waits until it is free.

    Returns the placement group, with the bundles of parameter servers first.

    Raises:
        UserError: They would not fit even if the cluster were empty.
        RetryableError: Others use the cluster for too long.
    """
    import ray
    from ray.util.placement_group import placement_group

    check_capacity([node["Resources"] for node in ray.nodes() if node["Alive"]], options, workers)
    group = placement_group(bundles(options, workers), strategy=options.placement.upper())
    if not group.wait(_LOOK_SECONDS):
        _LOG.warning("waiting for room on the Ray cluster, which others use")
        if not group.wait(_ROOM_SECONDS):
            raise RetryableError(
                f"the Ray cluster had no room for {workers:,} workers for {_ROOM_SECONDS:.0f} s;"
                " check `ray status` to see who uses it"
            )
    return group


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=_PROBE_SECONDS).close()
    except OSError:
        return False
    return True


def _init(address: str, failures: list[Exception]) -> None:
    try:
        import ray

        ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except Exception as error:
        failures.append(error)


def _warn_of_open_network() -> None:
    others = [name for name, state in psutil.net_if_stats().items() if state.isup and name != "lo"]
    if others:
        _LOG.warning(
            "Ray does not authenticate anybody unless RAY_AUTH_MODE=token is set; use it behind a"
            " firewall"
        )


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

        self._host = ray.util.get_node_ip_address()
        arguments, own = program(Place(part, chief, (self._host, 0), secret, reference))
        # It has no name, so it cannot outlive the actor.
        self._log = tempfile.TemporaryFile(prefix="syncswitch-part-")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, **environment, **own},
        )

    def condition(self) -> Condition:
        """Returns the condition of the process; no report if it ended well, as without a chief."""
        found = condition_of(self._process.pid, self._process.poll())
        if not self._process.returncode:
            return replace(found, report="")
        found = with_last_words(found, Path(f"/proc/self/fd/{self._log.fileno()}"))
        return replace(found, report=f"on {self._host} {found.report}")

    def signal(self, number: int) -> None:
        """Sends the process a signal, if it runs; after a SIGKILL it is dead."""
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait()


_LOG = logging.getLogger(__name__)

# An actor that does nothing else answers within milliseconds.
_ANSWER_SECONDS = 0.5
_LONGEST_CAUSE = 160
_CAUSE = re.compile(r"\bactor (?:is dead|died) because\b|^[\w.]+(?:Error|Exception): ")


class RayEngine(Engine):
    """Starts an actor for each part, in one placement group; they end with this process."""

    kind = "ray"
    # To be placed, maybe on another node, and to import TensorFlow while others do.
    start_seconds = 120.0

    def __init__(self, group: Any, options: RayOptions, reference: str | None = None) -> None:
        import ray

        self._reference = reference
        self._group = group
        self._options = options
        self.has_gpus = options.gpus_per_worker > 0
        # The `PartActor` of each part, and the pending call of its `condition`.
        self._actors: dict[Part, Any] = {}
        self._asked: dict[Part, Any] = {}
        self.secret = secrets.token_bytes(32)
        self.listen = (ray.util.get_node_ip_address(), 0)

    @override
    def start(self, part: Part, chief: Address) -> None:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        if part in self._actors and (report := self.condition(part).report):
            _LOG.warning("%s %d of the Ray cluster: %s", *part, report)
        self._end(part)
        options, is_worker = self._options, part[0] == WORKER
        gpus = options.gpus_per_worker if is_worker else 0.0
        cpus = options.cpus_per_worker if is_worker else options.cpus_per_ps
        environment = thread_limits(int(cpus))
        environment |= GROWTH if gpus else NO_GPU
        # The bundles of parameter servers come first.
        bundle = part[1] + options.servers * is_worker
        place = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)
        actor_class = ray.remote(PartActor).options(
            num_cpus=cpus, num_gpus=gpus, scheduling_strategy=place
        )
        arguments = part, chief, self.secret, environment, self._reference
        self._actors[part] = actor_class.remote(*arguments)

    @override
    def condition(self, part: Part) -> Condition:
        import ray

        asked = self._asked.get(part) or self._actors[part].condition.remote()
        self._asked[part] = asked
        try:
            found: Condition = ray.get(asked, timeout=_ANSWER_SECONDS)
        except ray.exceptions.GetTimeoutError:
            # The next caller waits for the same answer.
            report = "its node does not answer, or it has found none; check `ray status`"
            return Condition(Life.RUNNING, report)
        except ray.exceptions.RayError as error:
            found = Condition(Life.DEAD, cause_of_death(str(error)))
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


def cause_of_death(text: str) -> str:
    """Extracts the cause from Ray's page-long report on a dead actor, and says what to do."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it says nothing"]
    # The last line with a cause names the root of the others.
    line = next((line for line in reversed(lines) if _CAUSE.search(line)), lines[0])
    cause = line.split(". ")[0].rstrip(".")[:_LONGEST_CAUSE]
    is_missing = "ModuleNotFoundError" in text or "failed to import" in text
    return cause + "; pip install 'syncswitch[ray]' on each node" * is_missing
