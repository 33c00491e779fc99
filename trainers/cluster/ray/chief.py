"""The chief of a cluster on Ray: a driver of its own, whose actors end with it.

    python -m syncswitch.trainers.cluster.ray.chief SOCKET_FD WORKLOAD WORKERS OPTIONS

It ends when its standard input does.
"""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection

from syncswitch.trainers.cluster.processes.chief import end_with_input, serve_trials
from syncswitch.trainers.cluster.processes.placement import CPU, GPU, NO_GPU, server_devices
from syncswitch.trainers.cluster.ray.options import RayOptions
from syncswitch.trainers.cluster.servers.network import free_ports
from syncswitch.trainers.trainer import Trainer

# A streaming call to a server that is gone waits for one at the same address, for ever; a new one
# may be on another node.
_ENVIRONMENT = {**NO_GPU, "TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE": "False"}


def main() -> None:
    """Joins the Ray cluster, starts servers there, and trains what is asked for."""
    socket_fd, reference, workers = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    options = RayOptions.from_json(sys.argv[4])
    os.environ.update(_ENVIRONMENT)
    end_with_input()
    status = 1
    try:
        serve_trials(
            Connection(socket_fd),
            lambda: _make_trainer(reference, workers, options),
            private_network=True,  # `connect` warns where it is not
        )
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        # At once: Ray ends what a driver leaves behind, and waits for nothing.
        sys.stderr.flush()
        os._exit(status)


def _make_trainer(reference: str, workers: int, options: RayOptions) -> Trainer:
    from syncswitch.trainers.cluster.ray.connection import connect, reserve

    connect(options)
    from syncswitch.trainers.cluster.ray.pool import RayPool

    pool = RayPool(reserve(options, workers), options, workers)
    # Imports TensorFlow while the servers do.
    import ray

    from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
    from syncswitch.trainers.cluster.servers.servers_launcher import ServersLauncher
    from syncswitch.trainers.job.loading import load_workload

    pool.addresses["chief"] = [f"{ray.util.get_node_ip_address()}:{free_ports(1)[0]}"]
    devices = server_devices(workers, GPU if options.gpus_per_worker else CPU)
    launcher = ServersLauncher(pool.addresses, pool, devices, kind="ray")
    return ClusterTrainer(load_workload(reference), workers, launcher)


if __name__ == "__main__":
    main()
