"""The worker: computes steps on shared parameters or on a replica of its own."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from syncswitch.storage.errors import UserError, WorkloadError, one_line
from syncswitch.trainers.cluster.exchange.parameter_server import ParameterServer
from syncswitch.trainers.cluster.exchange.plans import (
    Caller,
    Hold,
    Push,
    Sizes,
    StepError,
    Task,
    WorkerPlan,
)
from syncswitch.trainers.cluster.exchange.remote import Piece, RemoteServers
from syncswitch.trainers.cluster.exchange.vectors import aligned
from syncswitch.trainers.model.embeddings import Ids, RowGradient, mean_of_rows
from syncswitch.trainers.model.feed import Feed
from syncswitch.trainers.model.function import EmbeddingSteps, as_array, as_tensor
from syncswitch.trainers.model.layout import ModelState, Vector, squared_length
from syncswitch.trainers.model.own_slots import AheadUpdate, OwnSlots
from syncswitch.trainers.model.tensorflow_api import tf
from syncswitch.trainers.model.updates import Projection, Update, mean_of, outer_step, rejoin
from syncswitch.trainers.protocols import AfterAverage, Exchange

_NO_LIMIT = nullcontext()
_WHERE = ('File "', "<stack traces unavailable>")
# Names that TensorFlow made up for nodes and functions.
_MARKS = re.compile(r"\[\[.*?\]\]|\{\{.*?\}\}|\[Op:.*?\]")
_LONGEST_REASON = 300


class Worker:
    """One worker. Only one thread may call it, except for `fetch`.

    `computed` is the memory for its results, shape [P + S]; for `decay` see `ModelFunction.move`.
    The context `computing` is entered for each gradient, before parameters are pulled.
    """

    def __init__(
        self,
        sizes: Sizes,
        step: Callable[..., Sequence[Any]],
        feed: Feed,
        computed: Vector,
        decay: Vector,
        new_update: Callable[[], Update],
        computing: AbstractContextManager[object] = _NO_LIMIT,
        embeddings: EmbeddingSteps | None = None,
        project: Projection | None = None,
        new_ahead: Callable[[], AheadUpdate | None] = lambda: None,
    ) -> None:
        self._server: tuple[Caller, ParameterServer | RemoteServers] | None = None
        self._sizes = sizes
        self._step = step
        self._feed = feed
        self._computed = computed
        self._decay = decay
        self._new_update = new_update
        self._new_ahead = new_ahead
        self._ahead: AheadUpdate | None = None
        self._computing = computing
        self._embeddings = embeddings
        self._project = project
        # The gradients of embedding rows in the last step.
        self._row_gradients: list[RowGradient] = []
        self._moving = threading.Lock()
        self._update: Update | None = None
        self._own: OwnSlots | None = None
        self._updates = 0
        self._model = self._mean = self._slots = self._mean_slots = np.zeros(0, np.float32)
        self._outer = self._model

    def join(self, caller: Caller, server: ParameterServer | RemoteServers) -> None:
        self._server = caller, server

    def step(self, task: Task) -> Push:
        """Does a task; returns once the gradient has been received."""
        if task.exchange is Exchange.REPLICA:
            return self._step_replica(task)
        assert self._server is not None
        caller, server = self._server
        start = time.perf_counter()
        with self._computing:
            waited_seconds = time.perf_counter() - start
            batches = [self._batch(microstep) for microstep in task.microsteps]
            # The rows of each table that any of the batches needs.
            ids = batches[0].ids
            if len(batches) > 1:
                tables = zip(*(batch.ids for batch in batches), strict=True)
                ids = [np.unique(np.concatenate(of_batches)) for of_batches in tables]
            pulled = server.pull(caller, ids)
            loss, busy_seconds = self._compute_all(pulled.model, batches, ids, pulled.rows)
            if task.own_workers:
                assert self._own is not None
                size = self._sizes.parameters
                with self._moving:
                    own, change = pulled.model[:size], self._computed[:size]
                    rate = self._own.turn(own, change, task.rate, task.momentum)
                    task = replace(task, rate=rate)  # at which rows move
        held_seconds = _wait(task.hold, busy_seconds)
        compute_seconds = waited_seconds + busy_seconds + held_seconds
        pushed = server.push(caller, task, self._computed, self._row_gradients)
        return Push(loss, pulled.updates, pushed, compute_seconds=compute_seconds)

    def take(self, state: ModelState, outer: Vector) -> None:
        """Replaces the worker's replica by a copy of this state.

        `outer` is the outer state, see `outer_step`; empty without outer steps.
        """
        if self._update is None:
            self._update = self._new_update()
            self._model, self._mean = aligned(self._sizes.model), aligned(self._sizes.model)
            self._slots = aligned(self._sizes.slots)
        with self._moving:
            self._model[: self._sizes.parameters] = state.parameters
            self._model[self._sizes.parameters :] = state.statistics
            self._slots[:] = state.slots
            self._updates = state.updates
            self._outer = outer.copy()

    def take_slots(self, slots: Vector, updates: int, is_bounded: bool, most_raise: float) -> None:
        """Begins with slots of its own, of an optimizer after this number of updates.

        For `is_bounded` and `most_raise` see `OwnSlots`.
        """
        with self._moving:
            if self._slots.size != slots.size:
                self._slots = aligned(slots.size)
            self._slots[:] = slots
            if self._ahead is None:
                self._ahead = self._new_ahead()
            self._own = OwnSlots(
                self._slots, updates, self._ahead, is_bounded=is_bounded, most_raise=most_raise
            )

    def reduce(self, position: int, peers: Sequence[Any], after: AfterAverage) -> None:
        """Computes this worker's piece of the mean of a group's replicas.

        `peers` is the group in ascending order, `Worker`s or `RemotePeer`s, with this one at
        `position`.
        """
        for _, own, of_all in self._averaged(after):
            start, stop = _piece(len(of_all), position, len(peers))
            of_all[start:stop] = mean_of([peer.fetch(own, start, stop) for peer in peers])

    def gather(self, position: int, peers: Sequence[Any], after: AfterAverage) -> None:
        """Fetches the pieces of the mean that the others in a group computed; see `reduce`."""
        for mean, _, of_all in self._averaged(after):
            for number, peer in enumerate(peers):
                if number != position:
                    start, stop = _piece(len(of_all), number, len(peers))
                    of_all[start:stop] = peer.fetch(mean, start, stop)

    def commit(self, after: AfterAverage) -> None:
        """Makes the mean its parameters and statistics, and sees to the slots."""
        parameters = self._mean[: self._sizes.parameters]
        if after is AfterAverage.NESTEROV:
            outer_step(self._outer, parameters)
        if self._project is not None:  # a mean may be where no replica is
            self._project(parameters)
        with self._moving:
            self._model, self._mean = self._mean, self._model
            if after is AfterAverage.AVERAGED:
                self._slots, self._mean_slots = self._mean_slots, self._slots
            elif after is AfterAverage.ZEROED:
                self._slots[:] = 0
                self._updates = 0
            elif after is AfterAverage.NESTEROV:
                rejoin(self._outer, parameters)

    def fetch(self, what: Piece, start: int, stop: int) -> Vector:
        """Copies a piece of a vector that it holds; may be called during a step."""
        with self._moving:
            held: dict[Piece, Vector] = {
                "model": self._model,
                "mean": self._mean,
                "slots": self._slots,
                "mean slots": self._mean_slots,
                "outer": self._outer,
            }
            return held[what][start:stop].copy()

    def _averaged(self, after: AfterAverage) -> list[tuple[Piece, Piece, Vector]]:
        """Returns what is averaged: the name of its mean, its own, and the memory of the mean."""
        vectors: list[tuple[Piece, Piece, Vector]] = [("mean", "model", self._mean)]
        if after is AfterAverage.AVERAGED:
            if self._mean_slots.size != self._slots.size:
                self._mean_slots = aligned(self._slots.size)
            vectors.append(("mean slots", "slots", self._mean_slots))
        return vectors

    def _step_replica(self, task: Task) -> Push:
        assert self._update is not None
        start = time.perf_counter()
        with self._computing:
            loss, busy_seconds = self._compute(self._model, task, self._examples(task))
        _wait(task.hold, busy_seconds)
        compute_seconds = time.perf_counter() - start
        size, computed = self._sizes.parameters, self._computed
        gradient_square = squared_length(computed[:size])
        with self._moving:
            parameters, statistics = self._model[:size], self._model[size:]
            self._update(
                parameters,
                parameters,
                self._slots,
                self._updates,
                [computed[:size]],
                task.rate,
                task.momentum,
            )
            statistics *= self._decay
            statistics += computed[size:]
        self._updates += 1
        return Push(loss, 0, 0, gradient_square, compute_seconds)

    def _batch(self, task: Task) -> _Batch:
        examples = self._examples(task)
        return _Batch(task, examples, self._wanted(task, examples))

    def _compute_all(
        self, model: Vector, batches: Sequence[_Batch], ids: Sequence[Ids], rows: Sequence[Vector]
    ) -> tuple[float, float]:
        """Computes the mean results of several batches at the same parameters; see `_compute`.

        Each batch is normalized by itself and moves the statistics as it would in a round.
        """
        if len(batches) == 1:
            return self._compute(model, *batches[0], rows)
        losses, gradients, seconds = [], [], 0.0
        total = np.zeros_like(self._computed)
        # Gradients that diverge become infinite, which the loss reveals.
        with np.errstate(over="ignore", invalid="ignore"):
            for batch in batches:
                tables = zip(batch.ids, ids, rows, strict=True)
                own = [values[np.searchsorted(pulled, wanted)] for wanted, pulled, values in tables]
                loss, busy_seconds = self._compute(model, *batch, own)
                losses.append(loss)
                seconds += busy_seconds
                gradients.append(self._row_gradients)
                total += self._computed
            np.divide(total, np.float32(len(batches)), out=self._computed)
        self._row_gradients = [
            mean_of_rows(of_embeddings) for of_embeddings in zip(*gradients, strict=True)
        ]
        return sum(losses) / len(losses), seconds

    def _examples(self, task: Task) -> Sequence[Any]:
        try:
            return self._feed.rows(task.worker_step, task.seed)
        except WorkloadError as error:
            raise StepError(str(error)) from error

    def _wanted(self, task: Task, examples: Sequence[Any]) -> list[Ids]:
        if self._embeddings is None:
            return []
        try:
            return self._embeddings.wanted(examples, _numbers(task))
        except ValueError as error:
            raise StepError(str(error)) from error

    def _compute(
        self,
        model: Vector,
        task: Task,
        examples: Sequence[Any],
        ids: Sequence[Ids] = (),
        rows: Sequence[Vector] = (),
    ) -> tuple[float, float]:
        """Computes a batch into `_computed` and `_row_gradients`; returns its loss and seconds."""
        start = time.perf_counter()
        given = [*examples, _numbers(task), *EmbeddingSteps.arguments(ids, rows)]
        try:
            loss, contribution, *gradients = self._step(as_tensor(model), *given)
        except tf.errors.OpError as error:
            raise StepError(_reason(error)) from error
        dense = len(gradients) - len(ids)
        self._row_gradients = EmbeddingSteps.gradients(ids, gradients[dense:])
        del gradients[dense:]
        computed, place = self._computed, 0
        for gradient in map(as_array, gradients):
            computed[place : place + gradient.size] = gradient
            place += gradient.size
        computed[place:] = as_array(contribution)
        return float(loss), time.perf_counter() - start


def _piece(size: int, position: int, pieces: int) -> tuple[int, int]:
    return size * position // pieces, size * (position + 1) // pieces


class _Batch(NamedTuple):
    task: Task
    examples: Sequence[Any]
    ids: Sequence[Ids]


def _numbers(task: Task) -> Any:
    # Making a TensorFlow constant of them would take a fifth of a small step.
    numbers = aligned(4).view(np.int64)
    numbers[:] = task.worker_step, task.seed
    return as_tensor(numbers)


def _reason(error: Exception) -> str:
    """Shortens TensorFlow's message and drops the traceback at its beginning."""
    lines = str(error).splitlines()
    told = [number for number, line in enumerate(lines) if line.lstrip().startswith(_WHERE)]
    text = _MARKS.sub("", " ".join(lines[told[-1] + 1 if told else 0 :]))
    text = " ".join(text.split())
    return f"{type(error).__name__}: {text[:_LONGEST_REASON]}"


def _wait(hold: Hold, busy_seconds: float) -> float:
    seconds = max(0.0, hold.seconds + (hold.slowdown - 1.0) * busy_seconds)
    if seconds > 0:
        time.sleep(seconds)
    return seconds


_LOG = logging.getLogger(__name__)


def step_of(plan: WorkerPlan, feed: Feed) -> Callable[..., Sequence[Any]]:
    """Returns the function that computes a worker's steps; compiled for a GPU where possible."""
    step = plan.step.restored()
    if plan.compiled is None:
        return step
    if not tf.config.list_logical_devices("GPU"):
        raise UserError(
            "this worker is to have a GPU, and sees none; look at its driver and its"
            " CUDA_VISIBLE_DEVICES, install TensorFlow with CUDA (pip install"
            " tensorflow[and-cuda]), or give workers no GPUs",
            code="cluster-unusable",
        )
    return compiled_or(step, plan, feed)


def compiled_or(
    step: Callable[..., Sequence[Any]], plan: WorkerPlan, feed: Feed
) -> Callable[..., Any]:
    """Returns the compiled step if XLA can compile it, else the plain one."""
    assert plan.compiled is not None
    model = np.zeros(plan.sizes.model, np.float32)
    try:
        compiled = plan.compiled.restored()
        as_array(compiled(model, *feed.rows(0, 0), np.zeros(2, np.int64))[0])
    except Exception as error:  # XLA fails in many ways
        _LOG.warning("the step is not compiled: %s", one_line(error))
        return step
    return compiled
