"""A cluster that TF_CONFIG describes, and whose processes somebody else starts."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from typing_extensions import override

from syncswitch.storage.errors import RetryableError, UserError
from syncswitch.trainers.cluster.exchange.handshake import LEAST_SECRET_BYTES, Address, Part
from syncswitch.trainers.cluster.exchange.parts import SECRET, Place, serve_chief
from syncswitch.trainers.cluster.members.engine import Condition, Engine, Life
from syncswitch.trainers.cluster.processes.chief import ChiefPlan
from syncswitch.trainers.cluster.processes.placement import NO_GPU, gpu_worker_environment
from syncswitch.trainers.cluster.processes.process_trainer import ProcessTrainer
from syncswitch.trainers.cluster.processes.tf_config import TF_CONFIG, TfConfig, host_and_port
from syncswitch.trainers.cluster.processes.zygote import Zygote

_LOG = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.25


@dataclass(frozen=True)
class PlatformOptions:
    """Options of the engine.

    Attributes:
        config: The cluster, as the chief has it.
        limit_seconds: How long a part may take until it is there, first or again.
        secret: Secret of the cluster; see `Identity`.
        has_gpus: Whether each worker has a GPU, or a share of one.
    """

    config: TfConfig
    limit_seconds: float
    secret: bytes | None = field(repr=False)
    has_gpus: bool = False


class PlatformEngine(Engine):
    """Starts and ends nothing: the parts dial their chief, and their platform starts them again."""

    kind = "tf-config"
    waits_aloud = True

    def __init__(self, options: PlatformOptions) -> None:
        self._config = options.config
        self.secret = options.secret
        self.has_gpus = options.has_gpus
        self.listen = host_and_port(options.config.chief)
        await_name(self.listen[0], options.limit_seconds)
        self.start_seconds = options.limit_seconds

    def start(self, part: Part, chief: Address) -> None:
        """Nothing to do: a part that was given up dials again."""

    @override
    def condition(self, part: Part) -> Condition:
        return Condition(
            Life.RUNNING,
            f"it is {self._config.addresses[part[0]][part[1]]} in TF_CONFIG; look whether it was"
            " started and can be reached, or give it more time with --cluster-timeout",
        )

    @override
    def signal(self, part: Part, number: int) -> None:
        _LOG.warning(
            "%s %d at %s does not answer; it can only be ended, and started again, by whoever"
            " started it",
            *part,
            self._config.addresses[part[0]][part[1]],
        )

    def close(self) -> None:
        """Nothing to end: without their chief they do so themselves."""


def await_name(host: str, limit_seconds: float) -> None:
    """Waits until a machine knows its own name, which a platform may tell it only after the start.

    Raises:
        UserError: It does not.
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


def new_engine(plan: ChiefPlan, zygote: Zygote) -> PlatformEngine:
    """The engine of a chief in TF_CONFIG; its options are `PlatformOptions`."""
    return PlatformEngine(plan.options)


class TfConfigTrainer(ProcessTrainer):
    """Trains on the cluster in this process's TF_CONFIG, one trial after the other.

    Args:
        reference: The workload, as `load_workload` takes it.
        options: The cluster to train on.

    Raises:
        UserError: The workload cannot be loaded.
        RetryableError: A part is not there.
    """

    def __init__(self, reference: str, options: PlatformOptions) -> None:
        # A run may have nothing to do but to wait for a part.
        self.least_patience_seconds = options.limit_seconds + super().least_patience_seconds
        super().__init__(
            reference,
            options.config.workers,
            options,
            f"{__name__}:new_engine",
            options.config.servers,
        )


def cluster_secret(*, is_open: bool) -> bytes | None:
    """The secret by which the parts of a cluster recognize each other.

    Args:
        is_open: Do without, and without encryption.

    Raises:
        UserError: The environment has none, or one that can be guessed.
    """
    if is_open:
        return None
    secret = os.environ.get(SECRET, "").encode()
    if len(secret) < LEAST_SECRET_BYTES:
        is_what = f"has {len(secret)} letters, which can be guessed" if secret else "is not set"
        raise UserError(
            f"{SECRET} {is_what}: whoever reaches a part of the cluster could have it compute what"
            " he likes. Set it to the same words in the environment of each part, such as the"
            " output of `openssl rand -hex 32`; or, where only people you trust can reach these"
            " machines, or listen to them, add --open-network to the command of each part"
        )
    return secret


def serve_until_chief_is_gone(
    options: PlatformOptions,
    grace_seconds: float,
    say: Callable[[str], None],
    gpus_per_worker: float = 0.0,
    reference: str | None = None,
) -> None:
    """Is the part that TF_CONFIG names until its chief has gone.

    Args:
        options: The cluster, as this part has it.
        grace_seconds: How long to wait for a chief that has gone: it may be started again.
        say: Is told what this part does.
        gpus_per_worker: Whether a worker is to use the GPU that it sees.
        reference: The workload; see `Place`.

    Raises:
        UserError: Somebody else listens at its address.
        RetryableError: No chief came.
    """
    config = options.config
    is_worker_with_gpu = config.job == "worker" and gpus_per_worker > 0
    os.environ.update(gpu_worker_environment(gpus_per_worker) if is_worker_with_gpu else NO_GPU)
    own = config.addresses[config.job][config.task]
    chief, listen = host_and_port(config.chief), host_and_port(own)
    place = Place((config.job, config.task), chief, listen, options.secret, reference)
    was_there, why, deadline = False, "", time.monotonic() + options.limit_seconds
    say(f"{config.name} at {own} waits for its chief at {config.chief}")
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))
    while time.monotonic() < deadline:
        try:
            serve_chief(place)
            # One that dies is started again by its platform, and needs its parts then.
            was_there, deadline = True, time.monotonic() + grace_seconds
        except OSError as error:
            why = error.strerror or str(error)
            if error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES):
                raise UserError(
                    f"{config.name} cannot listen at {own} ({error.strerror}); end what listens"
                    " there, or give it an address of this machine"
                ) from error
        time.sleep(_PAUSE_SECONDS)
    if not was_there:
        raise RetryableError(
            f"no chief was at {config.chief} within {options.limit_seconds:g} s ({why}); start it,"
            f" and this one again, with the same {SECRET}, addresses and --open-network, or give it"
            " more time with --cluster-timeout"
        )
    say(f"the chief at {config.chief} has been gone for {grace_seconds:g} s: {config.name} ends")
