from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from syncswitch.trainers.cluster.exchange.parameter_server import FencedError, ParameterServer
from syncswitch.trainers.cluster.exchange.plans import Caller, Sizes, Task
from syncswitch.trainers.cluster.exchange.vectors import aligned
from syncswitch.trainers.model.embeddings import RowGradient, ShardPlan
from syncswitch.trainers.model.layout import ModelState, Vector
from syncswitch.trainers.model.row_rules import MomentumRule
from syncswitch.trainers.model.updates import momentum_update
from syncswitch.trainers.protocols import Exchange
from syncswitch.trainers.protocols.steps import Group
from tests.trainers.cluster.members.cluster_contract import in_parallel

WORKERS = 4
# So long that an update takes a while: of short vectors two hardly ever meet.
LONG = 200_000


def new_server(
    parameters: int = 4, statistics: int = 0, decay: float = 1.0, workers: int = WORKERS
) -> ParameterServer:
    sizes = Sizes(parameters, statistics, parameters)
    return ParameterServer(
        sizes,
        workers,
        momentum_update,
        np.full(statistics, decay, np.float32),
        lambda: aligned(sizes.model),
    )


def update(number: int, rate: float, momentum: float) -> Task:
    return Task(number, 0, 0, Exchange.PUSH, rate, momentum)


def of_round(number: int) -> Task:
    return Task(number, 0, 0, Exchange.ROUND)


def buffered(number: int, worker_step: int) -> Task:
    return Task(number, worker_step, 0, Exchange.BUFFER)


def state_of(server: ParameterServer) -> ModelState:
    server.mark()
    return server.marked()


def random_vectors(count: int, size: int = 5) -> list[Vector]:
    return list(np.random.default_rng(0).standard_normal((count, size), np.float32))


def test_a_pull_stays_and_nobody_sees_half_an_update() -> None:
    """k updates leave k(k+1)/2 in each parameter, k in each slot and statistic."""
    server = new_server(LONG, LONG)
    computed = np.concatenate([np.full(LONG, -1.0), np.ones(LONG)]).astype(np.float32)
    is_over, seen = threading.Event(), set[int]()

    def check(updates: int | None, parameters: Vector, statistics: Vector) -> None:
        count = int(statistics[0])
        assert updates is None or count == updates
        assert (statistics == count).all()
        assert (parameters == count * (count + 1) / 2).all()
        seen.add(count)

    def pull() -> None:
        # A worker that never pushes: it gives a buffer back when it takes the next.
        while not is_over.is_set():
            pulled = server.pull(Caller(WORKERS - 1, 0))
            buffer = server.buffers[pulled.buffer]
            check(pulled.updates, buffer[:LONG], buffer[LONG:])

    def look() -> None:
        while not is_over.is_set():
            check(None, *server.snapshot())
            pushed = server.mark()
            state = server.marked()
            check(state.updates, state.parameters, state.statistics)
            assert (state.slots == -state.updates).all()
            assert sum(number + 1 for number in pushed) == state.updates

    def push(worker: int) -> Callable[[], None]:
        def body() -> None:
            for number in range(40):
                server.push(Caller(worker, 0), update(number, 1.0, 1.0), computed)
                time.sleep(0.001)  # gives the readers a turn

        return body

    def push_all() -> None:
        in_parallel(*map(push, range(WORKERS - 1)))
        is_over.set()

    in_parallel(pull, look, push_all)
    assert server.snapshot()[1][0] == 120
    assert len(seen) > 3, "the readers have seen nothing of it"
    assert len(server.buffers) <= WORKERS + 4


@pytest.mark.parametrize("is_round", [True, False])
def test_gradients_are_summed_in_the_order_that_is_told(is_round: bool) -> None:
    found = []
    for order in ((0, 1, 2), (1, 2, 0)):
        server = new_server(1, workers=3)
        for worker, value in enumerate((1.0, 1e8, -1e8)):
            task = of_round(0) if is_round else buffered(0, worker)
            server.push(Caller(worker, 0), task, np.array([value], np.float32))
        group = Group(order) if is_round else Group((), order)
        server.apply(group, 3.0, 0.0)
        found.append(-float(server.snapshot()[0][0]))
    assert found == [0.0, pytest.approx(1.0)], "1 is lost beside 1e8"


class TestBuffer:
    def test_has_no_room_for_worker_steps_without_end_and_a_step_once(self) -> None:
        """A step is made again if its worker is lost after the push."""
        server, zeros = new_server(workers=2), np.zeros(4, np.float32)
        for worker_step in range(8):
            server.push(Caller(1, 0), buffered(worker_step, worker_step), zeros)
        with pytest.raises(ValueError, match="8 gradients wait already"):
            server.push(Caller(1, 0), buffered(8, 8), zeros)
        server.fence(1)
        server.push(Caller(0, 0), buffered(9, 3), zeros + 8)
        server.apply(Group((), tuple(range(8))), 0.5, 0.0)
        assert server.push(Caller(0, 0), buffered(10, 8), zeros) == 1
        assert server.snapshot()[0].tolist() == [-0.5] * 4

    def test_a_stale_gradient_is_zero_in_the_mean_of_all(self) -> None:
        """The statistics of all batches count, even of stale ones."""
        server, computed = new_server(5, 2, decay=0.5), random_vectors(4, 7)
        for number, vector in enumerate(computed):
            server.push(Caller(0, 0), buffered(number, number), vector)
        server.apply(Group((), (0, 1, 2, 3), (1, 2)), 1.0, 0.0)
        parameters, statistics = server.snapshot()
        np.testing.assert_allclose(parameters, -(computed[0] + computed[3])[:5] / 4, rtol=1e-6)
        np.testing.assert_array_equal(statistics, np.mean(computed, axis=0)[5:])


class TestFence:
    def test_refuses_everything_of_a_process_that_was_replaced(self) -> None:
        server, computed = new_server(5), random_vectors(2)
        old, new = Caller(1, 0), Caller(1, 1)
        server.pull(old)
        server.fence(1)
        server.push(new, of_round(3), computed[0])
        for late in (
            lambda: server.pull(old),
            lambda: server.push(old, update(2, 0.1, 0.9), computed[1]),
            lambda: server.push(old, of_round(2), computed[1]),
        ):
            with pytest.raises(FencedError, match="worker 1 was replaced"):
                late()
        assert server.mark() == [-1, 3, -1, -1]
        server.apply(Group((1,)), 1.0, 0.0)
        np.testing.assert_array_equal(server.snapshot()[0], -computed[0])

    def test_no_step_counts_twice_or_not_at_all(self) -> None:
        """Whenever the fence comes, it tells whether the step has to be done again."""
        server, ones = new_server(1, workers=1), np.ones(1, np.float32)
        caller, steps = Caller(0, 0), 0
        for number in range(300):

            def push(number: int = number, caller: Caller = caller) -> None:
                try:
                    server.push(caller, update(number, -1.0, 0.0), ones)
                except FencedError:
                    return

            answers = list[tuple[int, int]]()
            in_parallel(push, lambda answers=answers: answers.append(server.fence(0)))
            ((incarnation, last),) = answers
            caller = Caller(0, incarnation)
            steps += last == number
            assert server.snapshot()[0][0] == steps
        assert state_of(server).updates == steps


def test_loading_leaves_no_gradient_and_marks_that_nobody_asks_for_no_memory() -> None:
    server, zeros = new_server(), np.zeros(4, np.float32)
    server.push(Caller(0, 0), of_round(9), zeros)
    server.push(Caller(0, 0), buffered(10, 4), zeros)
    server.load(state_of(server))
    with pytest.raises(KeyError):
        server.apply(Group((0,)), 0.1, 0.9)
    with pytest.raises(KeyError):
        server.apply(Group((), (4,)), 0.1, 0.9)
    for number in range(3):
        server.mark()
        server.push(Caller(0, 0), update(number, 0.1, 0.9), zeros)
    assert len(server.buffers) <= 3


NOTHING = np.zeros(0, np.float32)


class TestRowsOfEmbeddings:
    """A table of six rows of one value, their numbers; two workers."""

    IDS = np.array([1, 4])

    @pytest.fixture
    def server(self) -> ParameterServer:
        shard = ShardPlan(((6, 1),), MomentumRule())
        made = ParameterServer(
            Sizes(0, 0, 0), 2, momentum_update, NOTHING, lambda: aligned(0), shard
        )
        made.load(ModelState(NOTHING, NOTHING, NOTHING))
        made.embeddings.load_rows(0, 0, 0, np.arange(6, dtype=np.float32)[:, None])
        return made

    def gradient(self, *values: float) -> list[RowGradient]:
        return [RowGradient(self.IDS, np.array(values, np.float32)[:, None])]

    def now(self, server: ParameterServer) -> list[float]:
        state_of(server)
        rows: list[float] = server.embeddings.read_rows(0, 0, 0, 6).ravel().tolist()
        return rows

    def test_come_and_go_with_the_rest_and_of_what_is_stale_count_as_zero(
        self, server: ParameterServer
    ) -> None:
        (rows,) = server.pull(Caller(0, 0), [self.IDS]).rows
        assert rows.ravel().tolist() == [1, 4]
        server.push(Caller(0, 0), update(7, 0.5, 0.0), NOTHING, self.gradient(2, 4))
        assert server.snapshot([self.IDS])[2].ravel().tolist() == [0, 2]
        for step, gradient in enumerate((self.gradient(100, 200), self.gradient(2, 4))):
            server.push(Caller(0, 0), buffered(9, step), NOTHING, gradient)
        server.apply(Group((), (0, 1), (0,)), 0.5, 0.0)
        assert self.now(server) == [0, -0.5, 2, 3, 1, 5]

    def test_another_state_has_rows_of_its_own(self, server: ParameterServer) -> None:
        server.push(Caller(0, 0), update(7, 0.5, 0.9), NOTHING, self.gradient(2, 4))
        server.load(ModelState(NOTHING, NOTHING, NOTHING, updates=3))
        server.embeddings.load_rows(0, 0, 2, np.full((2, 1), 9, np.float32))
        assert self.now(server) == [0, 0, 9, 9, 0, 0]
        server.push(Caller(0, 0), update(8, 0.5, 0.9), NOTHING, self.gradient(0, 0))
        assert self.now(server) == [0, 0, 9, 9, 0, 0], "nothing is left of the momentum"
