from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import RunEvent
from syncswitch.trainers.stragglers.detector import DetectorSettings
from syncswitch.trainers.stragglers.online import NO_DECISION, ONLINE, Decision, OnlineController

QUICK = DetectorSettings(window_steps=2, consecutive_windows=3)
SLOW_SECONDS, FAST_SECONDS = 4.0, 1.0


@dataclass
class Run:
    """Carries out what a controller decides, as a trainer does; a round takes a second."""

    online: str
    workers: int
    before_switch: bool = True
    settings: DetectorSettings = QUICK
    done: int = 0
    now_seconds: float = 0.0
    at_work: set[int] = field(default_factory=set)
    away: set[int] = field(default_factory=set)
    protocol: str = "first"
    events: list[RunEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.controller = OnlineController(self.online, range(self.workers), self.settings)
        self.at_work = set(range(self.workers))

    def round(self, slow: Collection[int] = (), times: int = 1) -> list[Decision]:
        return [self._round(slow) for _ in range(times)]

    def _round(self, slow: Collection[int]) -> Decision:
        for worker in sorted(self.at_work):
            assert self._judge() == NO_DECISION, "not all have pushed"
            self.controller.observe(worker, SLOW_SECONDS if worker in slow else FAST_SECONDS)
            self.done += 1
        self.now_seconds += 1.0
        decision = self._judge()
        self.carry_out(decision)
        return decision

    def switch(self) -> Decision:
        self.before_switch = False
        decision = self.controller.at_switch(self.done, self.now_seconds)
        self.carry_out(decision)
        return decision

    def lose(self, worker: int) -> None:
        self.controller.lost(worker)
        self.away.add(worker)
        self.at_work.discard(worker)

    def bring_back(self, worker: int) -> None:
        self.controller.returned(worker)
        self.away.discard(worker)
        if worker in self.controller.active:
            self.at_work.add(worker)

    def carry_out(self, decision: Decision) -> None:
        assert set(decision.remove) <= self.at_work
        assert not set(decision.restore) & (self.at_work | self.away)
        self.at_work -= set(decision.remove)
        self.at_work |= set(decision.restore)
        if decision.protocol is not None:
            assert decision.protocol != self.protocol
            self.protocol = decision.protocol
        self.events += decision.events
        assert self.controller.active == self.at_work

    def kinds(self) -> list[tuple[str, int | None]]:
        return [(event.kind, event.worker) for event in self.events]

    def _judge(self) -> Decision:
        return self.controller.judge(self.done, self.now_seconds, self.before_switch)


@dataclass(frozen=True)
class Step:
    """A round with slow workers, then perhaps a failure or the return of a worker."""

    slow: frozenset[int]
    lost: int | None
    returned: int | None


WORKERS = 5
NUMBERS = st.integers(0, WORKERS - 1)
STEPS = st.lists(
    st.builds(Step, st.frozensets(NUMBERS), st.none() | NUMBERS, st.none() | NUMBERS), max_size=60
)
SLOW_ROUNDS = st.lists(
    st.tuples(st.frozensets(NUMBERS), st.integers(1, 8)), max_size=12
)  # who is slow, and for how many rounds


def play(run: Run, steps: Sequence[Step]) -> None:
    for step in steps:
        run.round(step.slow)
        if step.lost is not None and step.lost not in run.away and len(run.away) < WORKERS - 1:
            run.lose(step.lost)
        if step.returned in run.away:
            assert step.returned is not None
            run.bring_back(step.returned)


class TestGreedy:
    def test_it_leaves_the_first_protocol_and_comes_back(self) -> None:
        run = Run("greedy", 4)
        run.round(times=3)
        run.round({1}, times=2)
        assert run.protocol == "first"
        decision = run.round({1})[0]
        assert decision.protocol == "second"
        assert [event.kind for event in decision.events] == ["detected", "switched"]
        run.round({1}, times=5)
        run.round(times=9)
        assert run.kinds() == [
            ("detected", 1),
            ("switched", None),
            ("cleared", 1),
            ("switched", None),
        ]
        assert run.protocol == "first"
        assert [event.reason for event in run.events if event.kind == "switched"] == [
            "to the second protocol, where nobody waits for worker 1",
            "back to the first protocol: no active worker is a straggler any more",
        ]

    def test_events_say_when(self) -> None:
        run = Run("greedy", 4)
        run.round({1}, times=4)
        assert [(e.worker_step, e.elapsed_seconds) for e in run.events] == [(16, 4.0)] * 2

    def test_all_stragglers_have_to_be_clear(self) -> None:
        run = Run("greedy", 5)
        run.round({1}, times=5)
        run.round({1, 2}, times=8)
        assert ("detected", 2) in run.kinds()
        run.round({2}, times=9)
        assert ("cleared", 1) in run.kinds()
        assert run.protocol == "second"
        run.round(times=9)
        assert run.protocol == "first"

    def test_a_straggler_that_is_lost_is_in_nobodys_way(self) -> None:
        run = Run("greedy", 4)
        run.round({1}, times=4)
        assert run.protocol == "second"
        run.lose(1)
        run.round()
        assert run.protocol == "first"
        run.bring_back(1)
        run.round({1}, times=3)
        assert run.protocol == "first", "found slow in two windows"
        run.round({1})
        assert run.protocol == "second"

    @given(SLOW_ROUNDS)
    def test_it_is_in_the_first_protocol_if_and_only_if_all_is_clear(
        self, rounds: list[tuple[frozenset[int], int]]
    ) -> None:
        run = Run("greedy", WORKERS)
        for slow, times in rounds:
            for _ in range(times):
                run.round(slow)
                counts = dict.fromkeys(range(WORKERS), 0)
                for kind, worker in run.kinds():
                    if worker is not None:
                        counts[worker] += {"detected": 1, "cleared": -1}.get(kind, 0)
                assert (run.protocol == "second") == any(counts.values())


class TestElastic:
    def test_a_straggler_is_removed_at_once_and_restored_at_the_switch(self) -> None:
        run = Run("elastic", 4)
        run.round(times=3)
        assert run.round({1}, times=3)[-1].remove == (1,)
        assert run.kinds() == [("detected", 1), ("removed", 1)]
        run.round(times=20)
        decision = run.switch()
        assert decision.restore == (1,)
        assert run.kinds()[2:] == [("restored", 1)]
        assert run.events[-1].seconds == 20.0
        assert run.at_work == {0, 1, 2, 3}

    def test_back_after_the_switch_it_turns_out_cleared_or_permanent(self) -> None:
        for slow, kind in (frozenset(), "cleared"), (frozenset({1}), "permanent"):
            run = Run("elastic", 4)
            run.round({1}, times=4)
            run.now_seconds += 100.0
            run.switch()
            run.round(slow, times=9)
            assert run.kinds()[3:] == [(kind, 1)]
            assert run.at_work == {0, 1, 2, 3}

    def test_after_the_switch_nobody_is_removed(self) -> None:
        run = Run("elastic", 4)
        run.switch()
        run.round({1}, times=9)
        assert run.kinds() == [("detected", 1)]

    def test_half_of_the_workers_stay(self) -> None:
        run = Run("elastic", 5)
        run.round({0}, times=4)
        run.round({1}, times=4)
        assert run.at_work == {2, 3, 4}
        run.round({2}, times=4)
        assert run.at_work == {2, 3, 4}
        assert run.kinds()[-1] == ("detected", 2)
        assert run.events[-1].reason.endswith("; it is kept: at least 3 of 5 workers stay")

    def test_who_is_kept_is_removed_when_a_lost_worker_has_returned(self) -> None:
        run = Run("elastic", 6)
        for worker in range(3):
            run.lose(worker)
        run.round({3}, times=9)
        assert run.kinds() == [("detected", 3)]
        assert run.at_work == {3, 4, 5}
        run.bring_back(0)
        run.round({3})
        assert run.at_work == {0, 4, 5}

    def test_of_several_at_once_the_slowest_go_first(self) -> None:
        controller = OnlineController("elastic", range(9), QUICK)
        controller.lost(0)
        controller.lost(1)
        controller.lost(2)
        decisions = []
        for _ in range(4):
            for worker, seconds in enumerate([1.0] * 7 + [6.0, 9.0]):
                controller.observe(worker, seconds)
            decisions.append(controller.judge(0, 0.0, before_switch=True))
        assert decisions[-1].remove == (8,)
        assert [(event.kind, event.worker) for event in decisions[-1].events] == [
            ("detected", 7),
            ("detected", 8),
            ("removed", 8),
        ]
        assert "it is kept" in decisions[-1].events[0].reason

    def test_who_was_removed_and_lost_comes_back_at_the_switch(self) -> None:
        run = Run("elastic", 4)
        run.round({1}, times=4)
        run.lose(1)
        run.bring_back(1)
        assert run.at_work == {0, 2, 3}
        run.switch()
        assert run.at_work == {0, 1, 2, 3}

    def test_who_is_lost_at_the_switch_is_back_when_it_returns(self) -> None:
        run = Run("elastic", 4)
        run.round({1}, times=4)
        run.lose(1)
        assert run.switch() == NO_DECISION
        run.bring_back(1)
        assert run.at_work == {0, 1, 2, 3}

    @given(STEPS)
    def test_it_never_removes_more_than_half(self, steps: list[Step]) -> None:
        run = Run("elastic", WORKERS)
        for step in steps:
            before = len(run.at_work)
            removed = [worker for one in run.round(step.slow) for worker in one.remove]
            assert not removed or before - len(removed) >= (WORKERS + 1) // 2
            play(run, [Step(step.slow, step.lost, step.returned)])
        run.switch()
        for worker in sorted(run.away):
            run.bring_back(worker)
        assert run.at_work == set(range(WORKERS))


class TestEveryPolicy:
    @given(STEPS)
    def test_none_never_acts(self, steps: list[Step]) -> None:
        run = Run("none", WORKERS)
        play(run, steps)
        run.switch()
        assert {event.kind for event in run.events} <= {"detected", "cleared", "permanent"}
        assert run.at_work == set(range(WORKERS)) - run.away
        assert run.protocol == "first"

    def test_none_observes(self) -> None:
        run = Run("none", 4)
        run.round({1}, times=4)
        run.round(times=9)
        assert run.kinds() == [("detected", 1), ("cleared", 1)]

    @pytest.mark.parametrize("online", ONLINE)
    @given(STEPS)
    def test_after_the_switch_nobody_acts(self, online: str, steps: list[Step]) -> None:
        run = Run(online, WORKERS, before_switch=False)
        play(run, steps)
        assert {event.kind for event in run.events} <= {"detected", "cleared", "permanent"}

    @pytest.mark.parametrize("online", ONLINE)
    @pytest.mark.parametrize("workers", [1, 2])
    def test_one_or_two_workers_have_no_straggler(self, online: str, workers: int) -> None:
        run = Run(online, workers)
        run.round({0}, times=20)
        assert run.events == []

    @pytest.mark.parametrize("online", ONLINE)
    def test_without_new_pushes_there_is_no_judgement(self, online: str) -> None:
        run = Run(online, 4)
        run.round({1}, times=4)
        for _ in range(9):
            assert run.controller.judge(run.done, run.now_seconds, True) == NO_DECISION

    @pytest.mark.parametrize("online", ONLINE)
    def test_late_pushes_of_those_who_left_do_not_count(self, online: str) -> None:
        run = Run(online, 4)
        run.lose(3)
        for _ in range(40):
            run.controller.observe(3, SLOW_SECONDS)
        assert run.controller.judge(0, 0.0, True) == NO_DECISION

    def test_all_can_be_lost(self) -> None:
        run = Run("elastic", 2)
        run.lose(0)
        run.lose(1)
        run.round(times=3)
        assert run.controller.active == frozenset()

    def test_an_unknown_policy_is_one_clear_line(self) -> None:
        with pytest.raises(UserError, match=r"^online policy 'eager': .* none, greedy, elastic$"):
            OnlineController("eager", range(2))

    def test_what_is_recorded_by_default_is_a_policy(self) -> None:
        assert RunConditions().online in ONLINE
