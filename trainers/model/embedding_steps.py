"""What a step does for embeddings, whose rows lie on parameter servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.embeddings import EmbeddingTable
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.embeddings.shard import Ids, RowGradient, checked_ids
from syncswitch.trainers.model.function import ModelFunction
from syncswitch.trainers.model.layout import Vector
from syncswitch.trainers.model.steps import as_array
from syncswitch.trainers.model.tensorflow_api import concrete, tf


class EmbeddingSteps:
    """Finds out which rows a batch needs, and takes them into the step and out of it.

    Args:
        embeddings: Which there are.
        ids: See `trace_ids`.
    """

    def __init__(
        self, embeddings: Sequence[EmbeddingTable], ids: Callable[..., Sequence[Any]]
    ) -> None:
        self._embeddings = embeddings
        self._ids = ids

    def wanted(self, examples: Sequence[Any], numbers: Any) -> list[Ids]:
        """Rows that a batch needs, of each table.

        Args:
            examples: As the step gets them.
            numbers: Worker-step and seed.

        Raises:
            ValueError: A table does not have them.
        """
        asked = self._ids(*examples, numbers, tf.constant(0.0))
        return [
            checked_ids(table, np.unique(as_array(one)))
            for table, one in zip(self._embeddings, asked, strict=True)
        ]

    @staticmethod
    def arguments(ids: Sequence[Ids], rows: Sequence[Vector]) -> list[Any]:
        """Of the traced step, which takes the numbers of the rows and their values."""
        pairs = zip(ids, rows, strict=True)
        return [tf.constant(one) for pair in pairs for one in pair]

    @staticmethod
    def gradients(ids: Sequence[Ids], parts: Sequence[Any]) -> list[RowGradient]:
        """Of rows, from the last results of the traced step."""
        return [RowGradient(one, as_array(part)) for one, part in zip(ids, parts, strict=True)]


def trace_ids(function: ModelFunction, workload: Workload, examples: Sequence[Any]) -> Any:
    """Traces which rows a worker-step needs.

    Args:
        function: Of the model.
        workload: Whose.
        examples: Shapes and types of what `ModelFunction.batch` takes.

    Returns:
        A concrete function `(examples ..., worker-step and seed, 0) -> numbers of rows ...`, of
        each table as often as it is asked.

    Raises:
        WorkloadError: They depend on what is trained.
    """

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
    """Whether a tensor of a graph is computed of another one."""
    waiting, seen = [tensor], set()
    while waiting:
        one = waiting.pop()
        if one is source:
            return True
        if id(one.op) not in seen:
            seen.add(id(one.op))
            waiting.extend(one.op.inputs)
    return False
