from __future__ import annotations

import pytest

from syncswitch.trainers.faults.active import ActiveInjections
from syncswitch.trainers.faults.injections import parse_injection

W = 1000


def active(*texts: str, **options: object) -> ActiveInjections:
    return ActiveInjections([parse_injection(text) for text in texts], W, **options)  # type: ignore[arg-type]


def slow(worker: int, at: str, lasting: str) -> str:
    return f"straggler:worker={worker},at={at},for={lasting},delay=1s"


# 100 worker-steps take 10 s.
HALF = {"done": 500, "now_seconds": 50.0}
RESUMED = {**HALF, "resumed": True}


@pytest.mark.parametrize(
    ("texts", "options", "course"),
    [
        # A percent is of the worker-steps, a time of the training; one may follow the other.
        ([slow(1, "10%", "5%")], {}, "99 1e6; 101 1e6 +1; 149 1e6; 150 1e6 -1; 1000 1e9"),
        ([slow(1, "2s", "3s")], {}, "900 1.9; 900 2.0 +1; 901 5.1 -1"),
        ([slow(1, "10%", "3s")], {}, "100 50.0 +1; 200 52.9; 201 53.0 -1"),
        # A kill does not end, and happens once where the run falls back.
        (["kill:ps,at=10%", "kill:worker=0,at=10%"], {}, "100 1 +ps +0; 50 2; 100 3; 1000 1e9"),
        # A simulated worker comes back.
        (["kill:worker=0,at=0%,for=3s"], {}, "0 0 +0; 1 2.9; 1 3.0 -0"),
        # Where a run goes on, what is over does not happen again.
        (
            [slow(1, "10%", "5%"), slow(2, "10%", "1s"), slow(3, "1s", "5%"), "kill:ps,at=20%"],
            HALF,
            "500 50.0",
        ),
        # What ends just then is over, what ends later is not.
        ([slow(1, "40%", "10%"), slow(2, "40%", "10.1%")], HALF, "500 50.0 +2; 501 50.1 -2"),
        # What is going on ends when it would have: the second one began after 40 s.
        (
            [slow(1, "40%", "20%"), slow(2, "40%", "15s")],
            HALF,
            "500 50.0 +1 +2; 520 55.0 -2; 600 60.0 -1",
        ),
        # A fork still loses its chief, but no chief is killed for ever.
        (["kill:chief,at=60%"], HALF, "600 60.0 +chief"),
        (["kill:chief,at=60%"], RESUMED, "1000 60.0"),
        # A kill at the checkpoint has happened.
        (["kill:ps,at=50%"], HALF, "500 50.0 +ps"),
        (["kill:ps,at=50%"], RESUMED, "500 50.0"),
    ],
)
def test_when_it_happens(texts: list[str], options: dict[str, object], course: str) -> None:
    """At so many worker-steps and seconds it begins (+) or ends (-) for a worker or role."""
    found = active(*texts, **options)
    for step in course.split(";"):
        done, now_seconds, *expected = step.split()
        seen = []
        for injection, is_start in found.advance(int(done), float(now_seconds)):
            worker = injection.worker
            whom = injection.role if worker is None else worker
            seen.append(f"{'+' if is_start else '-'}{whom}")
        assert seen == expected
