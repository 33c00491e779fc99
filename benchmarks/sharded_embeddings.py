"""TensorFlow's parameter server training of embeddings that are sharded by rows."""

from __future__ import annotations

from typing import Any

from benchmarks.engines import Train, scheduled, started_strategy
from benchmarks.sizes import SPARSE_BATCH, SPARSE_RATE, SPARSE_ROWS, sparse_data
from syncswitch.trainers.workloads.clicks import DENSE, WIDTH

_HIDDEN = 32


def coordinator(servers: int) -> Train:
    """The model of the workload `clicks`; row i of a table lies on server i % servers.

    Plain SGD, as Keras' optimizers update whole embeddings: a step moves its batch's rows alone.
    """
    import tensorflow as tf

    strategy, chief = started_strategy(servers)

    def uniform(*shape: int) -> Any:
        return tf.Variable(lambda: tf.random.uniform(shape, -0.05, 0.05))

    with strategy.scope():
        embeddings = [
            [uniform(-(-SPARSE_ROWS // servers), WIDTH) for _ in range(servers)] for _ in range(2)
        ]
        shapes = [(DENSE, WIDTH), (3 * WIDTH + 3, _HIDDEN), (_HIDDEN, 1)]
        kernels = [uniform(*shape) for shape in shapes]
        biases = [uniform(shape[1]) for shape in shapes]
    trained = [*embeddings[0], *embeddings[1], *kernels, *biases]

    def loss_of(inputs: Any, labels: Any) -> Any:
        vectors = [tf.nn.relu(inputs[:, :DENSE] @ kernels[0] + biases[0])]
        for number, table in enumerate(embeddings):
            ids = tf.cast(inputs[:, DENSE + number], tf.int64)
            vectors.append(tf.nn.embedding_lookup(table, ids))
        products = [
            tf.reduce_sum(one * other, axis=1, keepdims=True)
            for place, one in enumerate(vectors)
            for other in vectors[:place]
        ]
        hidden = tf.nn.relu(tf.concat([*vectors, *products], 1) @ kernels[1] + biases[1])
        logits = hidden @ kernels[2] + biases[2]
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))

    def replica(inputs: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(inputs, labels)
        for variable, gradient in zip(trained, tape.gradient(loss, trained), strict=True):
            if isinstance(gradient, tf.IndexedSlices):
                values = SPARSE_RATE * gradient.values
                variable.scatter_sub(tf.IndexedSlices(values, gradient.indices))
            else:
                variable.assign_sub(SPARSE_RATE * gradient)
        return loss

    def dataset() -> Any:
        data = sparse_data()
        examples = tf.data.Dataset.from_tensor_slices((data.train_inputs, data.train_labels))
        shuffled = examples.shuffle(len(data.train_inputs)).repeat()
        return shuffled.batch(SPARSE_BATCH, drop_remainder=True).prefetch(2)

    return scheduled(strategy, chief, replica, dataset)
