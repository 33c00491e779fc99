"""Computes the steps of one worker, on shared parameters or on a replica of its own."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from syncswitch.storage.errors import UserError, WorkloadError, one_line
from syncswitch.trainers.cluster.exchange.parameter_server import Caller, ParameterServer, Sizes
from syncswitch.trainers.cluster.exchange.plans import Hold, Push, StepError, Task, WorkerPlan
from syncswitch.trainers.cluster.exchange.remote import RemoteServers
from syncswitch.trainers.cluster.exchange.vectors import Update, aligned, mean_of
from syncswitch.trainers.model.batches.feed import Feed
from syncswitch.trainers.model.embeddings.shard import Ids, RowGradient, mean_of_rows
from syncswitch.trainers.model.layout import ModelState, Vector
from syncswitch.trainers.model.steps import EmbeddingSteps, as_array, as_tensor
from syncswitch.trainers.model.tensorflow_api import tf
from syncswitch.trainers.protocols import Exchange

_NO_LIMIT = nullcontext()
_WHERE = ('File "', "<stack traces unavailable>")
# Names of nodes and functions, which nobody has given them.
_MARKS = re.compile(r"\[\[.*?\]\]|\{\{.*?\}\}|\[Op:.*?\]")
_LONGEST_REASON = 300


class Worker:
    """One worker. One thread calls it, but for `fetch`.

    Args:
        sizes: Lengths of the vectors.
        step: See `trace_step`.
        feed: Gives the training examples.
        computed: Where it puts what it has computed, shape [P + S].
        decay: By which a batch multiplies the statistics, see `ModelFunction.move`.
        new_update: Makes the update of its replica.
        computing: Is entered for each gradient, from before its parameters are pulled.
        embeddings: Steps with embeddings, if there are any.
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
    ) -> None:
        self._server: tuple[Caller, ParameterServer | RemoteServers] | None = None
        self._sizes = sizes
        self._step = step
        self._feed = feed
        self._computed = computed
        self._decay = decay
        self._new_update = new_update
        self._computing = computing
        self._embeddings = embeddings
        # Of the rows of the last step.
        self._row_gradients: list[RowGradient] = []
        self._moving = threading.Lock()
        self._update: Update | None = None
        self._updates = 0
        self._model = self._mean = self._slots = np.zeros(0, np.float32)

    def join(self, caller: Caller, server: ParameterServer | RemoteServers) -> None:
        """Trains what this server, or all of them, hold; `caller` says which worker it is there."""
        self._server = caller, server

    def step(self, task: Task) -> Push:
        """Does one worker-step, or several at once; returns when it has been taken in."""
        if task.exchange is Exchange.REPLICA:
            return Push(self._step_replica(task), 0, 0)
        assert self._server is not None
        hold, (caller, server) = task.hold, self._server
        with self._computing:
            parts = [self._part(one) for one in task.parts]
            ids = parts[0].ids if len(parts) == 1 else _union([part.ids for part in parts])
            pulled = server.pull(caller, *([ids] if ids else []))
            loss, busy_seconds = self._compute_all(pulled.model, parts, ids, pulled.rows)
        more: dict[str, Any] = {"rows": self._row_gradients} if ids else {}
        _wait(hold, busy_seconds)
        if task.exchange is Exchange.ROUND:
            pushed = server.push_gradient(caller, task.number, self._computed, **more)
        elif task.exchange is Exchange.BUFFER:
            pushed = server.push_gradient(
                caller, task.number, self._computed, task.worker_step, **more
            )
        else:
            # Only of several parameter servers can some have it.
            if task.taken:
                more["taken"] = task.taken
            pushed = server.push_update(
                caller, task.number, self._computed, task.rate, task.momentum, **more
            )
        return Push(loss, pulled.updates, pushed)

    def take(self, state: ModelState) -> None:
        """Makes a replica of the worker's own of this state."""
        if self._update is None:
            self._update = self._new_update()
            self._model, self._mean = aligned(self._sizes.model), aligned(self._sizes.model)
            self._slots = aligned(self._sizes.slots)
        with self._moving:
            self._model[: self._sizes.parameters] = state.parameters
            self._model[self._sizes.parameters :] = state.statistics
            self._slots[:] = state.slots
            self._updates = state.updates

    def reduce(self, position: int, peers: Sequence[Any]) -> None:
        """Computes this worker's piece of the mean of a group's replicas.

        Args:
            position: Position of this worker in the group.
            peers: The group, in ascending order: workers, or `RemotePeer`s.
        """
        start, stop = self._piece(position, len(peers))
        self._mean[start:stop] = mean_of([peer.fetch("model", start, stop) for peer in peers])

    def gather(self, position: int, peers: Sequence[Any]) -> None:
        """Fetches the pieces of the mean that the others of a group have computed; see `reduce`."""
        for number, peer in enumerate(peers):
            if number != position:
                start, stop = self._piece(number, len(peers))
                self._mean[start:stop] = peer.fetch("mean", start, stop)

    def commit(self) -> None:
        """Takes the mean for its parameters and statistics; slots stay local."""
        with self._moving:
            self._model, self._mean = self._mean, self._model

    def fetch(self, what: str, start: int, stop: int) -> Vector:
        """A copy of a piece of what it holds, for others.

        Args:
            what: `model`, `mean` or `slots`.
            start: Start of the piece.
            stop: End of the piece.
        """
        with self._moving:
            held = {"model": self._model, "mean": self._mean, "slots": self._slots}[what]
            return held[start:stop].copy()

    def _piece(self, position: int, pieces: int) -> tuple[int, int]:
        size = self._sizes.model
        return size * position // pieces, size * (position + 1) // pieces

    def _step_replica(self, task: Task) -> float:
        assert self._update is not None
        with self._computing:
            loss, busy_seconds = self._compute(self._model, task, self._examples(task))
        _wait(task.hold, busy_seconds)
        size, computed = self._sizes.parameters, self._computed
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
        return loss

    def _part(self, task: Task) -> _Part:
        examples = self._examples(task)
        return _Part(task, examples, self._wanted(task, examples))

    def _compute_all(
        self, model: Vector, parts: Sequence[_Part], ids: Sequence[Ids], rows: Sequence[Vector]
    ) -> tuple[float, float]:
        """As `_compute`, of several batches at the same parameters: the means of their results.

        A batch moves the statistics as it does in a round, where it is normalised by itself too.
        """
        (task, examples, own), *others = parts
        if not others:
            return self._compute(model, task, examples, own, rows)
        losses, gradients, seconds = [], [], 0.0
        total = np.zeros_like(self._computed)
        # What diverges becomes infinite, and is noticed by its loss.
        with np.errstate(over="ignore", invalid="ignore"):
            for part in parts:
                loss, busy_seconds = self._compute(model, *part, _rows_of(part.ids, ids, rows))
                losses.append(loss)
                seconds += busy_seconds
                gradients.append(self._row_gradients)
                total += self._computed
            np.divide(total, np.float32(len(parts)), out=self._computed)
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
        """Rows of embeddings that a step needs."""
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
        """Loss of a batch, and the seconds that it took.

        Its gradients and contribution are in `_computed` and `_row_gradients` then.
        """
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
        for part in map(as_array, gradients):
            computed[place : place + part.size] = part
            place += part.size
        computed[place:] = as_array(contribution)
        return float(loss), time.perf_counter() - start


class _Part(NamedTuple):
    """A batch of a task, and the rows of embeddings that it needs."""

    task: Task
    examples: Sequence[Any]
    ids: Sequence[Ids]


def _union(wanted: Sequence[Sequence[Ids]]) -> list[Ids]:
    """Rows of each table that some batch needs."""
    return [np.unique(np.concatenate(of_embeddings)) for of_embeddings in zip(*wanted, strict=True)]


def _rows_of(wanted: Sequence[Ids], ids: Sequence[Ids], rows: Sequence[Vector]) -> list[Vector]:
    """Those of one batch among these."""
    embeddings = zip(wanted, ids, rows, strict=True)
    return [values[np.searchsorted(known, own)] for own, known, values in embeddings]


def _numbers(task: Task) -> Any:
    # To have TensorFlow make a constant of them takes a fifth of a small step.
    numbers = aligned(4).view(np.int64)
    numbers[:] = task.worker_step, task.seed
    return as_tensor(numbers)


def _reason(error: Exception) -> str:
    """TensorFlow's message without the traceback, with which it begins, and at length."""
    lines = str(error).splitlines()
    told = [number for number, line in enumerate(lines) if line.lstrip().startswith(_WHERE)]
    text = _MARKS.sub("", " ".join(lines[told[-1] + 1 if told else 0 :]))
    text = " ".join(text.split())
    return f"{type(error).__name__}: {text[:_LONGEST_REASON]}"


def _wait(hold: Hold, busy_seconds: float) -> None:
    seconds = hold.seconds + (hold.slowdown - 1.0) * busy_seconds
    if seconds > 0:
        time.sleep(seconds)


_LOG = logging.getLogger(__name__)


def step_of(plan: WorkerPlan, feed: Feed) -> Callable[..., Sequence[Any]]:
    """The function for a worker's steps; compiled for a GPU, where that is possible.

    Raises:
        UserError: There is no GPU.
    """
    step = plan.step.restored()
    if plan.compiled is None:
        return step
    if not tf.config.list_logical_devices("GPU"):
        raise UserError(
            "--gpus-per-worker: this worker sees no GPU; look at its driver and its"
            " CUDA_VISIBLE_DEVICES, install TensorFlow with CUDA (pip install"
            " tensorflow[and-cuda]), or use --gpus-per-worker 0"
        )
    return compiled_or(step, plan, feed)


def compiled_or(
    step: Callable[..., Sequence[Any]], plan: WorkerPlan, feed: Feed
) -> Callable[..., Any]:
    """The compiled step, if its results can be had; the plain one otherwise."""
    assert plan.compiled is not None
    model = np.zeros(plan.sizes.model, np.float32)
    try:
        compiled = plan.compiled.restored()
        found = compiled(model, *feed.rows(0, 0), np.zeros(2, np.int64))
        as_array(found[0])
    except Exception as error:  # XLA says in many ways that it cannot
        _LOG.warning("the step is not compiled: %s", one_line(error))
        return step
    return compiled
