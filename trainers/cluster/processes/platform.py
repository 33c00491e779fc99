"""A cluster that TF_CONFIG describes, whose processes are started by somebody else."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import override

from syncswitch.storage.errors import RetryableError, UserError
from syncswitch.trainers.cluster.exchange.handshake import Address, Part
from syncswitch.trainers.cluster.exchange.parts import SECRET, Place, serve_chief
from syncswitch.trainers.cluster.members.engine import Condition, Engine, Life
from syncswitch.trainers.cluster.processes.launcher import Launcher
from syncswitch.trainers.cluster.processes.placement import GROWTH, NO_GPU
from syncswitch.trainers.cluster.processes.tf_config import TF_CONFIG, TfConfig, host_and_port
from syncswitch.trainers.cluster.processes.zygote import Zygote

_LOG = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.25
_LEAST_SECRET_BYTES = 16


@dataclass(frozen=True)
class TfConfigLauncher(Launcher):
    """Joins a cluster that a platform starts.

    A part may take `limit_seconds` to connect, at first and after a loss.
    """

    config: TfConfig
    limit_seconds: float
    secret: bytes | None = field(repr=False)
    has_gpus: bool = False

    @property
    @override
    def servers(self) -> int:
        return self.config.servers

    @property
    def least_patience_seconds(self) -> float:  # type: ignore[override]
        """See `Launcher`; a run may have nothing to do but wait for a part."""
        return self.limit_seconds + Launcher.least_patience_seconds

    @override
    def new_engine(self, reference: str, workers: int, folder: Path, zygote: Zygote) -> Engine:
        return PlatformEngine(self)


class PlatformEngine(Engine):
    """Starts and ends nothing: parts dial their chief, and their platform restarts them."""

    kind = "tf-config"
    waits_aloud = True

    def __init__(self, launcher: TfConfigLauncher) -> None:
        self._config = launcher.config
        self.secret = launcher.secret
        self.has_gpus = launcher.has_gpus
        self.listen = host_and_port(launcher.config.chief)
        await_name(self.listen[0], launcher.limit_seconds)
        self.start_seconds = launcher.limit_seconds

    def start(self, part: Part, chief: Address) -> None:
        """Does nothing: a part that was given up dials again."""

    @override
    def condition(self, part: Part) -> Condition:
        return Condition(
            Life.RUNNING,
            f"it is {self._config.addresses[part[0]][part[1]]} in TF_CONFIG; check that it was"
            " started and can be reached, or give it more time with --cluster-timeout",
        )

    @override
    def signal(self, part: Part, number: int) -> None:
        _LOG.warning(
            "%s %d at %s does not answer; only whoever started it can end and restart it",
            *part,
            self._config.addresses[part[0]][part[1]],
        )

    def close(self) -> None:
        """Does nothing: parts end by themselves without their chief."""


def await_name(host: str, limit_seconds: float) -> None:
    """Waits until a machine can resolve its own name; a new pod may start before it is known.

    Raises:
        UserError: The name is not known in time.
    """
    deadline = time.monotonic() + limit_seconds
    while True:
        try:
            socket.getaddrinfo(host, None)
        except socket.gaierror as error:
            if time.monotonic() > deadline:
                raise UserError(
                    f"{TF_CONFIG} says that the chief is at {host}, a name that is not known here"
                    f" ({error.strerror}); give it an address of this machine"
                ) from error
            time.sleep(_PAUSE_SECONDS)
        else:
            return


def cluster_secret(*, is_open: bool) -> bytes | None:
    """Reads the secret by which the parts of a cluster recognize each other.

    With `is_open` there is none, and no encryption.

    Raises:
        UserError: The environment has none, or one that is too short.
    """
    if is_open:
        return None
    secret = os.environ.get(SECRET, "").encode()
    if len(secret) < _LEAST_SECRET_BYTES:
        problem = f"has {len(secret)} characters, too few" if secret else "is not set"
        raise UserError(
            f"{SECRET} {problem}: anyone who reaches a part of the cluster could run any"
            f" computation on it. Set it to the same {_LEAST_SECRET_BYTES} characters or more in"
            " the environment of each part, such as the output of `openssl rand -hex 32`; or, if"
            " only people you trust can reach these machines or listen to them, add --open-network"
            " to the command of each part"
        )
    return secret


def serve_until_chief_is_gone(
    cluster: TfConfigLauncher,
    grace_seconds: float,
    say: Callable[[str], None],
    gpus_per_worker: float = 0.0,
    reference: str | None = None,
) -> None:
    """Runs the part that TF_CONFIG names until its chief has gone.

    A chief that has gone may be started again within `grace_seconds`; `say` is called with lines
    for the user.

    Raises:
        UserError: It cannot listen at its address.
        RetryableError: No chief came.
    """
    config = cluster.config
    is_worker_with_gpu = config.job == "worker" and gpus_per_worker > 0
    os.environ.update(GROWTH if is_worker_with_gpu else NO_GPU)
    chief, listen = host_and_port(config.chief), host_and_port(config.own)
    place = Place((config.job, config.task), chief, listen, cluster.secret, reference)
    was_there, why, deadline = False, "", time.monotonic() + cluster.limit_seconds
    say(f"{config.name} at {config.own} waits for its chief at {config.chief}")
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))
    while time.monotonic() < deadline:
        try:
            serve_chief(place)
            # A chief that died may be restarted by its platform, and needs its parts then.
            was_there, deadline = True, time.monotonic() + grace_seconds
        except OSError as error:
            why = error.strerror or str(error)
            if error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES):
                raise UserError(
                    f"{config.name} cannot listen at {config.own} ({error.strerror}); end what"
                    " listens there, or give it an address of this machine"
                ) from error
        time.sleep(_PAUSE_SECONDS)
    if not was_there:
        raise RetryableError(
            f"no chief was at {config.chief} within {cluster.limit_seconds:g} s ({why}); start it,"
            f" and this part again, with the same {SECRET}, addresses and --open-network, or give"
            " it more time with --cluster-timeout"
        )
    say(f"the chief at {config.chief} has been gone for {grace_seconds:g} s: {config.name} ends")
