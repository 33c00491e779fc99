"""Gradients of many workers at once, each at parameters of its own."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

import numpy as np

from syncswitch.storage.errors import WorkloadError, one_line
from syncswitch.trainers.job.data import AnyData
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.batches.examples import row_specs
from syncswitch.trainers.model.batches.feed import feed_of
from syncswitch.trainers.model.embeddings.lookup import EmbeddingRows, specs_of
from syncswitch.trainers.model.embeddings.shard import Ids, RowGradient
from syncswitch.trainers.model.function import ModelFunction
from syncswitch.trainers.model.layout import Vector
from syncswitch.trainers.model.optimizer import pack, unpack
from syncswitch.trainers.model.steps import EmbeddingSteps, trace_ids
from syncswitch.trainers.model.tensorflow_api import concrete, for_threads, quiet_log, tf


def with_patches(model: Any) -> Any:
    """The same model with convolutions and maxima that a compiler can join.

    It can neither join kernels of convolutions, but matrix products of patches, nor look quickly
    for the place of a maximum in windows, but choose between slices of the picture.

    Returns:
        A model with the same variables in the same order.

    Raises:
        ValueError: The model is neither sequential nor functional, so its layers are not known.
    """
    import keras

    return keras.models.clone_model(model, clone_function=_clone)


def _clone(layer: Any) -> Any:
    config = layer.get_config()
    convolution, maximum = _patch_layers()
    if type(layer) is convolution.__base__ and _is_plain(layer):
        return convolution.from_config(config)
    if type(layer) is maximum.__base__ and layer.data_format == "channels_last":
        return maximum.from_config(config)
    return type(layer).from_config(config)


def _is_plain(layer: Any) -> bool:
    return (
        layer.data_format == "channels_last"
        and layer.groups == 1
        and tuple(layer.dilation_rate) == (1, 1)
        and layer.padding in ("same", "valid")
    )


@cache
def _patch_layers() -> tuple[Any, Any]:
    from keras import layers

    class PatchConv2D(layers.Conv2D):  # type: ignore[misc]  # Keras has no types
        """A convolution as one matrix product."""

        def convolution_op(self, inputs: Any, kernel: Any) -> Any:
            """Replaces the operation, which Keras offers for this."""
            slices = _slices(inputs, self.kernel_size, self.strides, self.padding, 0.0)
            # In the order of a kernel's values.
            patches = tf.concat(slices, axis=-1)
            depth = patches.shape[-1]
            product = tf.matmul(tf.reshape(patches, [-1, depth]), tf.reshape(kernel, [depth, -1]))
            return tf.reshape(product, [-1, *patches.shape[1:3], self.filters])

    class PatchMaxPooling2D(layers.MaxPooling2D):  # type: ignore[misc]  # Keras has no types
        """The maximum of windows; of equal values the first has the gradient, as usual."""

        def call(self, inputs: Any) -> Any:
            """Replaces the operation."""
            least = inputs.dtype.min
            slices = _slices(inputs, self.pool_size, self.strides, self.padding, least)
            return reduce(lambda most, one: tf.where(one > most, one, most), slices)

    return PatchConv2D, PatchMaxPooling2D


def _slices(
    inputs: Any, size: Sequence[int], strides: Sequence[int], padding: str, outside: float
) -> list[Any]:
    """What windows of this size see at each of their places, row by row.

    Args:
        inputs: Shape [batch, rows, columns, channels].
        size: Rows and columns of a window.
        strides: From one window to the next.
        padding: "same" or "valid".
        outside: Value beyond the edges.
    """
    lengths = [int(length) for length in inputs.shape[1:3]]
    if padding == "same":
        paddings = [
            _same_padding(length, one, stride)
            for length, one, stride in zip(lengths, size, strides, strict=True)
        ]
        inputs = tf.pad(inputs, [(0, 0), *paddings, (0, 0)], constant_values=outside)
        lengths = [length + sum(pad) for length, pad in zip(lengths, paddings, strict=True)]
    ends = [length - one + 1 for length, one in zip(lengths, size, strict=True)]
    return [
        inputs[:, row : row + ends[0] : strides[0], column : column + ends[1] : strides[1], :]
        for row in range(size[0])
        for column in range(size[1])
    ]


def _same_padding(length: int, size: int, stride: int) -> tuple[int, int]:
    """As TensorFlow pads: evenly, and what is left over at the end."""
    outputs = -(-length // stride)
    total = max((outputs - 1) * stride + size - length, 0)
    return total // 2, total - total // 2


_LOG = logging.getLogger(__name__)
THREADS = os.cpu_count() or 1
"""So many calls are computed at the same time."""
_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Outstanding:
    """A gradient that is to be computed.

    Attributes:
        worker_step: Number of its batch.
        parameters: At which it is taken, shape [P].
        statistics: Shape [S].
        ids: Rows of embeddings that the batch needs.
        rows: Their values.
    """

    worker_step: int
    parameters: Vector
    statistics: Vector
    ids: Sequence[Ids] = ()
    rows: Sequence[Vector] = ()


@dataclass(frozen=True, slots=True)
class Computed:
    """A gradient.

    Attributes:
        loss: Of the batch.
        gradient: Shape [P].
        contribution: To the statistics (see `ModelFunction.move`), shape [S].
        rows: Gradients of embeddings' rows.
    """

    loss: float
    gradient: Vector
    contribution: Vector
    rows: Sequence[RowGradient] = ()


class GradientSource:
    """Computes gradients of one workload.

    Models whose layers allow it are computed several at once, in one compiled call in which every
    place has parameters of its own; the others one at a time.

    Attributes:
        at_once: So many are computed in a call.
    """

    def __init__(
        self,
        workload: Workload,
        data: AnyData,
        function: ModelFunction,
        at_once: int,
    ) -> None:
        self._name = workload.name
        self._function = function
        self._feed = feed_of(data.train, workload.batch_size, 2 * at_once)
        self._threads = ThreadPoolExecutor(THREADS, "gradients")
        specs = row_specs(data, workload.batch_size)
        self._embeddings: EmbeddingSteps | None = None
        if function.embeddings:
            ids = trace_ids(function, workload, specs)
            self._embeddings, at_once = EmbeddingSteps(function.embeddings, ids), 1
        self._examples = len(specs)
        probes = self._probes()
        try:
            traced = concrete(
                self._traced_single,
                tf.TensorSpec([function.parameters.size]),
                tf.TensorSpec([function.statistics.size]),
                tf.TensorSpec([2], tf.int64),
                *specs,
                *(spec for table in function.embeddings for spec in specs_of(table)),
            )
            self._single = for_threads(traced, THREADS)
            self._call_single(probes[0], 0)
        except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise WorkloadError(
                f"workload {workload.name!r}: model, data and loss do not fit together: "
                f"{one_line(error)}"
            ) from error
        self.at_once = at_once
        if at_once > 1 and not self._can_batch(workload, data, probes):
            self.at_once = 1

    def submit(self, wanted: Sequence[Outstanding], seed: int) -> Future[list[Computed]]:
        """Begins to compute gradients; what one of them is does not depend on the others."""
        call = self._call_single_of_one if self.at_once == 1 else self._call_batch
        return self._threads.submit(call, wanted, seed)

    def wanted(self, worker_step: int, seed: int) -> list[Ids]:
        """Rows of embeddings that a batch needs."""
        if self._embeddings is None:
            return []
        numbers = tf.constant([worker_step, seed], tf.int64)
        try:
            return self._embeddings.wanted(self._feed.rows(worker_step, seed), numbers)
        except ValueError as error:
            raise WorkloadError(f"workload {self._name!r}: {error}") from error

    def move(self, statistics: Vector, contribution: Vector) -> Vector:
        """The statistics after a batch; see `ModelFunction.move`."""
        moved: Vector = self._function.move(statistics, contribution)
        return moved

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown()
        self._feed.close()

    def _can_batch(self, workload: Workload, data: AnyData, wanted: Sequence[Outstanding]) -> bool:
        """Builds the batched call, and tries whether it says the same as the single one."""
        try:
            with quiet_log():
                found = self._try_batch(workload, data, wanted)
            expected = [self._call_single(one, 0) for one in wanted]
            if not all(map(_agree, found, expected)):
                raise ValueError("together they come out differently, as random layers do")
        except Exception as error:  # whatever Keras cannot clone, XLA compile, or the vectoriser do
            _LOG.info(
                "workload %s: gradients are computed one at a time (%s)",
                workload.name,
                one_line(error),
            )
            return False
        return True

    def _try_batch(
        self, workload: Workload, data: AnyData, wanted: Sequence[Outstanding]
    ) -> list[Computed]:
        self._batched_function = ModelFunction(workload, data, with_patches(self._function.model))
        # Measured once, of the same layers.
        self._batched_function.statistics_decay = self._function.statistics_decay
        self._gradients = tf.function(
            lambda *stacked: tf.vectorized_map(
                lambda one: self._batched_function.gradient(*one), stacked
            ),
            autograph=False,
            jit_compile=True,
        )
        self._batch = tf.function(self._traced_batch, autograph=False)
        return self._call_batch(wanted, 0)

    def _probes(self) -> list[Outstanding]:
        """Two, with batches, parameters and statistics of their own."""
        random = np.random.default_rng(0)

        def small(*shape: int) -> Vector:
            return (0.05 * random.standard_normal(shape)).astype(np.float32)

        found = []
        for step in range(2):
            parameters = small(self._function.parameters.size)
            statistics = (1 + random.random(self._function.statistics.size)).astype(np.float32)
            ids = self.wanted(step, 0)
            asked = zip(ids, self._function.embeddings, strict=True)
            rows = [small(len(one), table.width) for one, table in asked]
            found.append(Outstanding(step, parameters, statistics, ids, rows))
        return found

    def _call_single_of_one(self, wanted: Sequence[Outstanding], seed: int) -> list[Computed]:
        return [self._call_single(wanted[0], seed)]

    def _call_single(self, wanted: Outstanding, seed: int) -> Computed:
        numbers = tf.constant([wanted.worker_step, seed], tf.int64)
        loss, gradient, contribution, *rows = self._single(
            tf.constant(wanted.parameters),
            tf.constant(wanted.statistics),
            numbers,
            *self._feed.rows(wanted.worker_step, seed),
            *EmbeddingSteps.arguments(wanted.ids, wanted.rows),
        )
        gradients = EmbeddingSteps.gradients(wanted.ids, rows)
        return Computed(float(loss), gradient.numpy(), contribution.numpy(), gradients)

    def _call_batch(self, wanted: Sequence[Outstanding], seed: int) -> list[Computed]:
        # Filled up, as each size would be compiled anew.
        more = self.at_once - len(wanted)
        full = [*wanted, *[wanted[-1]] * more]
        rows = [self._feed.rows(one.worker_step, seed) for one in wanted]
        losses, gradients, contributions = self._batch(
            tf.constant(np.stack([one.parameters for one in full])),
            tf.constant(np.stack([one.statistics for one in full])),
            tf.constant([one.worker_step for one in full], tf.int64),
            tf.constant(seed, tf.int64),
            [*rows, *[rows[-1]] * more],
        )
        found = zip(losses.numpy(), gradients.numpy(), contributions.numpy(), strict=True)
        return [Computed(float(row[0]), row[1], row[2]) for row in list(found)[: len(wanted)]]

    def _traced_single(self, parameters: Any, statistics: Any, numbers: Any, *given: Any) -> Any:
        examples, of_embeddings = given[: self._examples], given[self._examples :]
        rows = list(map(EmbeddingRows, of_embeddings[::2], of_embeddings[1::2]))
        function = self._function
        batch = function.batch(examples, numbers[0], numbers[1])
        values = unpack(parameters, function.parameters)
        loss, gradients, contribution = function.gradients(values, statistics, *batch, rows=rows)
        dense = len(gradients) - len(rows)
        return loss, pack(gradients[:dense]), contribution, *gradients[dense:]

    def _traced_batch(
        self, parameters: Any, statistics: Any, steps: Any, seed: Any, rows: list[Any]
    ) -> Any:
        batches = self._batched_function.batches(rows, tf.unstack(steps, self.at_once), seed)
        stacked = tf.nest.map_structure(lambda *parts: tf.stack(parts), *batches)
        return self._gradients(parameters, statistics, *stacked)


def _agree(one: Computed, other: Computed) -> bool:
    """Whether two gradients differ by rounding alone."""
    scale = float(np.max(np.abs(other.gradient))) or 1.0
    return np.allclose(one.gradient, other.gradient, atol=_TOLERANCE * scale) and np.allclose(
        one.contribution, other.contribution, atol=_TOLERANCE
    )
