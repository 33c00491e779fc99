from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from syncswitch.trainers.cluster.chief.coordinator import Coordinator, Notice
from syncswitch.trainers.cluster.chief.recovery import TakenSteps, loss_of
from syncswitch.trainers.protocols import choose_protocol
from syncswitch.trainers.protocols.asp import ASP
from syncswitch.trainers.protocols.steps import Group, SegmentSteps, StepDone, Ticket
from tests.processes import until


class FakeCluster:
    """Real threads whose steps are only acknowledged."""

    def __init__(
        self,
        workers: int,
        step: Callable[[int, Ticket], None] = lambda worker, ticket: None,
        on_done: Callable[[int], None] = lambda done: None,
        join: Callable[[Group, int], object] = lambda group, first: None,
    ) -> None:
        self.tickets: list[tuple[int, Ticket]] = []
        self._step, self._join = step, join
        self.coordinator = Coordinator(range(workers), self._joined, on_done)
        self._threads = [
            threading.Thread(target=self._work, args=(worker,), daemon=True)
            for worker in range(workers)
        ]

    def __enter__(self) -> FakeCluster:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.coordinator.stop()
        self.coordinator.dismiss()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    def _work(self, worker: int) -> None:
        while (ticket := self.coordinator.inboxes[worker].get()) is not Notice.END:
            assert isinstance(ticket, Ticket)
            self.tickets.append((worker, ticket))
            try:
                self._step(worker, ticket)
                self.coordinator.acknowledge(worker, StepDone(0.0, 0))
            except BaseException as error:
                self.coordinator.fail(worker, error)

    def _joined(self, group: Group, first_step: int) -> tuple[int, ...]:
        self._join(group, first_step)
        return ()


def lost(*_: object) -> None:
    raise RuntimeError("lost")


def lost_at_step_7(worker: int, ticket: Ticket) -> None:
    if ticket.worker_step == 7:
        lost()


@pytest.mark.parametrize(
    ("kind", "workers", "broken"),
    [
        ("bsp", 3, {"step": lost_at_step_7}),
        ("asp", 3, {"step": lost_at_step_7}),
        # As when the parameter server is lost between the pushes and the update.
        ("bsp", 1, {"join": lost}),
        ("bsp", 3, {"join": lost}),
        # A copy of the model that fails.
        ("asp", 1, {"on_done": lost}),
        ("local-sgd:1", 2, {"join": lost}),
    ],
)
def test_what_a_step_or_an_update_raises_ends_the_segment(
    kind: str, workers: int, broken: dict[str, Any]
) -> None:
    with FakeCluster(workers, **broken) as cluster:
        cluster.coordinator.begin(choose_protocol(kind).machine, 100_000)
        assert cluster.coordinator.wait_until_drained(20), "the segment never ended"
        assert cluster.coordinator.stopping
        assert str(cluster.coordinator.error) == "lost"
        assert cluster.coordinator.done < 100_000
        if (kind, *broken) == ("bsp", "join"):
            assert cluster.coordinator.done == 0


def test_a_segment_is_not_over_before_its_error_is_told() -> None:
    """Here that of preparing the worker for its next step."""
    coordinator = Coordinator(range(1), lambda group, first: (), lambda done: None)
    coordinator.begin(ASP, 100)
    coordinator.prepare = lost
    with pytest.raises(RuntimeError) as error:
        coordinator.acknowledge(0, StepDone(0.0, 0))
    coordinator.stop()
    assert not coordinator.wait_until_drained(0)
    coordinator.fail(0, error.value)
    assert coordinator.wait_until_drained(0)


def test_at_rest_nobody_is_given_a_step_or_noted_to_have_done_one() -> None:
    with FakeCluster(3) as cluster:
        coordinator = cluster.coordinator
        coordinator.begin(ASP, 3000)
        seen = []
        while not coordinator.wait_until_drained(0.001):

            def look(steps: SegmentSteps) -> tuple[int, int, int]:
                before = steps.next_step, len(steps.undone()), coordinator.done
                time.sleep(0.002)
                assert before == (steps.next_step, len(steps.undone()), coordinator.done)
                return before

            seen.append(coordinator.at_rest(look))
        for next_step, undone, done in seen:
            assert done == next_step - undone
            assert undone <= 3


def test_a_segment_begins_with_what_is_undone() -> None:
    # One worker: which of several notes its own first is chance.
    with FakeCluster(1) as cluster:
        cluster.coordinator.done = 5
        cluster.coordinator.begin(ASP, 9, undone=(1, 4))
        assert cluster.coordinator.wait_until_drained(20)
    assert [ticket.worker_step for _, ticket in cluster.tickets] == [1, 4, 7, 8]
    assert cluster.coordinator.done == 9


class TestReplicas:
    """Groups of replicas are averaged beside the steps of others."""

    def test_a_group_goes_on_while_another_one_is_averaged(self) -> None:
        release, joined = threading.Event(), list[tuple[int, ...]]()

        def join(group: Group, first: int) -> None:
            joined.append(group.workers)
            if 0 in group.workers and len(joined) <= 2:
                assert release.wait(20)

        with FakeCluster(4, join=join) as cluster:
            coordinator = cluster.coordinator
            coordinator.begin(choose_protocol("ds-sync:2").machine, 16)
            until(lambda: coordinator.done >= 6)
            assert not coordinator.wait_until_drained(0.1)
            by_worker = Counter(worker for worker, _ in cluster.tickets)
            assert by_worker[0] == 1, "it has no replica to go on with"
            release.set()
            assert coordinator.wait_until_drained(20)
        assert coordinator.done == 16

    def test_whoever_could_not_be_reached_is_told_and_goes_on_no_more(self) -> None:
        coordinator = Coordinator(range(3), lambda workers, first: [1], lambda done: None)
        coordinator.begin(choose_protocol("local-sgd:1").machine, 9)
        for worker in range(3):
            coordinator.inboxes[worker].get(timeout=20)
            coordinator.acknowledge(worker, StepDone(0.0))
        assert coordinator.inboxes[1].get(timeout=20) is Notice.LOST
        for worker in (0, 2):
            assert isinstance(coordinator.inboxes[worker].get(timeout=20), Ticket)
        assert coordinator.members == [0, 2]
        assert coordinator.done == 3


def test_a_stop_ends_the_wait_for_a_worker_but_not_for_a_step_that_is_out() -> None:
    coordinator = Coordinator([0], lambda workers, first: (), lambda done: None)
    coordinator.begin(ASP, 20)
    coordinator.stop()
    assert not coordinator.wait_until_drained(0.01)
    coordinator.lose(0, is_applied=True)
    assert coordinator.wait_until_drained(0.01)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(coordinator.begin, ASP, 20).result(10)


def test_a_lost_worker_is_named_once() -> None:
    assert loss_of(1, "worker 1 is gone") == "worker 1 is gone"
    for reason in ("it was told to end", "worker 12 is gone"):
        assert loss_of(1, reason) == f"worker 1: {reason}"


def test_a_step_is_done_once_all_servers_have_it() -> None:
    taken = TakenSteps(3, {})
    assert not taken.add(5, 11, (10, 10, 10)), "these are of the push before"
    assert taken.by(5) == ()
    assert not taken.add(5, 11, (11, 10, 10))
    # Another worker, that left out the first server.
    assert not taken.add(5, 12, (3, 3, 12))
    assert taken.by(5) == (0, 2)
    assert taken.add(5, 13, (4, 13, 4))


def test_a_copy_has_what_was_pushed_since_and_before() -> None:
    taken = TakenSteps(2, {5: (1,), 6: (0,)})
    assert (taken.by(5), taken.by(6)) == ((1,), (0,))
    for number, ticket in enumerate((Ticket(0, 5), Ticket(1, 7), Ticket(2, 8)), start=30):
        taken.ask(ticket, number)
    found, applied = taken.at_mark([(30, 4), (31, 2), (1, 2)])
    assert {step: set(by) for step, by in found.items() if by} == {5: {0, 1}, 6: {0}, 7: {0}}
    assert applied == [Ticket(0, 5)]
    assert taken.by(7) == (), "the step may still be done"
