"""A Ray actor that keeps one part of a cluster as a process of its own.

So the part can be stopped, killed and asked for its last words, and neither shares a process with
Ray nor keeps its log.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from syncswitch.trainers.cluster.exchange.handshake import Address, Part
from syncswitch.trainers.cluster.exchange.parts import Place, program
from syncswitch.trainers.cluster.members.engine import Condition
from syncswitch.trainers.cluster.processes.condition import condition_of, with_last_words


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
        """Of the process; with its last words, unless it has left because its chief had."""
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
