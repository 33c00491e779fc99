"""The state that workers share, and what each of them may do to it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from syncswitch.trainers.cluster.exchange.memory import aligned
from syncswitch.trainers.cluster.exchange.update import Update, mean_of
from syncswitch.trainers.model.embeddings.shard import (
    NO_EMBEDDINGS,
    EmbeddingShard,
    Ids,
    RowGradient,
    ShardPlan,
)
from syncswitch.trainers.model.layout import ModelState, Vector

RowGradients = Sequence[RowGradient]
"""One for each embedding table."""


class Computed(NamedTuple):
    """What a worker has computed.

    Attributes:
        vector: Gradient, then contribution to the statistics, shape [P + S].
        rows: Gradients of embeddings' rows.
    """

    vector: Vector
    rows: RowGradients = ()


class GradientBuffer:
    """Copies by worker-step; memory is used again."""

    def __init__(self) -> None:
        self._kept: dict[int, Computed] = {}
        self._spare: list[Vector] = []

    def clear(self) -> None:
        """Forgets all of it."""
        self._kept.clear()

    def keep(self, worker_step: int, computed: Computed) -> None:
        """Copies what was computed; made again, it is replaced."""
        if worker_step in self._kept:
            vector = self._kept[worker_step].vector
        else:
            vector = self._spare.pop() if self._spare else aligned(computed.vector.size)
        vector[:] = computed.vector
        self._kept[worker_step] = Computed(vector, computed.rows)

    def take(
        self, worker_steps: Sequence[int], stale: Sequence[int], parameters: int
    ) -> list[Computed]:
        """Takes these out, to be given back.

        Args:
            worker_steps: Under which they are kept.
            stale: Those of them whose gradients become zero.
            parameters: P.
        """
        for worker_step in stale:
            vector, rows = self._kept[worker_step]
            vector[:parameters] = 0.0
            self._kept[worker_step] = Computed(vector, [one.none for one in rows])
        return [self._kept.pop(worker_step) for worker_step in worker_steps]

    def give_back(self, taken: Sequence[Computed]) -> None:
        """Nobody needs these any more."""
        self._spare += [one.vector for one in taken]


class FencedError(Exception):
    """Another process has taken this worker's place: nothing that it says counts any more."""


@dataclass(frozen=True)
class Sizes:
    """Lengths of the flat vectors of a training."""

    parameters: int
    statistics: int
    slots: int

    @property
    def model(self) -> int:
        """Length of what a worker pulls: parameters and statistics."""
        return self.parameters + self.statistics


class Caller(NamedTuple):
    """The worker that speaks, and which of its successive processes it is, from 0 on."""

    worker: int
    incarnation: int


class Pulled(NamedTuple):
    """What a worker computes with.

    Attributes:
        updates: Applied so far.
        buffer: Number of the buffer that holds them.
        model: The parameters and then the statistics; as they are until the worker pulls again, or
            pushes.
        rows: Those of each embedding table that it has asked for.
    """

    updates: int
    buffer: int
    model: Vector
    rows: tuple[Vector, ...] = ()


class ParameterServer:
    """Holds the state; any thread may call it.

    An update writes into another buffer than those that are being read, so that nobody waits for a
    reader and nobody sees half an update. Each push says of which process and which step it is:
    what comes from a process that was replaced is refused, and after `fence` it is known whether
    its last push was in time.

    Args:
        sizes: Of the vectors.
        workers: n.
        update: Applies gradients.
        decay: By which a batch multiplies the statistics, see `ModelFunction.move`.
        new_buffer: Makes a vector of `sizes.model`; called for each of at most n + 3.
        embeddings: Shapes and optimizer of the embeddings on this server.
    """

    def __init__(
        self,
        sizes: Sizes,
        workers: int,
        update: Update,
        decay: Vector,
        new_buffer: Callable[[], Vector],
        embeddings: ShardPlan = NO_EMBEDDINGS,
    ) -> None:
        self._sizes = sizes
        self._update = update
        self._decay = decay
        self._new_buffer = new_buffer
        self._changing = threading.Lock()
        self.embeddings = EmbeddingShard(embeddings, self._changing)
        self.buffers = [new_buffer()]
        self._current = 0
        self._slots = aligned(sizes.slots)
        self._updates = 0
        # Who reads which buffer.
        self._leases: dict[object, int] = {}
        self._incarnations = [0] * workers
        self._pushed = [-1] * workers
        self._waiting: dict[int, Computed] = {}
        self._buffer = GradientBuffer()
        self._marked: tuple[object, Vector, int] | None = None

    def load(self, state: ModelState) -> None:
        """Overwrites the state; rows of embeddings are to be loaded then."""
        with self._changing:
            target = self._free()
            np.concatenate((state.parameters, state.statistics), out=self.buffers[target])
            self._current = target
            self._slots[:] = state.slots
            self._updates = state.updates
            self.embeddings.reset(state.updates)
            self._waiting.clear()
            self._buffer.clear()

    def mark(self) -> Sequence[int]:
        """Remembers the state as it is now, for `marked`.

        Returns:
            The number of each worker's last push that was taken in.
        """
        with self._changing:
            if self._marked is not None:
                self._leases.pop(self._marked[0])
            # The slots change in place; the buffer stays as it is while it is held.
            self._marked = self._lease(), self._slots.copy(), self._updates
            self.embeddings.mark()
            return list(self._pushed)

    def marked(self) -> ModelState:
        """A copy of the state at the last `mark`; called once for each."""
        with self._changing:
            assert self._marked is not None
            (holder, slots, updates), self._marked = self._marked, None
        parameters, statistics = self._copied(holder)
        return ModelState(parameters, slots, statistics, updates)

    def snapshot(self, ids: Sequence[Ids] = ()) -> tuple[Vector, ...]:
        """Copies of parameters and statistics, and of these rows of each embedding table."""
        with self._changing:
            holder, rows = self._lease(), self.embeddings.pull(ids)
        return *self._copied(holder), *rows

    def pull(self, caller: Caller, ids: Sequence[Ids] = ()) -> Pulled:
        """Gives a worker the buffer to read until it pushes, and the rows that it needs."""
        with self._changing:
            self._check(caller)
            self._leases[caller.worker] = self._current
            model, rows = self.buffers[self._current], self.embeddings.pull(ids)
            return Pulled(self._updates, self._current, model, rows)

    def push_update(
        self,
        caller: Caller,
        step: int,
        computed: Vector,
        rate: float,
        momentum: float,
        rows: RowGradients = (),
    ) -> int:
        """Applies what a worker has computed, see `Computed`.

        Args:
            caller: Whose.
            step: Number by which the worker's steps are told apart.
            computed: Shape [P + S].
            rate: Learning rate.
            momentum: Of the optimizer.
            rows: Of embeddings.

        Returns:
            Updates applied, this one included.

        Raises:
            FencedError: The worker was replaced; nothing has happened.
        """
        with self._changing:
            self._check(caller)
            self._leases.pop(caller.worker, None)
            self._apply([Computed(computed, rows)], rate, momentum)
            self._pushed[caller.worker] = step
            return self._updates

    def push_gradient(
        self,
        caller: Caller,
        step: int,
        computed: Vector,
        worker_step: int | None = None,
        rows: RowGradients = (),
    ) -> int:
        """Keeps what a worker has computed until it is joined with others; see `push_update`.

        For a round it is not copied, so to be left alone until then. Returns the updates applied
        so far.

        Args:
            caller: Whose.
            step: Number by which the worker's steps are told apart.
            computed: Shape [P + S].
            worker_step: For the buffer, under which a copy is kept; made again, it is replaced.
            rows: Of embeddings.
        """
        with self._changing:
            self._check(caller)
            self._leases.pop(caller.worker, None)
            if worker_step is None:
                self._waiting[caller.worker] = Computed(computed, rows)
            else:
                self._buffer.keep(worker_step, Computed(computed, rows))
            self._pushed[caller.worker] = step
            return self._updates

    def apply_round(self, workers: Sequence[int], rate: float, momentum: float) -> int:
        """Applies the mean of what these workers have pushed, in this order, as one update.

        Returns:
            Updates applied, this one included.
        """
        with self._changing:
            self._apply([self._waiting[worker] for worker in workers], rate, momentum)
            return self._updates

    def apply_buffer(
        self, worker_steps: Sequence[int], stale: Sequence[int], rate: float, momentum: float
    ) -> int:
        """Applies the mean of these gradients of the buffer, in this order, as one update.

        Args:
            worker_steps: Under which they are kept.
            stale: Those of them without weight: their gradients are zero in the mean.
            rate: Learning rate.
            momentum: Of the optimizer.

        Returns:
            Updates applied, this one included.
        """
        with self._changing:
            kept = self._buffer.take(worker_steps, stale, self._sizes.parameters)
            self._apply(kept, rate, momentum)
            self._buffer.give_back(kept)
            return self._updates

    def fence(self, worker: int) -> tuple[int, int]:
        """From now on refuses everything from the process that was this worker.

        Returns:
            Incarnation of the next one, and the last step that was pushed.
        """
        with self._changing:
            self._incarnations[worker] += 1
            self._leases.pop(worker, None)
            return self._incarnations[worker], self._pushed[worker]

    def _check(self, caller: Caller) -> None:
        if caller.incarnation != self._incarnations[caller.worker]:
            raise FencedError(f"worker {caller.worker} was replaced")

    def _apply(self, parts: Sequence[Computed], rate: float, momentum: float) -> None:
        target = self._free()
        size = self._sizes.parameters
        before, after = self.buffers[self._current], self.buffers[target]
        computed = [one.vector for one in parts]
        gradients = [one[:size] for one in computed]
        self._update(
            before[:size], after[:size], self._slots, self._updates, gradients, rate, momentum
        )
        if self._sizes.statistics:
            after[size:] = self._decay * before[size:] + mean_of([one[size:] for one in computed])
        self.embeddings.push([one.rows for one in parts], rate, momentum)
        self._current = target
        self._updates += 1

    def _free(self) -> int:
        """A buffer that nobody reads."""
        taken = {self._current, *self._leases.values()}
        for number in range(len(self.buffers)):
            if number not in taken:
                return number
        self.buffers.append(self._new_buffer())
        return len(self.buffers) - 1

    def _lease(self) -> object:
        holder = object()
        self._leases[holder] = self._current
        return holder

    def _copied(self, holder: object) -> tuple[Vector, Vector]:
        """Copies of a buffer that is held, which is given back then."""
        copied, size = self.buffers[self._leases[holder]].copy(), self._sizes.parameters
        with self._changing:
            del self._leases[holder]
        return copied[:size], copied[size:]
