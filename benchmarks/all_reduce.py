"""TensorFlow's all-reduce, what users of BSP have, as one worker in each of several processes.

python -m benchmarks.all_reduce ADDRESSES_AS_JSON TASK WORKLOAD
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks.engines import WORKERS, Train, dataset, replica_of
from benchmarks.private_network import free_ports
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.parent import die_with_parent


def ring(reference: str) -> Train:
    """`MultiWorkerMirroredStrategy` by its ring, with this process as the first worker.

    The others take part in whatever steps this one makes, and end with it.
    """
    addresses = [f"127.0.0.1:{port}" for port in free_ports(WORKERS)]
    for task in range(1, WORKERS):
        arguments = [json.dumps(addresses), str(task), reference]
        subprocess.Popen([sys.executable, "-m", "benchmarks.all_reduce", *arguments])
    return _worker(load_workload(reference), addresses, 0)


def _worker(workload: Workload, addresses: Sequence[str], task: int) -> Train:
    config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": task}}
    os.environ["TF_CONFIG"] = json.dumps(config)
    import tensorflow as tf

    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.RING
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    with strategy.scope():
        replica = replica_of(workload, len(addresses))
    batches = iter(
        strategy.distribute_datasets_from_function(lambda _: dataset(workload, seed=task))
    )

    @tf.function
    def step(inputs, labels):  # type: ignore[no-untyped-def]
        return strategy.run(replica, args=(inputs, labels))

    def train(worker_steps: int) -> float:
        start = time.perf_counter()
        loss = None
        for _ in range(-(-worker_steps // len(addresses))):
            loss = step(*next(batches))
        float(strategy.experimental_local_results(loss)[0])  # waits; a sum would be collective
        return time.perf_counter() - start

    return train


def main() -> None:
    die_with_parent()
    addresses, task, reference = json.loads(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    train = _worker(load_workload(reference), addresses, task)
    while True:
        train(len(addresses))


if __name__ == "__main__":
    main()
