"""The thread that copies to MLflow: never in the way, and complete in the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from syncswitch.storage.errors import RetryableError
from syncswitch.trainers.run import mlflow
from syncswitch.trainers.run.mlflow import Copier


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(mlflow, "_LONGEST_PAUSE_SECONDS", 0.02)


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_what_is_new_is_copied_and_the_end_always() -> None:
    copies: list[int] = []
    copier = Copier(lambda: copies.append(1), pytest.fail, "")
    copier.wake()
    wait_for(lambda: len(copies) == 1)
    copier.close()
    assert len(copies) == 2


def test_each_outage_costs_one_line_and_what_was_missed_is_copied() -> None:
    lines: list[str] = []
    answers = [True, False, False, False, True, False, True]

    def copy() -> None:
        if answers and not answers.pop(0):
            raise RetryableError("MLflow at X does not answer")

    copier = Copier(copy, lines.append, "later")
    for left in (6, 2, 0):
        copier.wake()
        wait_for(lambda left=left: len(answers) <= left)  # type: ignore[misc]
    copier.close()
    assert lines == ["MLflow at X does not answer; later"] * 2


def test_a_server_that_hangs_does_not_hold_up_the_end() -> None:
    lines: list[str] = []
    is_over = threading.Event()
    copier = Copier(lambda: is_over.wait(30), lines.append, "later")
    begun = time.monotonic()
    copier.close(0.05)
    assert time.monotonic() - begun < 20
    assert lines == ["MLflow did not take everything within 0.05 s; later"]
    is_over.set()


def test_no_fault_of_anybody_gets_out() -> None:
    lines: list[str] = []

    def copy() -> None:
        raise ValueError("a value\nnobody foresaw")

    Copier(copy, lines.append, "later").close()
    assert lines == ["ValueError: a value nobody foresaw; later"]
