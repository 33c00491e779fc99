"""What TensorFlow does once in each process, done before processes are forked.

With its first function a process registers kernels, and asks for each operation and type whether
oneDNN has one, which goes through all kernels twice: two thirds of what a worker takes to start.
"""

from __future__ import annotations

import os
from typing import Any

_done: list[bool] = []


def prepare() -> None:
    """Has the forks of this thread know what small models need; TensorFlow does not run then."""
    if _done:
        return
    _done.append(True)
    from syncswitch.trainers.model.tensorflow_api import tf

    v1 = tf.compat.v1
    # Else devices keep threads, which forks would miss.
    os.environ["TF_OVERRIDE_GLOBAL_THREADPOOL"] = "1"
    options = v1.ConfigProto(
        device_count={"GPU": 0},
        use_per_session_threads=True,
        intra_op_parallelism_threads=1,
        inter_op_parallelism_threads=1,
    )
    options.graph_options.rewrite_options.disable_meta_optimizer = True
    graph = tf.Graph()
    with graph.as_default():
        fetched = [*_training(tf), *_numbers(tf)]
    with v1.Session(graph=graph, config=options) as session:
        session.run(fetched)
    del os.environ["TF_OVERRIDE_GLOBAL_THREADPOOL"]


def _training(tf: Any) -> list[Any]:
    """A step of a network with the usual layers, and their gradients."""
    zeros = tf.compat.v1.placeholder_with_default
    vector = zeros(tf.zeros(200), [200])
    kernel, scale, shift = tf.reshape(vector[:27], [3, 3, 3, 1]), vector[27:28], vector[28:29]
    weights, bias = tf.reshape(vector[29:61], [16, 2]), vector[61:63]
    images = zeros(tf.ones([2, 8, 8, 3]), [2, 8, 8, 3])
    hidden = tf.nn.conv2d(images, kernel, 1, "SAME")
    hidden, mean, variance = tf.compat.v1.nn.fused_batch_norm(hidden, scale, shift)
    hidden = tf.nn.max_pool2d(tf.nn.relu(hidden), 2, 2, "SAME")
    logits = tf.nn.bias_add(tf.matmul(tf.reshape(hidden, [2, 16]), weights), bias)
    labels = tf.one_hot([0, 1], 2)
    losses = tf.nn.softmax_cross_entropy_with_logits(labels, logits)
    loss = tf.reduce_mean(losses) + tf.reduce_sum(tf.math.squared_difference(logits, labels))
    gradients = tf.gradients(loss, [kernel, scale, shift, weights, bias])
    return [mean, variance, tf.concat([tf.reshape(one, [-1]) for one in gradients], 0)]


def _numbers(tf: Any) -> list[Any]:
    """Of vectors, and of the places of examples."""
    found = []
    for kind in (tf.float32, tf.int32, tf.int64):
        one = tf.compat.v1.placeholder_with_default(tf.ones([2, 2], kind), [2, 2])
        found += [one + one, one - one, one * one, tf.maximum(one, one), tf.transpose(one)]
        found += [tf.reduce_sum(one), tf.reduce_mean(one), tf.stack([one, one]), one[0], -one]
        found += [tf.identity(one), tf.equal(one, one), tf.less(one, one), tf.zeros_like(one)]
        found += [tf.where(one > one, one, one), tf.expand_dims(one, 0), tf.tile(one, [1, 1])]
        found += [tf.square(one), one // one, tf.shape(one), tf.broadcast_to(one, [2, 2, 2])]
    one = found[0]
    return [*found, one / one, tf.sqrt(one), tf.math.rsqrt(one), tf.exp(one), tf.math.log(one)]
