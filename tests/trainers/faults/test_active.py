from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.faults.active import ActiveInjections, Ended, Started
from syncswitch.trainers.faults.grammar import parse_injection

W = 1000


def active(*texts: str, **options: object) -> ActiveInjections:
    return ActiveInjections([parse_injection(text) for text in texts], W, **options)  # type: ignore[arg-type]


def words(changes: list[Started | Ended]) -> list[str]:
    return [f"{type(each).__name__} {each.injection.kind}" for each in changes]


class TestWhenItHappens:
    def test_a_percent_is_of_the_worker_steps(self) -> None:
        found = active("straggler:worker=1,at=10%,for=5%,delay=1s")
        assert found.advance(99, 1e6) == []
        assert words(found.advance(101, 1e6)) == ["Started straggler"]
        assert found.advance(149, 1e6) == []
        assert words(found.advance(150, 1e6)) == ["Ended straggler"]
        assert found.advance(W, 1e9) == []

    def test_a_time_is_of_the_training(self) -> None:
        found = active("straggler:worker=1,at=2s,for=3s,delay=1s")
        assert found.advance(900, 1.9) == []
        assert words(found.advance(900, 2.0)) == ["Started straggler"]
        assert words(found.advance(901, 5.1)) == ["Ended straggler"]

    def test_a_time_may_follow_a_percent(self) -> None:
        found = active("straggler:worker=1,at=10%,for=3s,delay=1s")
        assert words(found.advance(100, 50.0)) == ["Started straggler"]
        assert found.advance(200, 52.9) == []
        assert words(found.advance(201, 53.0)) == ["Ended straggler"]

    def test_it_comes_again(self) -> None:
        found = active("straggler:worker=1,at=10%,for=5%,delay=1s,times=3,every=10%")
        seen = [(done, word) for done in range(0, W, 10) for word in words(found.advance(done, 0))]
        assert [done for done, _ in seen] == [100, 150, 200, 250, 300, 350]
        assert {word for _, word in seen[::2]} == {"Started straggler"}

    def test_the_same_one_is_never_there_twice(self) -> None:
        found = active("straggler:worker=1,at=10%,for=99s,delay=1s,times=2,every=10%")
        found.advance(100, 1.0)
        assert words(found.advance(200, 2.0)) == ["Ended straggler", "Started straggler"]
        assert found.delay_seconds(1) == 1.0

    def test_a_kill_does_not_end(self) -> None:
        found = active("kill:ps,at=10%", "kill:worker=0,at=10%")
        assert words(found.advance(100, 1.0)) == ["Started kill", "Started kill"]
        assert found.advance(W, 1e9) == []

    def test_a_kill_happens_once_where_the_run_falls_back(self) -> None:
        found = active("kill:ps,at=10%")
        assert found.advance(100, 1.0)
        assert found.advance(50, 2.0) == []
        assert found.advance(100, 3.0) == []

    def test_a_simulated_worker_comes_back(self) -> None:
        found = active("kill:worker=0,at=0%", "kill:worker=1,at=0%,for=9s", simulated=True)
        assert words(found.advance(0, 0.0)) == ["Started kill", "Started kill"]
        ended = found.advance(1, 3.0)
        assert [each.injection.worker for each in ended] == [0]
        assert words(found.advance(1, 9.0)) == ["Ended kill"]


class TestARunThatGoesOn:
    def test_what_is_over_does_not_happen_again(self) -> None:
        found = active(
            "straggler:worker=1,at=10%,for=5%,delay=1s",
            "straggler:worker=2,at=10%,for=1s,delay=1s",
            "straggler:worker=3,at=1s,for=5%,delay=1s",
            "kill:worker=0,at=20%",
            done=500,
            now_seconds=50.0,
        )
        assert found.advance(500, 50.0) == []

    def test_what_is_going_on_ends_when_it_would_have(self) -> None:
        found = active(
            "straggler:worker=1,at=40%,for=20%,delay=1s",
            # 100 worker-steps take 10 s, so that it began after 40 s.
            "straggler:worker=2,at=40%,for=15s,delay=1s",
            done=500,
            now_seconds=50.0,
        )
        assert words(found.advance(500, 50.0)) == ["Started straggler"] * 2
        assert [each.injection.worker for each in found.advance(520, 55.0)] == [2]
        assert [each.injection.worker for each in found.advance(600, 60.0)] == [1]

    def test_a_fork_still_loses_its_chief(self) -> None:
        found = active("kill:chief,at=60%", done=500, now_seconds=50.0)
        assert words(found.advance(600, 60.0)) == ["Started kill"]

    def test_no_chief_is_killed_for_ever(self) -> None:
        found = active("kill:chief,at=60%", done=500, now_seconds=50.0, resumed=True)
        assert found.advance(W, 60.0) == []

    def test_a_kill_at_the_checkpoint_has_happened(self) -> None:
        options = {"done": 500, "now_seconds": 50.0}
        assert active("kill:ps,at=50%", **options).advance(500, 50.0)
        assert active("kill:ps,at=50%", resumed=True, **options).advance(500, 50.0) == []


class TestHowSlow:
    TEXTS = (
        "straggler:worker=0,at=0%,for=50%,delay=2s",
        "straggler:worker=0,at=0%,for=60%,slowdown=3",
        "straggler:worker=0,at=0%,for=60%,delay=1s",
        "straggler:worker=1,at=0%,for=50%,delay=2s",
    )

    def figures(self, found: ActiveInjections, worker: int) -> tuple[float, float]:
        return found.delay_seconds(worker), found.slowdown(worker)

    def test_several_of_one_worker_add_up(self) -> None:
        found = active(*self.TEXTS)
        assert self.figures(found, 0) == (0.0, 1.0)
        found.advance(0, 0.0)
        assert [self.figures(found, worker) for worker in range(3)] == [
            (3.0, 3.0),
            (2.0, 1.0),
            (0.0, 1.0),
        ]
        found.advance(500, 1.0)
        assert self.figures(found, 0) == (1.0, 3.0)
        found.advance(600, 1.0)
        assert self.figures(found, 0) == (0.0, 1.0)

    def test_nothing_outlives_its_run(self) -> None:
        found = active(*self.TEXTS)
        found.advance(0, 0.0)
        assert sorted(one.injection.text for one in found.end()) == sorted(
            parse_injection(text).text for text in self.TEXTS
        )
        assert [self.figures(found, worker) for worker in range(2)] == [(0.0, 1.0)] * 2
        assert found.end() == []


extents = st.integers(0, 40).map("{}%".format) | st.integers(0, 40).map("{}s".format)
lengths = st.integers(1, 40).map("{}%".format) | st.integers(1, 40).map("{}s".format)
steps = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 6)), max_size=30)


@given(
    texts=st.lists(
        st.builds(
            "straggler:worker={},at={},for={},delay={}s".format,
            st.integers(0, 2),
            extents,
            lengths,
            st.integers(1, 3),
        ),
        max_size=4,
        unique=True,
    ),
    moves=steps,
)
def test_every_end_has_its_beginning_and_nothing_is_left(
    texts: list[str], moves: list[tuple[int, int]]
) -> None:
    found = active(*texts)
    done, now = 0, 0.0
    going_on: list[object] = []
    seen = 0
    for more, seconds in [*moves, (W, 100), (0, 100)]:
        done, now = min(W, done + more), now + seconds
        for change in found.advance(done, now):
            if isinstance(change, Started):
                seen += 1
                going_on.append(change.injection)
            else:
                going_on.remove(change.injection)
        for worker in range(3):
            expected = sum(
                one.delay_seconds
                for one in going_on
                if one.worker == worker  # type: ignore[attr-defined]
            )
            assert found.delay_seconds(worker) == pytest.approx(expected)
    assert seen == len(texts)
    assert going_on == []
