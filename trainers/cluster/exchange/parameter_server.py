"""The parameter server: the state that workers share, and the updates of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from syncswitch.trainers.cluster.exchange.plans import Caller, RowGradients, Sizes, Task
from syncswitch.trainers.cluster.exchange.vectors import aligned
from syncswitch.trainers.model.embeddings import NO_EMBEDDINGS, EmbeddingShard, Ids, ShardPlan
from syncswitch.trainers.model.layout import ModelState, Vector
from syncswitch.trainers.model.updates import Projection, Update, added, mean_of
from syncswitch.trainers.protocols import Exchange
from syncswitch.trainers.protocols.steps import Group


class Computed(NamedTuple):
    """The results of a worker's step.

    `vector` is the gradient followed by the contribution to the statistics, shape [P + S].
    """

    vector: Vector
    rows: RowGradients = ()


# A buffer holds a gradient of each worker; steps may be done again beside those under way. A limit
# keeps workers from filling the memory.
_PLACES_OF_A_WORKER = 4


class FencedError(Exception):
    """Another process has taken this worker's place, and its calls are refused."""


class PulledModel(NamedTuple):
    """The parameters that a worker computes with.

    `model` holds the parameters followed by the statistics, and is unchanged until the worker
    pushes or pulls again; `buffer` is the number of the buffer that it is in.
    """

    updates: int
    buffer: int
    model: Vector
    rows: tuple[Vector, ...] = ()


class ParameterServer:
    """Holds the state; any thread may call it.

    An update is written to a buffer that nobody reads, so that nobody waits for a reader and nobody
    sees half an update. Each push names its process and step: a process that was replaced is
    refused, and `fence` tells whether its last push came in time. `decay` has the factors by which
    a batch multiplies the statistics, see `ModelFunction.move`. `new_buffer` makes vectors of
    `sizes.model` values, and is called at most n + 3 times. `project` sees to constraints where a
    change is added. With `has_averages` a snapshot has the first slots, which are averages of the
    parameters.
    """

    def __init__(
        self,
        sizes: Sizes,
        workers: int,
        update: Update,
        decay: Vector,
        new_buffer: Callable[[], Vector],
        embeddings: ShardPlan = NO_EMBEDDINGS,
        project: Projection | None = None,
        *,
        has_averages: bool = False,
    ) -> None:
        self._sizes = sizes
        self._project = project
        self._update = update
        self._decay = decay
        self._has_averages = has_averages
        self._new_buffer = new_buffer
        self._changing = threading.Lock()
        self.embeddings = EmbeddingShard(embeddings, self._changing)
        self.buffers = [new_buffer()]
        self._current = 0
        self._slots = aligned(sizes.slots)
        self._updates = 0
        # The buffer that each reader holds.
        self._leases: dict[object, int] = {}
        self._incarnations = [0] * workers
        self._pushed = [-1] * workers
        self._waiting: dict[int, Computed] = {}
        # The buffer, by worker-step, and memory for reuse.
        self._kept: dict[int, Computed] = {}
        self._spare: list[Vector] = []
        self._most_kept = _PLACES_OF_A_WORKER * workers
        self._marked: tuple[object, Vector, int] | None = None

    def load(self, state: ModelState) -> None:
        """Replaces the state; rows of embeddings have to be loaded afterwards."""
        with self._changing:
            target = self._free()
            np.concatenate((state.parameters, state.statistics), out=self.buffers[target])
            self._current = target
            self._slots[:] = state.slots
            self._updates = state.updates
            self.embeddings.reset(state.updates)
            self._waiting.clear()
            self._kept.clear()

    def load_slots(self, slots: Vector) -> None:
        with self._changing:
            self._slots[:] = slots

    def mark(self) -> Sequence[int]:
        """Marks the current state, for `marked`.

        Returns the task number of each worker's last push.
        """
        with self._changing:
            if self._marked is not None:
                self._leases.pop(self._marked[0])
            # The slots change in place; the buffer stays as it is while it is held.
            self._marked = self._lease(), self._slots.copy(), self._updates
            self.embeddings.mark()
            return list(self._pushed)

    def marked(self) -> ModelState:
        """Copies the state at the last `mark`; called once per mark."""
        with self._changing:
            assert self._marked is not None
            (holder, slots, updates), self._marked = self._marked, None
        parameters, statistics = self._copied(holder)
        return ModelState(parameters, slots, statistics, updates)

    def snapshot(self, ids: Sequence[Ids] = ()) -> tuple[Vector, ...]:
        averages = None
        with self._changing:
            holder, rows = self._lease(), self.embeddings.pull(ids)
            if self._has_averages and self._updates:
                averages = self._slots[: self._sizes.parameters].copy()
        parameters, statistics = self._copied(holder)
        return parameters if averages is None else averages, statistics, *rows

    def pull(self, caller: Caller, ids: Sequence[Ids] = ()) -> PulledModel:
        """Lends a worker the current buffer until it pushes, and copies the rows that it needs."""
        with self._changing:
            self._check(caller)
            self._leases[caller.worker] = self._current
            model, rows = self.buffers[self._current], self.embeddings.pull(ids)
            return PulledModel(self._updates, self._current, model, rows)

    def push(self, caller: Caller, task: Task, computed: Vector, rows: RowGradients = ()) -> int:
        """Takes in a worker's gradient, and uses it as the task's `exchange` says.

        `computed` is the gradient, or the change of a worker with slots of its own, followed by the
        contribution to the statistics, shape [P + S]. It is applied as one update, or kept until it
        is applied together with others: that of a round is not copied and must not change until
        then, a copy of others goes to the buffer. Returns the number of updates so far, this one
        included.

        Raises:
            FencedError: The worker was replaced; nothing has happened.
            ValueError: The buffer has no place left.
        """
        with self._changing:
            self._check(caller)
            self._leases.pop(caller.worker, None)
            if task.own_workers:
                self._add(Computed(computed, rows), task)
            elif task.exchange is Exchange.PUSH:
                self._apply([Computed(computed, rows)], task.rate, task.momentum)
            elif task.exchange is Exchange.ROUND:
                self._waiting[caller.worker] = Computed(computed, rows)
            else:
                # A step that is done again replaces its earlier gradient.
                kept = self._kept.get(task.worker_step)
                if kept is None and len(self._kept) >= self._most_kept:
                    raise ValueError(f"{self._most_kept} gradients wait already")
                spare = kept.vector if kept else self._spare.pop() if self._spare else None
                vector = aligned(computed.size) if spare is None else spare
                vector[:] = computed
                self._kept[task.worker_step] = Computed(vector, rows)
            self._pushed[caller.worker] = task.number
            return self._updates

    def apply(self, group: Group, rate: float, momentum: float) -> int:
        """Applies the mean of a group's gradients, summed in its order, as one update.

        They are those of worker-steps in the buffer, of which the stale ones count as zero; or, in
        a round, the last ones of the workers. Returns the number of updates so far, this one
        included.
        """
        with self._changing:
            if not group.worker_steps:
                self._apply([self._waiting[worker] for worker in group.workers], rate, momentum)
                return self._updates
            for worker_step in group.stale:
                vector, rows = self._kept[worker_step]
                vector[: self._sizes.parameters] = 0.0
                self._kept[worker_step] = Computed(vector, [gradient.none for gradient in rows])
            taken = [self._kept.pop(worker_step) for worker_step in group.worker_steps]
            self._apply(taken, rate, momentum)
            self._spare += [step.vector for step in taken]
            return self._updates

    def fence(self, worker: int) -> tuple[int, int]:
        """Refuses every further call of the process that was this worker.

        Returns the number of the process that replaces it, and the task number of the last push.
        """
        with self._changing:
            self._incarnations[worker] += 1
            self._leases.pop(worker, None)
            return self._incarnations[worker], self._pushed[worker]

    def _check(self, caller: Caller) -> None:
        if caller.incarnation != self._incarnations[caller.worker]:
            raise FencedError(f"worker {caller.worker} was replaced")

    def _apply(self, steps: Sequence[Computed], rate: float, momentum: float) -> None:
        size = self._sizes.parameters
        gradients = [step.vector[:size] for step in steps]
        with self._next([step.vector[size:] for step in steps]) as (before, after):
            self._update(before, after, self._slots, self._updates, gradients, rate, momentum)
            self.embeddings.push([step.rows for step in steps], rate, momentum)

    def _add(self, step: Computed, task: Task) -> None:
        size = self._sizes.parameters
        with self._next([step.vector[size:]]) as (before, after):
            added(before, step.vector[:size], after)
            if self._project is not None:
                self._project(after)
            self.embeddings.push([step.rows], task.rate, task.momentum, task.own_workers)

    @contextmanager
    def _next(self, contributions: Sequence[Vector]) -> Iterator[tuple[Vector, Vector]]:
        """Yields the parameters before and after an update; moves the statistics."""
        target = self._free()
        size = self._sizes.parameters
        before, after = self.buffers[self._current], self.buffers[target]
        yield before[:size], after[:size]
        if self._sizes.statistics:
            after[size:] = self._decay * before[size:] + mean_of(contributions)
        self._current = target
        self._updates += 1

    def _free(self) -> int:
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
        copied, size = self.buffers[self._leases[holder]].copy(), self._sizes.parameters
        with self._changing:
            del self._leases[holder]
        return copied[:size], copied[size:]
