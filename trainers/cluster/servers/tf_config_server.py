"""A parameter server or a worker of a cluster that TF_CONFIG describes."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from syncswitch.storage.errors import RetryableError
from syncswitch.trainers.cluster.servers.placement import NO_GPU, gpu_worker_environment
from syncswitch.trainers.cluster.servers.pool import listens
from syncswitch.trainers.cluster.servers.tf_config import TfConfig, host_and_port

_PAUSE_SECONDS = 0.25


@dataclass
class ChiefWatch:
    """Decides when a server stops waiting for its chief; pure.

    A chief that dies is started again by its platform, and needs its servers then.

    Attributes:
        limit_seconds: How long to wait for one that has not come yet.
        grace_seconds: How long to wait for one that has gone.
        since_seconds: When it was there last, or when the waiting began.
        was_there: Whether it ever was.
    """

    limit_seconds: float
    grace_seconds: float
    since_seconds: float
    was_there: bool = False

    def is_over(self, is_there: bool, now_seconds: float) -> bool:
        """Records whether the chief is there now.

        Returns:
            Whether to give up.
        """
        if is_there:
            self.was_there, self.since_seconds = True, now_seconds
            return False
        patience_seconds = self.grace_seconds if self.was_there else self.limit_seconds
        return now_seconds - self.since_seconds > patience_seconds


def serve_until_chief_is_gone(
    config: TfConfig,
    limit_seconds: float,
    grace_seconds: float,
    say: Callable[[str], None],
    gpus_per_worker: float = 0.0,
) -> None:
    """Runs the server that TF_CONFIG names until its chief has gone; SIGTERM ends the process.

    Args:
        config: Of a parameter server or worker.
        limit_seconds: How long to wait for a chief that has not come yet.
        grace_seconds: How long to wait for one that has gone: it may be started again.
        say: Told what it does.
        gpus_per_worker: Whether a worker is to use the GPU that it sees.

    Raises:
        UserError: Somebody else listens at its port.
        RetryableError: No chief came.
    """
    is_worker_with_gpu = config.job == "worker" and gpus_per_worker > 0
    os.environ.update(gpu_worker_environment(gpus_per_worker) if is_worker_with_gpu else NO_GPU)
    from syncswitch.trainers.cluster.servers.server import do_without_keras, start_server

    do_without_keras()
    signal.signal(signal.SIGTERM, _end)
    # Kept in a variable: a server that nobody refers to is stopped.
    server = start_server(config.addresses, config.job, config.task)
    say(f"{config.name} listens at {config.addresses[config.job][config.task]}")
    host, port = host_and_port(config.chief)
    watch = ChiefWatch(limit_seconds, grace_seconds, time.monotonic())
    while not watch.is_over(listens(host, port), time.monotonic()):
        time.sleep(_PAUSE_SECONDS)
    assert server is not None
    if not watch.was_there:
        raise RetryableError(
            f"no chief was at {config.chief} within {limit_seconds:g} s; start it, and this one"
            " again, or give it more time with --cluster-timeout"
        )
    say(f"the chief at {config.chief} has been gone for {grace_seconds:g} s: {config.name} ends")


def _end(number: int, frame: object) -> None:
    """TensorFlow's threads would hold up an orderly exit."""
    sys.stderr.flush()
    os._exit(0)
