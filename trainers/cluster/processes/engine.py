"""The engine that starts the processes of a cluster on this machine."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from typing_extensions import override

from syncswitch.storage.errors import RetryableError
from syncswitch.trainers.cluster.exchange.handshake import Address, Part
from syncswitch.trainers.cluster.exchange.parts import Place
from syncswitch.trainers.cluster.exchange.remote import LostError
from syncswitch.trainers.cluster.members.engine import Condition, Engine, Life, with_last_words
from syncswitch.trainers.cluster.processes.placement import Placement, thread_limits
from syncswitch.trainers.cluster.processes.zygote import Zygote

_START_SECONDS = 60.0
# A fresh process imports TensorFlow, beside others that do.
_FRESH_START_SECONDS = 300.0


class LocalEngine(Engine):
    """Forks parts from a process that has imported TensorFlow, or starts fresh ones for GPUs.

    They connect through sockets in a folder that no other user may enter; nothing of the cluster is
    on any network.
    """

    kind = "processes"

    def __init__(
        self, zygote: Zygote, placement: Placement, folder: Path, reference: str | None = None
    ) -> None:
        self._reference = reference
        self._zygote = zygote
        self._placement = placement
        self._folder = folder
        self._process_ids: dict[Part, int] = {}
        self.secret = secrets.token_bytes(32)
        self.listen = self._socket()
        is_fresh = placement.needs_fresh_processes
        self.has_gpus = placement.has_gpus
        self.start_seconds = _FRESH_START_SECONDS if is_fresh else _START_SECONDS

    @override
    def start(self, part: Part, chief: Address) -> None:
        self.signal(part, 9)
        place = Place(part, chief, self._socket(), self.secret, self._reference)
        try:
            self._process_ids[part] = self._zygote.fork(
                f"{__name__}:be_part",
                (place, self._placement.needs_fresh_processes),
                str(self._log(part)),
                self._environment(part),
            )
        except LostError as error:
            raise RetryableError(str(error)) from error

    @override
    def condition(self, part: Part) -> Condition:
        try:
            found = self._zygote.condition(self._process_ids[part])
        except LostError as error:
            found = Condition(Life.DEAD, str(error))
        return with_last_words(found, self._log(part))

    @override
    def signal(self, part: Part, number: int) -> None:
        if part in self._process_ids:
            self._zygote.signal(self._process_ids[part], number)

    def close(self) -> None:
        """Ends all processes."""
        for part in list(self._process_ids):
            self.signal(part, 9)
            del self._process_ids[part]

    def _log(self, part: Part) -> Path:
        return self._folder / "{}-{}.log".format(*part)

    def _socket(self) -> str:
        return str(self._folder / f"{secrets.token_hex(6)}.socket")

    def _environment(self, part: Part) -> Mapping[str, str]:
        # Together the workers have as many threads as there are cores.
        threads = (os.cpu_count() or 1) // len(self._placement.workers)
        return {**thread_limits(threads), **self._placement.environment(*part)}


def be_part(argument: tuple[Place, bool], *_: object) -> None:
    """Runs a part, in a forked process; a fresh one replaces it where that is needed."""
    place, is_fresh = argument
    from syncswitch.trainers.cluster.exchange.parts import become_part, serve_chief

    if is_fresh:
        become_part(place)
    serve_chief(place)
