"""Gradients of many workers at once, and the training that they make in virtual-time order."""

from __future__ import annotations

import logging
import math
import operator
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial, reduce
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from typing_extensions import override

from syncswitch.storage.errors import one_line
from syncswitch.trainers.job.data import AnyData
from syncswitch.trainers.job.hyperparameters import Configuration
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.batches import row_specs
from syncswitch.trainers.model.embeddings import Ids, LocalEmbeddings, RowGradient, mean_of_rows
from syncswitch.trainers.model.feed import HeldFeed, feed_of
from syncswitch.trainers.model.function import (
    EmbeddingSteps,
    ModelFunction,
    as_array,
    trace_ids,
    trace_step,
)
from syncswitch.trainers.model.layout import ModelState, Vector, squared_length
from syncswitch.trainers.model.optimizer import Optimizer, pack, unpack
from syncswitch.trainers.model.own_slots import AheadUpdate, OwnSlots
from syncswitch.trainers.model.tensorflow_api import concrete, direct, for_threads, quiet_log, tf
from syncswitch.trainers.model.updates import (
    NO_OUTER,
    Projection,
    Update,
    first_outer_state,
    outer_step,
    rejoin,
)
from syncswitch.trainers.protocols import AfterAverage, Exchange, ReplicaStep
from syncswitch.trainers.protocols.steps import Group, Ticket
from syncswitch.trainers.run.record import LossMean
from syncswitch.trainers.simulated.timeline import StepExecutor

T = TypeVar("T")


def with_patches(model: Any) -> Any:
    """Copies a sequential or functional model, with layers that XLA can batch.

    XLA can batch matrix products of patches, but not convolutions that each have their own kernel;
    and it is quick at comparing slices of a picture, but not at locating a maximum in a window. The
    copy has the same variables in the same order. Raises ValueError for any other model, whose
    layers are unknown.
    """
    import keras

    convolution, maximum = _patch_layers()

    def clone(layer: Any) -> Any:
        kind = type(layer)
        if kind is maximum.__base__ and layer.data_format == "channels_last":
            kind = maximum
        if (
            kind is convolution.__base__
            and layer.data_format == "channels_last"
            and layer.groups == 1
            and tuple(layer.dilation_rate) == (1, 1)
            and layer.padding in ("same", "valid")
        ):
            kind = convolution
        return kind.from_config(layer.get_config())

    return keras.models.clone_model(model, clone_function=clone)


@cache
def _patch_layers() -> tuple[Any, Any]:
    from keras import layers

    class PatchConv2D(layers.Conv2D):  # type: ignore[misc]  # Keras has no types
        """A convolution computed as one matrix product."""

        def convolution_op(self, inputs: Any, kernel: Any) -> Any:
            slices = _slices(inputs, self.kernel_size, self.strides, self.padding, 0.0)
            # In the order of the kernel's values.
            patches = tf.concat(slices, axis=-1)
            depth = patches.shape[-1]
            product = tf.matmul(tf.reshape(patches, [-1, depth]), tf.reshape(kernel, [depth, -1]))
            return tf.reshape(product, [-1, *patches.shape[1:3], self.filters])

    class PatchMaxPooling2D(layers.MaxPooling2D):  # type: ignore[misc]  # Keras has no types
        """Max pooling; of equal values the first gets the gradient, as in TensorFlow."""

        def call(self, inputs: Any) -> Any:
            least = inputs.dtype.min
            return _largest(*_slices(inputs, self.pool_size, self.strides, self.padding, least))

    return PatchConv2D, PatchMaxPooling2D


@tf.custom_gradient  # type: ignore[untyped-decorator]  # TensorFlow has no types
def _largest(*slices: Any) -> Any:
    """The elementwise maximum; of equal values the first gets the gradient."""
    largest = reduce(tf.maximum, slices)

    def gradient(of_largest: Any) -> list[Any]:
        gradients, is_left = [], tf.ones_like(largest, tf.bool)
        for piece in slices:
            is_chosen = tf.logical_and(is_left, tf.equal(piece, largest))
            is_left = tf.logical_and(is_left, tf.logical_not(is_chosen))
            gradients.append(tf.where(is_chosen, of_largest, tf.zeros_like(of_largest)))
        return gradients

    return largest, gradient


def _slices(
    inputs: Any, size: Sequence[int], strides: Sequence[int], padding: str, outside: float
) -> list[Any]:
    """The values at each place of a window, row by row, over all windows of pictures."""
    lengths = [int(length) for length in inputs.shape[1:3]]
    channels = inputs.shape[3]
    if tuple(size) == tuple(strides) and not any(map(operator.mod, lengths, size)):
        # Windows that do not overlap are a reshape, whose gradient needs no sum.
        (rows, columns), (high, wide) = lengths, size
        windows = tf.reshape(inputs, [-1, rows // high, high, columns // wide, wide, channels])
        return [place for row in tf.unstack(windows, axis=2) for place in tf.unstack(row, axis=3)]
    if padding == "same":
        paddings = []  # as TensorFlow's: even, with any remainder after
        for length, side, stride in zip(lengths, size, strides, strict=True):
            total = max((-(-length // stride) - 1) * stride + side - length, 0)
            paddings.append((total // 2, total - total // 2))
        inputs = tf.pad(inputs, [(0, 0), *paddings, (0, 0)], constant_values=outside)
        lengths = [length + sum(pad) for length, pad in zip(lengths, paddings, strict=True)]
    ends = [length - side + 1 for length, side in zip(lengths, size, strict=True)]
    return [
        inputs[:, row : row + ends[0] : strides[0], column : column + ends[1] : strides[1], :]
        for row in range(size[0])
        for column in range(size[1])
    ]


_LOG = logging.getLogger(__name__)
THREADS = os.cpu_count() or 1  # number of calls that run at the same time
_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class GradientInput:
    """The inputs of a gradient."""

    worker_step: int
    parameters: Vector
    statistics: Vector
    ids: Sequence[Ids] = ()  # embedding rows that the batch needs, by embedding
    rows: Sequence[Vector] = ()  # their values


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of a batch, or the mean of several."""

    loss: float
    values: Vector
    contribution: Vector  # to the statistics, see `ModelFunction.move`
    rows: Sequence[RowGradient] = ()  # gradients of embedding rows


def mean_of(gradients: Sequence[Gradient]) -> Gradient:
    """The mean of gradients; a single one is returned as it is."""
    if len(gradients) == 1:
        return gradients[0]
    tables = zip(*(gradient.rows for gradient in gradients), strict=True)
    return Gradient(
        sum(gradient.loss for gradient in gradients) / len(gradients),
        mean_vector([gradient.values for gradient in gradients]),
        mean_vector([gradient.contribution for gradient in gradients]),
        list(map(mean_of_rows, tables)),
    )


def mean_vector(vectors: Sequence[Vector]) -> Vector:
    """The mean of vectors of the same shape."""
    mean: Vector = np.mean(vectors, axis=0, dtype=np.float32)
    return mean


class GradientSource:
    """Computes the gradients of one workload, several in a call where its layers allow it.

    Batches at the same parameters share one gradient, that of their mean loss. For batches that
    each have their own parameters the call is compiled by XLA, which takes seconds. Each kind of
    call is built at first use and checked against gradients computed one at a time.

    A call with shared parameters takes `most` batches, one with individual parameters half as many;
    1 computes one gradient at a time.
    """

    def __init__(
        self, workload: Workload, data: AnyData, function: ModelFunction, most: int
    ) -> None:
        self._workload, self._data, self._function = workload, data, function
        self._feed = feed_of(data.train, workload.batch_size, most)
        self._threads = ThreadPoolExecutor(THREADS, "gradients")
        self._embeddings: EmbeddingSteps | None = None
        if function.embeddings:
            ids = trace_ids(function, workload, row_specs(data, workload.batch_size))
            self._embeddings, most = EmbeddingSteps(function.embeddings, ids), 1
        self._most = most
        self._probes = self._make_probes()
        try:
            self._single = for_threads(trace_step(function, data), THREADS)
            self._call_single(self._probes[0], 0)
        except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise workload.error(
                f"model, data and loss do not fit together: {one_line(error)}"
            ) from error

    @cached_property
    def at_once(self) -> int:
        """Number of gradients, each at its own parameters, in a call."""
        places = self._most // 2
        if places < 2:
            return 1

        def build() -> list[Gradient]:
            function = ModelFunction(self._workload, self._data, with_patches(self._function.model))
            # Already measured on the same layers.
            function.statistics_decay = self._function.statistics_decay
            gradients = tf.function(
                lambda *stacked: tf.vectorized_map(lambda own: function.gradient(*own), stacked),
                autograph=False,
                jit_compile=True,
            )

            def traced(parameters: Any, statistics: Any, *numbers_and_examples: Any) -> Any:
                batches = self._traced_batches(function, *numbers_and_examples)
                return gradients(parameters, statistics, *batches)

            self._apart = direct(concrete(traced, *self._apart_arguments(self._probes, 0, places)))
            return self._call_apart(self._probes, 0, places)

        expected = [self._call_single(probe, 0) for probe in self._probes]
        return places if self._agree(build, expected) else 1

    @cached_property
    def _share_a_call(self) -> bool:
        """Whether batches at the same parameters can be computed in one call."""
        if self._most < 2:
            return False
        function = self._function
        probes = [replace(self._probes[0], worker_step=step) for step in range(2)]

        def traced(
            parameters: Any, statistics: Any, weights: Any, *numbers_and_examples: Any
        ) -> tuple[Any, Any, Any]:
            values = unpack(parameters, function.parameters)
            with tf.GradientTape() as tape:
                tape.watch(values)
                losses, contributions = tf.vectorized_map(
                    lambda batch: function.loss(values, statistics, *batch),
                    self._traced_batches(function, *numbers_and_examples),
                )
                loss = tf.tensordot(tf.cast(weights, losses.dtype), losses, 1)
            zero = tf.UnconnectedGradients.ZERO
            gradients = tape.gradient(loss, values, unconnected_gradients=zero)
            dense = list(map(tf.convert_to_tensor, gradients))
            return loss, pack(dense), tf.tensordot(weights, contributions, 1)

        def build() -> list[Gradient]:
            arguments = self._shared_arguments(probes, 2, 0)
            self._shared = for_threads(concrete(traced, *arguments), THREADS)
            return [self._call_shared(probes, 2, 0)]

        return self._agree(build, [mean_of([self._call_single(probe, 0) for probe in probes])])

    def submit(self, pulled: Sequence[GradientInput], seed: int) -> Future[list[Gradient]]:
        """Begins to compute up to `at_once` independent gradients."""
        if self.at_once == 1:
            return self._threads.submit(lambda: [self._call_single(pulled[0], seed)])
        return self._threads.submit(self._call_apart, pulled, seed, self.at_once)

    def submit_mean(self, pulled: Sequence[GradientInput], seed: int) -> Callable[[], Gradient]:
        """Begins to compute the mean gradient of batches at the same parameters; call to wait."""
        if len(pulled) == 1 or not self._share_a_call:
            singles = [self._threads.submit(self._call_single, batch, seed) for batch in pulled]
            return lambda: mean_of([single.result() for single in singles])
        calls = [
            self._threads.submit(self._call_shared, pulled[i : i + self._most], len(pulled), seed)
            for i in range(0, len(pulled), self._most)
        ]
        return lambda: _sum_of([call.result() for call in calls])

    def wanted(self, worker_step: int, seed: int) -> list[Ids]:
        """Numbers of the embedding rows that a batch needs, for each embedding."""
        if self._embeddings is None:
            return []
        numbers = tf.constant([worker_step, seed], tf.int64)
        try:
            return self._embeddings.wanted(self._feed.rows(worker_step, seed), numbers)
        except ValueError as error:
            raise self._workload.error(str(error)) from error

    def move(self, statistics: Vector, contribution: Vector) -> Vector:
        moved: Vector = self._function.move(statistics, contribution)
        return moved

    def close(self) -> None:
        self._threads.shutdown()
        self._feed.close()

    def _agree(self, build: Callable[[], list[Gradient]], expected: Sequence[Gradient]) -> bool:
        """Whether a call for several gradients can be built and gives the expected ones."""
        try:
            with quiet_log():
                gradients = build()
            if not all(map(_is_close, gradients, expected)):
                raise ValueError("several at once differ from one at a time, as with random layers")
        except Exception as error:  # of cloning, vectorizing or compiling, by Keras or XLA
            _LOG.info(
                "workload %s: gradients are computed one at a time (%s)",
                self._workload.name,
                one_line(error),
            )
            return False
        return True

    def _make_probes(self) -> list[GradientInput]:
        random = np.random.default_rng(0)

        def small(*shape: int) -> Vector:
            return (0.05 * random.standard_normal(shape)).astype(np.float32)

        probes = []
        for step in range(2):
            parameters = small(self._function.parameters.size)
            statistics = (1 + random.random(self._function.statistics.size)).astype(np.float32)
            ids = self.wanted(step, 0)
            tables = zip(ids, self._function.embeddings, strict=True)
            rows = [small(len(wanted), table.width) for wanted, table in tables]
            probes.append(GradientInput(step, parameters, statistics, ids, rows))
        return probes

    def _call_single(self, pulled: GradientInput, seed: int) -> Gradient:
        loss, contribution, *gradients = self._single(
            tf.constant(np.concatenate([pulled.parameters, pulled.statistics])),
            *self._feed.rows(pulled.worker_step, seed),
            tf.constant([pulled.worker_step, seed], tf.int64),
            *EmbeddingSteps.arguments(pulled.ids, pulled.rows),
        )
        dense = list(map(as_array, gradients[: len(gradients) - len(pulled.ids)]))
        values = dense[0] if len(dense) == 1 else np.concatenate(dense)
        rows = EmbeddingSteps.gradients(pulled.ids, gradients[len(dense) :])
        return Gradient(float(loss), values, as_array(contribution), rows)

    def _apart_arguments(
        self, pulled: Sequence[GradientInput], seed: int, places: int
    ) -> list[Any]:
        full = _filled(pulled, places)
        return [
            tf.constant(np.stack([batch.parameters for batch in full])),
            tf.constant(np.stack([batch.statistics for batch in full])),
            *self._batch_arguments(pulled, seed, places),
        ]

    def _call_apart(
        self, pulled: Sequence[GradientInput], seed: int, places: int
    ) -> list[Gradient]:
        results = map(as_array, self._apart(*self._apart_arguments(pulled, seed, places)))
        gradients = [Gradient(float(loss), *own) for loss, *own in zip(*results, strict=True)]
        return gradients[: len(pulled)]

    def _shared_arguments(
        self, pulled: Sequence[GradientInput], count: int, seed: int
    ) -> list[Any]:
        weights = np.zeros(self._most, np.float32)
        weights[: len(pulled)] = 1 / count
        first = tf.constant(pulled[0].parameters), tf.constant(pulled[0].statistics)
        return [*first, tf.constant(weights), *self._batch_arguments(pulled, seed, self._most)]

    def _batch_arguments(
        self, pulled: Sequence[GradientInput], seed: int, places: int
    ) -> list[Any]:
        """The numbers of the batches and the seed as one tensor, then the examples."""
        steps = _filled([batch.worker_step for batch in pulled], places)
        rows = [self._feed.rows(batch.worker_step, seed) for batch in pulled]
        # Examples in memory are the same tensors for all batches.
        rows = rows[:1] if isinstance(self._feed, HeldFeed) else _filled(rows, places)
        return [tf.constant([*steps, seed], tf.int64), *chain(*rows)]

    def _traced_batches(self, function: ModelFunction, numbers: Any, *examples: Any) -> Any:
        *steps, seed = tf.unstack(numbers)
        width = len(row_specs(self._data, function.batch_size))
        rows = [examples[start : start + width] for start in range(0, len(examples), width)]
        batches = function.batches(rows, steps, seed)
        return tf.nest.map_structure(lambda *tensors: tf.stack(tensors), *batches)

    def _call_shared(self, pulled: Sequence[GradientInput], count: int, seed: int) -> Gradient:
        """The share of these batches in the mean of `count` gradients."""
        results = self._shared(*self._shared_arguments(pulled, count, seed))
        loss, values, contribution = map(as_array, results)
        return Gradient(float(loss), values, contribution)


def _filled(values: Sequence[T], places: int) -> list[T]:
    return [*values, *[values[-1]] * (places - len(values))]


def _sum_of(gradients: Sequence[Gradient]) -> Gradient:
    if len(gradients) == 1:
        return gradients[0]
    return Gradient(
        sum(gradient.loss for gradient in gradients),
        np.add.reduce([gradient.values for gradient in gradients]),
        np.add.reduce([gradient.contribution for gradient in gradients]),
    )


def _is_close(gradient: Gradient, expected: Gradient) -> bool:
    scale = float(np.max(np.abs(expected.values))) or 1.0
    return np.allclose(gradient.values, expected.values, atol=_TOLERANCE * scale) and np.allclose(
        gradient.contribution, expected.contribution, atol=_TOLERANCE
    )


class TrainingExecutor(StepExecutor):
    """Trains for real, in virtual-time order.

    An update makes new arrays, so the parameters that a worker has pulled never change. Several
    gradients are computed at once, while events that do not need them continue.
    """

    def __init__(
        self,
        source: GradientSource,
        optimizer: Optimizer,
        update: Update,
        ahead: AheadUpdate | None,
        configuration: Configuration,
        seed: int,
        state: ModelState,
        embeddings: LocalEmbeddings,
        project: Projection | None,
    ) -> None:
        self._embeddings = embeddings
        self._project = project
        self._source = source
        self._optimizer = optimizer
        self._update = update
        self._ahead = ahead
        self._configuration = configuration
        self._seed = seed
        self._exchange = Exchange.PUSH
        self._second_since: int | None = None
        self._is_trial = False
        self.state = embeddings.load(state)
        self.loss = LossMean()
        self.is_finite = True
        self._replicas: dict[int, ModelState] = {}
        self._outer = NO_OUTER
        # By worker, if each has slots of its own: these, and the parameters that it has pulled.
        self._own: dict[int, OwnSlots] = {}
        self._pulled_parameters: dict[int, Vector] = {}
        # By worker: the inputs of its round, of a gradient not yet begun, and a begun gradient.
        self._pulled: dict[int, list[GradientInput]] = {}
        self._waiting: dict[int, GradientInput] = {}
        self._computing: dict[int, Callable[[], Gradient]] = {}
        self._in_round: dict[int, list[GradientInput]] = {}
        # By worker-step.
        self._in_buffer: dict[int, Gradient] = {}

    def restore(self, state: ModelState) -> None:
        """Continues from this state, when no step is under way."""
        self.state, self.is_finite, self.loss = self._embeddings.load(state), True, LossMean()

    def readable_state(self) -> AbstractContextManager[ModelState]:
        """The current state, valid until training continues."""
        return self._embeddings.with_embeddings(self.state)

    def kept_state(self) -> ModelState:
        return self._embeddings.kept(self.state)

    @override
    def batches(self, second_since: int | None) -> int:
        return self._configuration.batches(second_since)

    @override
    def begin(
        self,
        exchange: Exchange,
        members: Sequence[int],
        second_since: int | None,
        done: int | None = None,
        *,
        is_trial: bool = False,
    ) -> None:
        self._exchange, self._second_since = exchange, second_since
        self._is_trial = is_trial
        is_replica = exchange is Exchange.REPLICA
        self._replicas = dict.fromkeys(members, self.state) if is_replica else {}
        self._outer = first_outer_state(self.state.parameters) if is_replica else NO_OUTER
        is_own = exchange is Exchange.PUSH and self._configuration.is_own(second_since)
        is_bounded = self._configuration.bounds_steps(self.state.updates)
        updates = self._configuration.own_updates(self.state.updates, second_since, done)
        self._own = {
            worker: self._own_slots(self.state.slots, updates, is_bounded)
            for worker in (members if is_own else ())
        }

    @override
    def finish(self) -> None:
        if self._replicas:
            self.state = self._mean_replica()
        if self._own:
            slots = mean_vector([own.slots for own in self._own.values()])
            self.state = replace(self.state, slots=slots)

    def snapshot(self, ids: Sequence[Ids] = ()) -> tuple[Vector, ...]:
        if not self._replicas:
            rows = self._embeddings.shard.pull(ids)
            return self._tested(self.state), self.state.statistics, *rows
        mean = self._mean_replica()
        return self._tested(mean), mean.statistics

    def _tested(self, state: ModelState) -> Vector:
        is_average = self._optimizer.has_averages and state.updates
        return state.slots[: len(state.parameters)] if is_average else state.parameters

    @override
    def leave(self, worker: int) -> None:
        for by_worker in (self._pulled, self._waiting, self._computing):
            by_worker.pop(worker, None)
        replica = self._replicas.pop(worker, None)
        if replica is not None and not self._replicas:
            # For the first worker that comes back.
            self.state = replica
        if len(self._own) > 1:
            self._own.pop(worker, None)

    @override
    def come_back(self, worker: int) -> None:
        if self._own:
            self._own[worker] = self._own_slots(self._optimizer.initial_slots(), 0)
        if self._exchange is Exchange.REPLICA:
            self._replicas[worker] = self._mean_replica() if self._replicas else self.state

    @override
    def pull(self, ticket: Ticket) -> None:
        worker = ticket.worker
        state = self._replicas[worker] if self._exchange is Exchange.REPLICA else self.state
        self._pulled_parameters[worker] = state.parameters
        pulled = []
        for step in ticket.worker_steps:
            ids = self._source.wanted(step, self._seed)
            rows = self._embeddings.shard.pull(ids)
            pulled.append(GradientInput(step, state.parameters, state.statistics, ids, rows))
        if self._exchange is Exchange.ROUND:
            # One gradient for the whole round, once its members are known.
            self._pulled[worker] = pulled
        elif len(pulled) > 1:
            self._computing[worker] = self._source.submit_mean(pulled, self._seed)
        else:
            self._waiting[worker] = pulled[0]
            if len(self._waiting) == self._source.at_once:
                self._submit(list(self._waiting))

    @override
    def push(self, ticket: Ticket) -> ReplicaStep | None:
        worker, step = ticket.worker, ticket.worker_step
        if self._exchange is Exchange.ROUND:
            self._in_round[worker] = self._pulled.pop(worker)
            return None
        if worker in self._waiting:
            # Fill the call with others that wait.
            others = [other for other in self._waiting if other != worker]
            self._submit([worker, *others][: self._source.at_once])
        gradient = self._computing.pop(worker)()
        self._count(gradient)
        if self._exchange is Exchange.BUFFER:
            self._in_buffer[step] = gradient
            return None
        # A replica moves as far as a round does; see `Exchange.gradients_per_update`.
        rate = self._configuration.rate(step, len(self._replicas) or ticket.batches)
        if self._exchange is Exchange.REPLICA:
            own_rate = self._configuration.rate(step, 1) if self._is_trial else rate
            self._replicas[worker] = self._moved(self._replicas[worker], gradient, own_rate, step)
            return ReplicaStep(squared_length(gradient.values), rate)
        if self._own:
            self._add(worker, gradient, rate, step)
        else:
            self._apply(gradient, rate, step)
        return None

    @override
    def join(self, group: Group, worker_step: int) -> None:
        if self._exchange is Exchange.REPLICA:
            replicas = [self._replicas[worker] for worker in group.workers]
            self._replicas |= zip(group.workers, self._joined(replicas, group.after), strict=True)
            return
        if self._exchange is Exchange.ROUND:
            pulled = [*chain(*map(self._in_round.pop, group.workers))]
            mean = self._source.submit_mean(pulled, self._seed)()
            self._count(mean, len(group.workers))
        else:
            for step in group.stale:
                self._in_buffer[step] = _without_weight(self._in_buffer[step])
            mean = mean_of([self._in_buffer.pop(step) for step in group.worker_steps])
        rate = self._configuration.rate(worker_step, len(group.workers))
        self._apply(mean, rate, worker_step)

    def _count(self, gradient: Gradient, pushes: int = 1) -> None:
        self.loss.add(gradient.loss, pushes)
        self.is_finite = self.is_finite and math.isfinite(gradient.loss)

    def _apply(self, gradient: Gradient, rate: float, step: int) -> None:
        self.state = self._moved(self.state, gradient, rate, step)
        momentum = self._configuration.momentum(step, self._second_since)
        self._embeddings.shard.push([gradient.rows], rate, momentum)

    def _own_slots(self, slots: Vector, updates: int, is_bounded: bool = False) -> OwnSlots:
        most_raise = self._configuration.most_raise
        return OwnSlots(
            slots.copy(), updates, self._ahead, is_bounded=is_bounded, most_raise=most_raise
        )

    def _add(self, worker: int, gradient: Gradient, rate: float, step: int) -> None:
        momentum = self._configuration.momentum(step, self._second_since)
        change, before = gradient.values.copy(), self.state
        rate = self._own[worker].turn(self._pulled_parameters[worker], change, rate, momentum)
        with np.errstate(over="ignore", invalid="ignore"):
            parameters = self._projected(before.parameters + change)
        statistics = self._source.move(before.statistics, gradient.contribution)
        self.state = ModelState(parameters, before.slots, statistics, before.updates + 1)
        self._embeddings.shard.push([gradient.rows], rate, momentum, self._configuration.workers)

    def _projected(self, parameters: Vector) -> Vector:
        if self._project is not None:
            self._project(parameters)
        return parameters

    def _mean_model(self, states: Sequence[ModelState]) -> tuple[Vector, Vector]:
        parameters = self._projected(mean_vector([state.parameters for state in states]))
        return parameters, mean_vector([state.statistics for state in states])

    def _joined(self, replicas: Sequence[ModelState], after: AfterAverage) -> list[ModelState]:
        parameters, statistics = self._mean_model(replicas)
        changed: dict[str, Any] = {"parameters": parameters, "statistics": statistics}
        if after is AfterAverage.AVERAGED:
            changed["slots"] = mean_vector([replica.slots for replica in replicas])
        elif after is AfterAverage.ZEROED:
            changed |= {"slots": np.zeros_like(replicas[0].slots), "updates": 0}
        elif after is AfterAverage.NESTEROV:
            outer_step(self._outer, parameters)
            rejoin(self._outer, self._projected(parameters))
        return [replace(replica, **changed) for replica in replicas]

    def _mean_replica(self) -> ModelState:
        replicas = list(self._replicas.values())
        parameters, statistics = self._mean_model(replicas)
        slots = mean_vector([replica.slots for replica in replicas])
        updates = max(replica.updates for replica in replicas)
        return ModelState(parameters, slots, statistics, updates)

    def _moved(self, state: ModelState, gradient: Gradient, rate: float, step: int) -> ModelState:
        momentum = self._configuration.momentum(step, self._second_since)
        parameters, slots = np.empty_like(state.parameters), state.slots.copy()
        own = state.parameters, parameters, slots, state.updates
        self._update(*own, [gradient.values], rate, momentum)
        statistics = self._source.move(state.statistics, gradient.contribution)
        return ModelState(parameters, slots, statistics, state.updates + 1)

    def _submit(self, workers: Sequence[int]) -> None:
        pulled = [self._waiting.pop(worker) for worker in workers]
        call = self._source.submit(pulled, self._seed)
        for position, worker in enumerate(workers):
            self._computing[worker] = partial(lambda place: call.result()[place], position)


def _without_weight(gradient: Gradient) -> Gradient:
    """Its batch still moves the statistics."""
    rows = [table.none for table in gradient.rows]
    return replace(gradient, values=np.zeros_like(gradient.values), rows=rows)
