"""A cluster of real TensorFlow servers, one process each."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence

from syncswitch.storage.errors import FatalError
from syncswitch.trainers.cluster.launchers import Devices, Launcher
from syncswitch.trainers.model.tensorflow_api import tf

__all__ = ["ClusterAddresses", "ServersLauncher", "cluster_addresses", "serve"]

ClusterAddresses = Mapping[str, Sequence[str]]

_DEVICE = "/job:{job}/replica:0/task:{task}/device:CPU:0"


def cluster_addresses(ports: Sequence[int]) -> ClusterAddresses:
    """Addresses by job: the chief, one parameter server, and a worker for each further port."""
    addresses = [f"127.0.0.1:{port}" for port in ports]
    return {"chief": addresses[:1], "ps": addresses[1:2], "worker": addresses[2:]}


def serve(addresses: ClusterAddresses, job: str, task: int) -> None:
    """Is a TensorFlow server until the process is killed."""
    # Kept in a variable: a server that nobody refers to is stopped.
    server = tf.distribute.Server(
        tf.train.ClusterSpec(addresses), job_name=job, task_index=task, protocol="grpc"
    )
    while server is not None:
        # Not server.join(): it would ignore signals.
        signal.pause()


class ServersLauncher(Launcher):
    """Connects this process, as the chief, to servers that run already."""

    def __init__(self, addresses: ClusterAddresses) -> None:
        self._addresses = addresses

    def start(self, workers: int) -> Devices:
        """See `Launcher.start`."""
        if workers != len(self._addresses["worker"]):
            raise FatalError(
                f"{workers} workers asked of a cluster of {len(self._addresses['worker'])}"
            )
        tf.config.experimental_connect_to_cluster(
            tf.train.ClusterSpec(self._addresses), job_name="chief", task_index=0
        )
        return Devices(
            chief=_DEVICE.format(job="chief", task=0),
            parameter_server=_DEVICE.format(job="ps", task=0),
            workers=tuple(_DEVICE.format(job="worker", task=task) for task in range(workers)),
        )

    def close(self) -> None:
        """Nothing to stop: whoever started the servers stops them."""
