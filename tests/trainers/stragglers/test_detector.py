from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.traces import NOISES, recorded_pushes, round_seconds
from syncswitch.storage.records.trial import RunEvent
from syncswitch.trainers.stragglers.detector import DetectorSettings, StragglerDetector, compare

QUICK = DetectorSettings(window_steps=2, consecutive_windows=3)
SECONDS = st.floats(1e-3, 1e3)
ROUNDS = st.integers(1, 6).flatmap(
    lambda n: st.lists(st.lists(SECONDS, min_size=n, max_size=n), min_size=4, max_size=20)
)


def detected(
    rounds: Sequence[Sequence[float]], settings: DetectorSettings = QUICK
) -> list[int | None]:
    """The workers that are detected, in order; none leaves."""
    return [finding.worker for finding in findings(rounds, settings) if finding.kind == "detected"]


def findings(
    rounds: Sequence[Sequence[float]], settings: DetectorSettings = QUICK
) -> list[RunEvent]:
    detector = StragglerDetector(range(len(rounds[0])), settings)
    return [one for number, row in enumerate(rounds) for one in judged(detector, row, number)]


def judged(
    detector: StragglerDetector, seconds: Sequence[float], now_seconds: float
) -> list[RunEvent]:
    """One step of every worker, and a judgement."""
    for worker, busy_seconds in enumerate(seconds):
        detector.observe(worker, busy_seconds)
    return detector.judge(0, now_seconds)


def kinds(found: Sequence[RunEvent]) -> list[tuple[str, int | None]]:
    return [(finding.kind, finding.worker) for finding in found]


def rates(slow: int, workers: int, slowdown: float) -> Mapping[int, float]:
    return {worker: 1.0 / slowdown if worker < slow else 1.0 for worker in range(workers)}


class TestPaperRule:
    @pytest.mark.parametrize("slowdown", [1.001, 1.2, 3.0, 1000.0])
    def test_alone_it_finds_k_equal_stragglers_if_and_only_if_they_are_less_than_half(
        self, slowdown: float
    ) -> None:
        for workers in range(1, 17):
            for slow in range(workers + 1):
                found = compare(rates(slow, workers, slowdown), relative_floor=0.0).slow
                assert found == (frozenset(range(slow)) if slow < workers / 2 else frozenset())

    def test_limit_and_median_are_those_of_the_paper_and_the_floor_wants_more(self) -> None:
        found = compare({0: 2.0, 1: 4.0, 2: 4.0, 3: 6.0}, relative_floor=0.1)
        assert (found.median, found.limit) == (4.0, pytest.approx(4.0 - 2.0**0.5))
        assert found.slow == {0}
        assert compare(rates(1, 8, 1.12), relative_floor=0.10).slow == {0}
        assert not compare(rates(1, 8, 1.10), relative_floor=0.10).slow

    @given(st.floats(1e-3, 1e3), st.integers(1, 20))
    def test_equal_speeds_are_equal_in_spite_of_rounding(self, seconds: float, n: int) -> None:
        noisy = {worker: 3.0 / (seconds * (1 + worker * 1e-16) * 3) for worker in range(n)}
        assert not compare(noisy, relative_floor=0.0).slow


FAIR, SLOW = [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 4.0, 1.0]
SOON = DetectorSettings(2, 3, permanent_after_seconds=10.0)


@pytest.mark.parametrize(
    ("rounds", "settings", "expected"),
    [
        # Judged slow in rounds 5 to 7; from round 11 on its window is fast.
        ([*[FAIR] * 5, *[SLOW] * 5, *[FAIR] * 6], QUICK, "detected 2, cleared 2 after 6"),
        # One judgement between starts the count again.
        ([FAIR, *[SLOW, FAIR, FAIR] * 5], QUICK, ""),
        ([FAIR, *[SLOW, SLOW, FAIR] * 5], QUICK, "detected 2"),
        # It is permanent once, unless it was cleared.
        ([SLOW] * 40, SOON, "detected 2, permanent 2 after 10"),
        (
            [*[SLOW] * 20, *[FAIR] * 5, *[SLOW] * 20],
            SOON,
            "detected 2, permanent 2 after 10, cleared 2 after 20, detected 2,"
            " permanent 2 after 10",
        ),
        # Nobody is judged before its window is full.
        ([SLOW] * 4, DetectorSettings(5, 1), ""),
        ([SLOW] * 5, DetectorSettings(5, 1), "detected 2"),
        # Less than the clock can tell.
        ([[0.0] * 3] * 9, QUICK, ""),
        ([[-1e-9, 1.0, 1.0, 1.0, 5.0]] * 9, QUICK, "detected 4"),
        ([[-1e-9, 1.0, 1.0, 5.0], [1.0] * 3 + [5.0]] * 9, QUICK, "detected 3"),
    ],
)
def test_findings(
    rounds: Sequence[Sequence[float]], settings: DetectorSettings, expected: str
) -> None:
    """A round takes a second."""
    found = [
        f"{one.kind} {one.worker}" + ("" if one.seconds is None else f" after {one.seconds:g}")
        for one in findings(rounds, settings)
    ]
    assert ", ".join(found) == expected


def test_the_reason_has_the_figures() -> None:
    found = findings([[0.2, 0.2, 0.4, 0.2]] * 40, SOON)
    assert [one.reason for one in found] == [
        "worker 2 does 2.5 worker-steps/s, the median is 5, below mean - std 3.29, "
        "in 3 windows running",
        "worker 2 does 2.5 worker-steps/s, the median is 5, and has been slow for 10 s: "
        "not transient, replace it",
    ]


def test_no_new_step_no_new_judgement() -> None:
    detector = StragglerDetector(range(4), QUICK)
    for _ in range(2):
        judged(detector, [1.0, 1.0, 1.0, 9.0], 0.0)
    for _ in range(20):
        for worker in range(3):
            detector.observe(worker, 1.0)
        assert detector.judge(0, 0.0) == []
    detector.observe(3, 9.0)
    detector.judge(0, 0.0)
    assert not detector.stragglers
    detector.observe(3, 9.0)
    assert kinds(detector.judge(0, 0.0)) == [("detected", 3)]
    assert detector.stragglers == {3}


class TestProperties:
    @given(ROUNDS, st.randoms(use_true_random=False))
    def test_other_numbers_for_the_workers_give_the_same_findings(
        self, rounds: list[list[float]], random: object
    ) -> None:
        order = list(range(len(rounds[0])))
        random.shuffle(order)  # type: ignore[attr-defined]
        renamed = findings([[row[worker] for worker in order] for row in rounds])
        same = sorted((one.seconds or 0.0, one.kind, one.worker) for one in findings(rounds))
        assert sorted((f.seconds or 0.0, f.kind, order[f.worker or 0]) for f in renamed) == same

    @given(ROUNDS, st.integers(-20, 20))
    def test_a_faster_cluster_gives_the_same_findings(
        self, rounds: list[list[float]], power: int
    ) -> None:
        # Powers of two leave no rounding behind.
        scaled = [[seconds * 2.0**power for seconds in row] for row in rounds]
        assert kinds(findings(scaled)) == kinds(findings(rounds))


class TestTraces:
    @pytest.mark.parametrize("noise", NOISES)
    @pytest.mark.parametrize("workers", [4, 8, 16])
    def test_in_calm_rounds_false_alarms_are_rare(self, workers: int, noise: str) -> None:
        rounds = round_seconds(np.random.default_rng(workers), noise, 1000, workers)
        assert len(detected(rounds.tolist(), DetectorSettings())) <= 2

    @pytest.mark.parametrize(("noise", "slowdown"), [("10 %", 1.2), ("10 %", 1.5), ("30 %", 2.0)])
    @pytest.mark.parametrize(("workers", "stragglers"), [(4, 1), (8, 1), (8, 2), (16, 1), (16, 2)])
    def test_stragglers_are_found(
        self, workers: int, stragglers: int, noise: str, slowdown: float
    ) -> None:
        rounds = round_seconds(np.random.default_rng(workers), noise, 80, workers)
        rounds[:, :stragglers] *= slowdown
        assert set(detected(rounds.tolist(), DetectorSettings())) == set(range(stragglers))

    def test_the_recorded_straggler_is_found_and_cleared(self) -> None:
        pushes = recorded_pushes()
        detector = StragglerDetector(range(4))
        found: dict[str, int] = {}
        for start in range(0, len(pushes), 4):
            for push in pushes[start : start + 4]:
                detector.observe(push.worker, push.busy_seconds)
            for finding in detector.judge(0, 0.0):
                assert finding.worker == 2
                assert finding.kind not in found
                found[finding.kind] = start
        assert found.keys() == {"detected", "cleared"}
        assert 400 + 9 * 4 <= found["detected"] <= 400 + 15 * 4
        assert 800 + 9 * 4 <= found["cleared"] <= 800 + 25 * 4
