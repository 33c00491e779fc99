from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.records.trial import RunEvent
from syncswitch.trainers.stragglers.detector import DetectorSettings
from syncswitch.trainers.stragglers.online import NO_DECISION, ONLINE, Decision, OnlineController
from tests.failing import fails

QUICK = DetectorSettings(window_steps=2, consecutive_windows=3)
SLOW_SECONDS, FAST_SECONDS = 4.0, 1.0


@dataclass
class Run:
    """Carries out what a controller decides, as a trainer does; a round takes a second."""

    online: str
    workers: int
    before_switch: bool = True
    done: int = 0
    now_seconds: float = 0.0
    away: set[int] = field(default_factory=set)
    protocol: str = "first"
    events: list[RunEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.controller = OnlineController(self.online, range(self.workers), QUICK)
        self.at_work = set(range(self.workers))

    def round(self, slow: Collection[int] = ()) -> Decision:
        for worker in sorted(self.at_work):
            assert self._judge() == NO_DECISION, "not all have pushed"
            self.controller.observe(worker, SLOW_SECONDS if worker in slow else FAST_SECONDS)
            self.done += 1
        self.now_seconds += 1.0
        decision = self._judge()
        self.carry_out(decision)
        return decision

    def switch(self) -> None:
        self.before_switch = False
        events = self.controller.at_switch(self.done, self.now_seconds)
        self.carry_out(Decision(tuple(events)))

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
        restored = {event.worker for event in decision.events if event.kind == "restored"}
        assert not restored & (self.at_work | self.away)
        self.at_work -= set(decision.remove)
        self.at_work |= restored
        if decision.protocol is not None:
            assert decision.protocol != self.protocol
            self.protocol = decision.protocol
        self.events += decision.events
        assert self.controller.active == self.at_work

    def play(self, course: str) -> Run:
        """Rounds, with whom slow: `3`, `2:1`, `8:1,2`; `-1` is lost, `+1` is back, the `switch`."""
        for step in course.split():
            if step == "switch":
                self.switch()
            elif step[0] in "+-":
                (self.lose if step[0] == "-" else self.bring_back)(int(step[1:]))
            else:
                times, _, slow = step.partition(":")
                for _ in range(int(times)):
                    self.round(set(map(int, filter(None, slow.split(",")))))
        return self

    def kinds(self) -> list[tuple[str, int | None]]:
        return [(event.kind, event.worker) for event in self.events]

    def _judge(self) -> Decision:
        return self.controller.judge(self.done, self.now_seconds, self.before_switch)


WORKERS = 5
NUMBERS = st.integers(0, WORKERS - 1)
AFTER = [(online, False) for online in ONLINE]
# A round with slow workers, then perhaps a failure or the return of a worker.
Step = tuple[frozenset[int], int | None, int | None]
STEPS = st.lists(
    st.tuples(st.frozensets(NUMBERS), st.none() | NUMBERS, st.none() | NUMBERS), max_size=60
)


def played(online: str, steps: Sequence[Step], before_switch: bool = True) -> Run:
    """At least half of the workers stay, but for those that are lost."""
    run = Run(online, WORKERS, before_switch)
    for slow, lost, returned in steps:
        before = len(run.at_work)
        removed = len(run.round(slow).remove)
        assert not removed or before - removed >= (WORKERS + 1) // 2
        if lost is not None and lost not in run.away and len(run.away) < WORKERS - 1:
            run.lose(lost)
        if returned in run.away:
            assert returned is not None
            run.bring_back(returned)
    return run


@pytest.mark.parametrize(
    ("online", "workers", "course", "events"),
    [
        # Greedy leaves the first protocol, and comes back.
        ("greedy", 4, "3 2:1", ""),
        ("greedy", 4, "3 8:1 9", "detected 1, switched, cleared 1, switched"),
        # All stragglers have to be clear.
        ("greedy", 5, "5:1 8:1,2 9:2", "detected 1, switched, detected 2, cleared 1"),
        (
            "greedy",
            5,
            "5:1 8:1,2 9",
            "detected 1, switched, detected 2, cleared 1, cleared 2, switched",
        ),
        # A straggler that is lost is in nobody's way, and has to be found slow again.
        ("greedy", 4, "4:1 -1 1 +1 3:1", "detected 1, switched, switched"),
        ("greedy", 4, "4:1 -1 1 +1 4:1", "detected 1, switched, switched, switched"),
        # Elastic removes a straggler at once, and restores it at the switch.
        ("elastic", 4, "3 3:1 20 switch", "detected 1, removed 1, restored 1"),
        ("elastic", 4, "switch 9:1", "detected 1"),
        # Half of the workers stay.
        ("elastic", 5, "4:0 4:1 4:2", "detected 0, removed 0, detected 1, removed 1, detected 2"),
        # Who is kept is removed when a lost worker has returned.
        ("elastic", 6, "-0 -1 -2 9:3 +0 1:3", "detected 3, removed 3"),
        # Who was found before goes first, whoever is slower.
        ("elastic", 10, "-0 -1 -2 -3 -4 3:9 3:8,9 +0 2:8,9", "detected 9, detected 8, removed 9"),
        # Who was removed and lost comes back at the switch, or when it returns.
        ("elastic", 4, "4:1 -1 +1 switch", "detected 1, removed 1, restored 1"),
        ("elastic", 4, "4:1 -1 switch +1", "detected 1, removed 1"),
        # Lost after the switch, it comes back at once.
        ("elastic", 4, "4:1 switch -1 +1 9", "detected 1, removed 1, restored 1, cleared 1"),
        # Without a policy it is only observed; all can be lost.
        ("none", 4, "4:1 9", "detected 1, cleared 1"),
        ("elastic", 2, "-0 -1 3", ""),
    ],
)
def test_known_courses(online: str, workers: int, course: str, events: str) -> None:
    run = Run(online, workers).play(course)
    found = [kind if worker is None else f"{kind} {worker}" for kind, worker in run.kinds()]
    assert ", ".join(found) == events


class TestGreedy:
    def test_events_say_when_and_why(self) -> None:
        run = Run("greedy", 4).play("4:1")
        assert [(e.worker_step, e.elapsed_seconds) for e in run.events] == [(16, 4.0)] * 2
        run.play("9")
        assert [event.reason for event in run.events if event.kind == "switched"] == [
            "to the second protocol, where nobody waits for worker 1",
            "back to the first protocol: no active worker is a straggler any more",
        ]

    # Who is slow, and for how many rounds.
    @given(st.lists(st.tuples(st.frozensets(NUMBERS), st.integers(1, 8)), max_size=12))
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
    def test_events_say_how_long_and_why(self) -> None:
        run = Run("elastic", 5).play("4:0 4:1 4:2")
        assert run.events[-1].reason.endswith("; it is kept: at least 3 of 5 workers stay")
        run.play("switch")
        assert [(e.worker, e.seconds) for e in run.events[-2:]] == [(0, 8.0), (1, 5.0)]

    @pytest.mark.parametrize(("course", "kind"), [("9", "cleared"), ("9:1", "permanent")])
    def test_back_after_the_switch_it_turns_out(self, course: str, kind: str) -> None:
        run = Run("elastic", 4).play("4:1")
        run.now_seconds += 100.0
        run.play(f"switch {course}")
        assert run.kinds()[3:] == [(kind, 1)]
        assert run.at_work == {0, 1, 2, 3}

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


class TestEveryPolicy:
    @pytest.mark.parametrize(("online", "before_switch"), [("none", True), *AFTER])
    @given(STEPS)
    def test_without_a_policy_or_after_the_switch_nobody_acts(
        self, online: str, before_switch: bool, steps: list[Step]
    ) -> None:
        run = played(online, steps, before_switch)
        assert {event.kind for event in run.events} <= {"detected", "cleared", "permanent"}
        assert run.at_work == set(range(WORKERS)) - run.away
        assert run.protocol == "first"

    def test_an_unknown_policy_is_one_clear_line(self) -> None:
        with fails("parameter-invalid", r"^online policy 'eager': .* none, greedy, elastic$"):
            OnlineController("eager", range(2))
