"""TensorFlow's own ways to train the same Keras model."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from benchmarks.private_network import free_ports
from syncswitch.trainers.job.workload import Workload

WORKERS = 4
PAUSE_SECONDS = 0.05

Train = Callable[[int], float]
"""Makes so many worker-steps; gives the seconds that they took."""


def dataset(workload: Workload, seed: int = 0) -> object:
    """The training data as a pipeline of batches without an end."""
    import tensorflow as tf

    data = workload.data()
    return (
        tf.data.Dataset.from_tensor_slices((data.train_inputs, data.train_labels))
        .shuffle(len(data.train_labels), seed=seed)
        .repeat()
        .batch(workload.batch_size)
        .prefetch(2)
    )


def end_with(server: subprocess.Popen[bytes], name: str) -> None:
    """Ends this process when a server does: TensorFlow would wait for it without an end."""
    status = server.wait()
    print(f"the server of {name} ended with status {status}", file=sys.stderr, flush=True)
    os._exit(1)


def wait_until_listening(ports: list[int]) -> None:
    """TensorFlow would ask again after pauses that double each time."""
    for port in ports:
        while True:
            with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(PAUSE_SECONDS)


def coordinator(workload: Workload) -> Train:
    """TensorFlow's own parameter server training, as its tutorial writes it."""
    strategy, chief = started_strategy(1)
    with strategy.scope():
        replica = replica_of(workload)
    return scheduled(strategy, chief, replica, lambda: dataset(workload))


def replica_of(workload: Workload, replicas: int = 1) -> Callable[[Any, Any], Any]:
    """A step of a model of the workload, whose round so many replicas share."""
    import keras
    import tensorflow as tf

    model = workload.model()
    optimizer = keras.optimizers.SGD(workload.learning_rate, momentum=workload.momentum)
    optimizer.build(model.trainable_variables)
    loss_of = keras.losses.SparseCategoricalCrossentropy()

    def replica(inputs: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(inputs, training=True)) / replicas
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return replica


def scheduled(
    strategy: Any, chief: Any, replica: Callable[[Any, Any], Any], batches: Callable[[], object]
) -> Train:
    """Steps that TensorFlow's coordinator hands out to its workers."""
    import tensorflow as tf

    @tf.function
    def step(iterator):  # type: ignore[no-untyped-def]
        return strategy.run(replica, args=next(iterator))

    iterator = iter(chief.create_per_worker_dataset(batches))

    def train(worker_steps: int) -> float:
        start = time.perf_counter()
        for _ in range(worker_steps):
            chief.schedule(step, args=(iterator,))
        chief.join()
        return time.perf_counter() - start

    return train


def started_strategy(servers: int) -> tuple[Any, Any]:
    """TensorFlow's servers, the strategy, and who hands out its steps."""
    import tensorflow as tf

    ports = free_ports(WORKERS + servers)
    found = [f"127.0.0.1:{port}" for port in ports]
    addresses = {"ps": found[:servers], "worker": found[servers:]}
    for job, tasks in addresses.items():
        for task in range(len(tasks)):
            arguments = [json.dumps(addresses), job, str(task)]
            server = subprocess.Popen([sys.executable, "-m", "benchmarks.server", *arguments])
            threading.Thread(target=end_with, args=(server, f"{job} {task}"), daemon=True).start()
    wait_until_listening(ports)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(addresses), rpc_layer="grpc"
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    return strategy, tf.distribute.coordinator.ClusterCoordinator(strategy)


def single(workload: Workload) -> Train:
    """One process, no distribution: the ceiling."""
    import tensorflow as tf

    step = tf.function(replica_of(workload))
    batches = iter(dataset(workload))  # type: ignore[call-overload]

    def train(worker_steps: int) -> float:
        start = time.perf_counter()
        for _ in range(worker_steps):
            loss = step(*next(batches))
        loss.numpy()
        return time.perf_counter() - start

    return train
