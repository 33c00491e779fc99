"""A trainer on a cluster that TF_CONFIG describes and somebody else has started.

    python -m syncswitch.trainers.cluster.processes.tf_config_trainer \
        SOCKET_FD WORKLOAD LIMIT_SECONDS STEP_DEVICE

is its chief, a process of its own as that of other clusters is: where TensorFlow hangs, another
chief goes on from the last checkpoint, on the same servers.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection

from typing_extensions import override

from syncswitch.trainers.cluster.processes.chief import end_with_input, serve_trials
from syncswitch.trainers.cluster.processes.process_trainer import ProcessTrainer
from syncswitch.trainers.cluster.servers.placement import CPU, GPU, NO_GPU, server_devices
from syncswitch.trainers.cluster.servers.static_pool import StaticPool
from syncswitch.trainers.cluster.servers.tf_config import TfConfig, read_tf_config
from syncswitch.trainers.trainer import Trainer

_MODULE = "syncswitch.trainers.cluster.processes.tf_config_trainer"
# As a program it has another name.
_LOG = logging.getLogger(_MODULE)


class TfConfigTrainer(ProcessTrainer):
    """Trains on the servers in this process's TF_CONFIG, one trial after the other.

    Args:
        reference: The workload, as `load_workload` takes it.
        config: Of this process, the chief.
        limit_seconds: How long a server may take until it is there, first or again.
        gpus_per_worker: Whether each worker has a GPU, or a share of one.
        say: Told which servers are waited for.

    Raises:
        UserError: The workload cannot be loaded, or a worker has no GPU.
        RetryableError: A server is not there.
    """

    def __init__(
        self,
        reference: str,
        config: TfConfig,
        limit_seconds: float,
        gpus_per_worker: float = 0.0,
        say: Callable[[str], None] = _LOG.warning,
    ) -> None:
        self._limit_seconds = limit_seconds
        self._step_device = GPU if gpus_per_worker > 0 else CPU
        # A run may have nothing to do but to wait for a server.
        self.least_patience_seconds = limit_seconds + super().least_patience_seconds
        # Here, where somebody reads what is said; the chief's process finds them there.
        StaticPool(config.addresses, limit_seconds, say).await_all()
        super().__init__(reference, config.workers)

    @override
    def program(self, socket_fd: int) -> list[str]:
        numbers = (f"{self._limit_seconds!r}", self._step_device)
        return [_MODULE, str(socket_fd), self._reference, *numbers]


def main() -> None:
    """The chief."""
    socket_fd, reference, limit_text, step_device = sys.argv[1:]
    end_with_input()
    os.environ.update(NO_GPU)
    config = read_tf_config(os.environ)

    def make_trainer() -> Trainer:
        from syncswitch.trainers.cluster.parameter_server.trainer import ClusterTrainer
        from syncswitch.trainers.cluster.servers.servers_launcher import ServersLauncher
        from syncswitch.trainers.job.loading import load_workload

        limit_seconds = float(limit_text)
        launcher = ServersLauncher(
            config.addresses,
            StaticPool(config.addresses, limit_seconds, _LOG.warning),
            server_devices(config.workers, step_device),
            kind="tf-config",
        )
        return ClusterTrainer(load_workload(reference), config.workers, launcher)

    # What is to be said about the network has been said by the process that started this one.
    serve_trials(Connection(int(socket_fd)), make_trainer, private_network=True)


if __name__ == "__main__":
    main()
