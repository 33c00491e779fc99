"""The functions of a model that run where others train it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from syncswitch.trainers.job.data import AnyData
from syncswitch.trainers.job.sources.source import Array
from syncswitch.trainers.model.batches.examples import row_specs
from syncswitch.trainers.model.embeddings.lookup import EmbeddingRows, specs_of
from syncswitch.trainers.model.function import ModelFunction
from syncswitch.trainers.model.layout import Vector
from syncswitch.trainers.model.optimizer import Optimizer, pack, unpack
from syncswitch.trainers.model.tensorflow_api import concrete, tf

FlatUpdate = Callable[..., tuple[Vector, Vector]]
"""`(parameters, slots, updates, gradient, rate, momentum)` to parameters and slots after it."""

# A gradient below this many values is joined by TensorFlow; a long one only when it is kept.
_SHORT = 1 << 18
_ALIGNMENT = 64


def trace_step(
    function: ModelFunction, data: AnyData, beside: str | None = None, *, is_compiled: bool = False
) -> Any:
    """Traces one worker-step up to its gradient.

    Args:
        function: Of the model.
        data: Whose training examples the step will be given.
        beside: Device on which a batch is made; None for where it is computed.
        is_compiled: Have XLA compile all but the batch, where it can.

    Returns:
        A concrete function `(model, examples ..., worker-step and seed) -> (loss, contribution,
        gradients ...)`: parameters and then statistics, shape [P + S]; what `batch` takes; int64,
        shape [2]; and the parts of the flat gradient in their order. Where there are embedding
        embeddings it takes numbers and values of the rows of each after these, and gives their
        gradients after the others.
    """
    sizes = [function.parameters.size, function.statistics.size]
    variables = len(function.parameters.shapes)
    examples = row_specs(data, function.batch_size)
    own = len(examples) + 1

    def compute(model: Any, batch: Any, embedding_rows: Any) -> tuple[Any, Any, list[Any]]:
        parameters, statistics = model[: sizes[0]], model[sizes[0] :]
        values = unpack(parameters, function.parameters)
        inputs, labels, seed = batch
        return function.gradients(values, statistics, inputs, labels, seed, embedding_rows)

    computed = tf.function(compute, autograph=False, jit_compile=True) if is_compiled else compute

    def step(model: Any, *given: Any) -> tuple[Any, ...]:
        given, of_embeddings = given[:own], given[own:]
        *examples, numbers = given
        with tf.device(beside):
            batch = function.batch(examples, numbers[0], numbers[1])
        embedding_rows = list(map(EmbeddingRows, of_embeddings[::2], of_embeddings[1::2]))
        loss, gradients, contribution = computed(model, batch, embedding_rows)
        dense, rows = gradients[:variables], gradients[variables:]
        if sizes[0] <= _SHORT:
            dense = [pack(dense)]
        flat = [tf.reshape(one, [-1]) for one in dense]
        return tf.cast(loss, tf.float32), contribution, *flat, *rows

    return concrete(
        step,
        tf.TensorSpec([sum(sizes)]),
        *examples,
        tf.TensorSpec([2], tf.int64),
        *(spec for table in function.embeddings for spec in specs_of(table)),
    )


def trace_update(optimizer: Optimizer, parameters: int) -> Any:
    """Traces `Optimizer.apply` for this number of parameters."""
    return concrete(
        optimizer.apply,
        tf.TensorSpec([parameters]),
        tf.TensorSpec([optimizer.layout.size]),
        tf.TensorSpec([], tf.int64),
        tf.TensorSpec([parameters]),
        tf.TensorSpec([]),
        tf.TensorSpec([]),
    )


def flat_update(function: Callable[..., Sequence[Any]]) -> FlatUpdate:
    """A function of arrays from what `trace_update` makes, shipped or not."""

    def update(
        parameters: Vector,
        slots: Vector,
        updates: int,
        gradient: Vector,
        rate: float,
        momentum: float,
    ) -> tuple[Vector, Vector]:
        moved, kept = function(
            as_tensor(parameters),
            as_tensor(slots),
            tf.constant(updates, tf.int64),
            as_tensor(gradient),
            tf.constant(rate, tf.float32),
            tf.constant(momentum, tf.float32),
        )
        return as_array(moved), as_array(kept)

    return update


def as_tensor(values: Array) -> Any:
    """A tensor of an array that may be written to; they share its memory where it is aligned."""
    if values.ctypes.data % _ALIGNMENT:
        return tf.constant(values)
    return tf.experimental.dlpack.from_dlpack(values.__dlpack__())


def as_array(tensor: Any) -> Vector:
    """The values of a tensor of this process, which stay where they are, unless on a GPU."""
    if tensor.device.endswith("CPU:0"):
        return np.asarray(memoryview(tensor))
    found: Vector = tensor.numpy()
    return found
