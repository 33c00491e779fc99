from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.cluster.chief.coordinator import Coordinator, Notice
from syncswitch.trainers.protocols import ASP, choose_protocol
from syncswitch.trainers.protocols.steps import Group, SegmentSteps, Ticket
from tests.processes import until
from tests.properties import more_examples
from tests.trainers.job.test_schedule import segments, trial

PAIRS = [("bsp", "asp"), ("asp", "bsp"), ("ssp:2", "local-sgd:3"), ("dssp:1-4", "bsp")]


class FakeCluster:
    """Real threads whose steps are only acknowledged."""

    def __init__(
        self,
        workers: int,
        step: Callable[[int, Ticket], None] = lambda worker, ticket: None,
        on_done: Callable[[int], None] = lambda done: None,
        apply_round: Callable[[Sequence[int], int], object] = lambda workers, first: None,
    ) -> None:
        self.rounds: list[tuple[tuple[int, ...], int]] = []
        self.done: list[int] = []
        self.tickets: list[tuple[int, Ticket]] = []
        self._lock = threading.Lock()
        self._step, self._on_done, self._apply = step, on_done, apply_round
        self.coordinator = Coordinator(range(workers), self._apply_round, self._note_done)
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

    def run(self, protocol: str, end_step: int) -> None:
        self.coordinator.begin(choose_protocol(protocol).machine, end_step)
        assert self.coordinator.wait_until_drained(20), "the segment never ended"

    def _work(self, worker: int) -> None:
        while (ticket := self.coordinator.inboxes[worker].get()) is not Notice.END:
            assert isinstance(ticket, Ticket)
            with self._lock:
                self.tickets.append((worker, ticket))
            try:
                self._step(worker, ticket)
                self.coordinator.acknowledge(worker, 0.0, 0)
            except BaseException as error:
                self.coordinator.fail(worker, error)

    def _apply_round(self, group: Group, first_step: int) -> tuple[int, ...]:
        self.rounds.append((group.workers, first_step))
        self._apply(group.workers, first_step)
        return ()

    def _note_done(self, done: int) -> None:
        self.done.append(done)
        self._on_done(done)


@given(
    W=st.integers(1, 90),
    workers=st.integers(2, 5),
    percent=st.integers(0, 100),
    pair=st.sampled_from(PAIRS),
)
@more_examples(8)
def test_every_worker_step_is_done_once_and_none_beyond_the_end(
    W: int, workers: int, percent: int, pair: tuple[str, str]
) -> None:
    with FakeCluster(workers) as cluster:
        for segment in segments(trial(W, workers, percent, (), pair)):
            cluster.run(segment.protocol, segment.end_worker_step)
            assert cluster.coordinator.done == segment.end_worker_step
            assert len(cluster.tickets) == segment.end_worker_step
            assert cluster.coordinator.staleness.pushes == (
                segment.end_worker_step - segment.start_worker_step
            )
    steps = sorted(ticket.worker_step for _, ticket in cluster.tickets)
    assert steps == list(range(W))
    assert cluster.done == sorted(set(cluster.done))
    assert cluster.done[-1] == W


def test_in_asp_a_slow_worker_holds_up_nobody() -> None:
    release = threading.Event()

    def step(worker: int, ticket: Ticket) -> None:
        if worker == 0:
            assert release.wait(20)

    with FakeCluster(3, step) as cluster:
        cluster.coordinator.begin(ASP, 100)
        until(lambda: cluster.coordinator.done == 99)
        assert not cluster.coordinator.wait_until_drained(0.05)
        release.set()
        assert cluster.coordinator.wait_until_drained(20)
    assert Counter(worker for worker, _ in cluster.tickets)[0] == 1
    assert cluster.coordinator.done == 100


@pytest.mark.parametrize("kind", ["bsp", "asp"])
def test_stopped_it_finishes_what_is_out_and_starts_nothing(kind: str) -> None:
    cluster = FakeCluster(3, on_done=lambda done: cluster.coordinator.stop() if done >= 6 else None)
    with cluster:
        cluster.run(kind, 1000)
        assert 6 <= cluster.coordinator.done <= 9
        assert cluster.coordinator.done == len(cluster.tickets)
        done = cluster.coordinator.done
        cluster.run(kind, 1000)
        assert cluster.coordinator.done == done


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
        ("bsp", 1, {"apply_round": lost}),
        ("bsp", 3, {"apply_round": lost}),
        # A copy of the model that fails.
        ("asp", 1, {"on_done": lost}),
        ("local-sgd:1", 2, {"apply_round": lost}),
    ],
)
def test_what_a_step_or_an_update_raises_ends_the_segment(
    kind: str, workers: int, broken: dict[str, Any]
) -> None:
    with FakeCluster(workers, **broken) as cluster:
        cluster.run(kind, 100_000)
        assert cluster.coordinator.stopping
        assert str(cluster.coordinator.error) == "lost"
        assert cluster.coordinator.done < 100_000
        if (kind, *broken) == ("bsp", "apply_round"):
            assert cluster.coordinator.done == 0


def test_drained_is_it_only_when_all_who_got_a_step_have_done_it() -> None:
    coordinator = Coordinator([0], lambda workers, first: (), lambda done: None)
    coordinator.begin(ASP, 20)
    coordinator.inboxes[0].get()
    coordinator.acknowledge(0, 0.0, 0)
    coordinator.stop()
    assert not coordinator.wait_until_drained(0.01), "its second step is under way"
    coordinator.acknowledge(0, 0.0, 0)
    assert coordinator.wait_until_drained(0.01)


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

        def join(workers: Sequence[int], first: int) -> None:
            joined.append(tuple(workers))
            if 0 in workers and len(joined) <= 2:
                assert release.wait(20)

        with FakeCluster(4, apply_round=join) as cluster:
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
            coordinator.acknowledge(worker, 0.0, None)
        assert coordinator.inboxes[1].get(timeout=20) is Notice.LOST
        for worker in (0, 2):
            assert isinstance(coordinator.inboxes[worker].get(timeout=20), Ticket)
        assert coordinator.members == [0, 2]
        assert coordinator.done == 3


def test_a_stop_ends_the_wait_for_a_worker() -> None:
    coordinator = Coordinator([0], lambda workers, first: (), lambda done: None)
    coordinator.lose(0, is_applied=False)
    beginning = threading.Thread(target=coordinator.begin, args=(ASP, 20), daemon=True)
    beginning.start()
    coordinator.stop()
    beginning.join(10)
    assert not beginning.is_alive()
    assert coordinator.wait_until_drained(0.01)
