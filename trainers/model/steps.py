"""The traced functions of a model that workers and parameter servers run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.data import AnyData
from syncswitch.trainers.job.embeddings import EmbeddingTable
from syncswitch.trainers.job.sources.source import Array
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.batches.examples import row_specs
from syncswitch.trainers.model.embeddings.shard import Ids, RowGradient, checked_ids
from syncswitch.trainers.model.function import EmbeddingRows, ModelFunction
from syncswitch.trainers.model.layout import Vector
from syncswitch.trainers.model.optimizer import Optimizer, pack, unpack
from syncswitch.trainers.model.tensorflow_api import concrete, tf

FlatUpdate = Callable[..., tuple[Vector, Vector]]
"""`(parameters, slots, updates, gradient, rate, momentum) -> (parameters, slots)` after it."""

# TensorFlow joins gradients of fewer values; longer ones are joined when they are kept.
_SHORT = 1 << 18
_ALIGNMENT = 64


def trace_step(
    function: ModelFunction, data: AnyData, beside: str | None = None, *, is_compiled: bool = False
) -> Any:
    """Traces one worker-step up to its gradient.

    Its batch is made on the device `beside`; XLA compiles the rest if `is_compiled` and it can.

    Returns:
        A concrete function `(model, examples ..., worker-step and seed) -> (loss, contribution,
        parts of the gradient ...)`; the model is parameters and statistics, shape [P + S]. With
        embeddings the numbers and values of rows follow as arguments, their gradients as results.
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

    of_rows: list[Any] = []
    for table in function.embeddings:
        of_rows += [tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, table.width])]
    numbers = tf.TensorSpec([2], tf.int64)
    return concrete(step, tf.TensorSpec([sum(sizes)]), *examples, numbers, *of_rows)


def trace_update(optimizer: Optimizer, parameters: int) -> Any:
    """Traces `Optimizer.apply` for a number of parameters."""
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
    """Makes a function of arrays from one that `trace_update` has traced."""

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
    """Makes a tensor of an array; it shares the array's memory if that is aligned and writable."""
    if values.ctypes.data % _ALIGNMENT or not values.flags.writeable:
        return tf.constant(values)
    return tf.experimental.dlpack.from_dlpack(values.__dlpack__())


def as_array(tensor: Any) -> Vector:
    """Returns the values of a tensor; they are copied only if they lie on a GPU."""
    if tensor.device.endswith("CPU:0"):
        return np.asarray(memoryview(tensor))
    found: Vector = tensor.numpy()
    return found


class EmbeddingSteps:
    """Finds the rows of embeddings that a batch needs (with `trace_ids`), and passes them on."""

    def __init__(
        self, embeddings: Sequence[EmbeddingTable], ids: Callable[..., Sequence[Any]]
    ) -> None:
        self._embeddings = embeddings
        self._ids = ids

    def wanted(self, examples: Sequence[Any], numbers: Any) -> list[Ids]:
        """Returns the numbers of the rows of each embedding that a batch needs."""
        asked = self._ids(*examples, numbers, tf.constant(0.0))
        return [
            checked_ids(table, np.unique(as_array(one)))
            for table, one in zip(self._embeddings, asked, strict=True)
        ]

    @staticmethod
    def arguments(ids: Sequence[Ids], rows: Sequence[Vector]) -> list[Any]:
        """Returns the arguments of the traced step for rows: their numbers and values."""
        pairs = zip(ids, rows, strict=True)
        return [tf.constant(one) for pair in pairs for one in pair]

    @staticmethod
    def gradients(ids: Sequence[Ids], parts: Sequence[Any]) -> list[RowGradient]:
        """Returns the gradients of rows, from the last results of the traced step."""
        return [RowGradient(one, as_array(part)) for one, part in zip(ids, parts, strict=True)]


def trace_ids(function: ModelFunction, workload: Workload, examples: Sequence[Any]) -> Any:
    """Traces the look-up of rows: `(examples ..., worker-step and seed, 0) -> rows ...`."""

    def asked(*given: Any) -> list[Any]:
        *held, numbers, trained = given
        inputs, _, _ = function.batch(held, numbers[0], numbers[1])
        return function.ids(inputs, trained, training=True)

    traced = concrete(asked, *examples, tf.TensorSpec([2], tf.int64), tf.TensorSpec([]))
    trained = traced.graph.inputs[len(examples) + 1]
    for table, ids in zip(function.embeddings, traced.outputs, strict=True):
        if _depends_on(ids, trained):
            raise WorkloadError(
                f"workload {workload.name!r}: the rows that layer {table.layer!r} looks up depend"
                " on what is trained, so that they cannot be fetched before the step; look rows up"
                " by the inputs alone, or set least_embedding_values to None"
            )
    return traced


def _depends_on(tensor: Any, source: Any) -> bool:
    """Returns True if a tensor of a graph is computed from another one."""
    waiting, seen = [tensor], set()
    while waiting:
        one = waiting.pop()
        if one is source:
            return True
        if id(one.op) not in seen:
            seen.add(id(one.op))
            waiting.extend(one.op.inputs)
    return False
