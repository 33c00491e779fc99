from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest

from syncswitch.storage.records.trial import Evaluation
from syncswitch.trainers.cluster.chief.evaluator import Evaluator


class Held(Evaluator):
    """Tests begin once they are let; the first parameter is the accuracy."""

    further = ()

    def __init__(self, model_bytes: int = 1 << 40) -> None:
        self.begun, self.is_let = threading.Event(), threading.Event()
        self.seen: list[Evaluation] = []
        super().__init__(self, model_bytes, self.seen.append)  # type: ignore[arg-type]

    def accuracy(self, parameters: Any, statistics: Any) -> float:
        self.begun.set()
        assert self.is_let.wait(20)
        if parameters < 0:
            raise RuntimeError("broken")
        return float(parameters)

    def ask(self, step: int, accuracy: float = 0.5) -> None:
        self.submit(Evaluation(step, step / 10, math.nan, 0.5), (accuracy, None))


def test_a_few_requests_do_not_wait_and_all_are_answered_in_order() -> None:
    evaluator = Held()
    for step in range(2):
        evaluator.ask(step, step / 10)
    assert evaluator.seen == []
    evaluator.is_let.set()
    for step in range(2, 5):
        evaluator.ask(step, step / 10)
    evaluator.finish(lambda: None, 1.0)
    assert evaluator.seen == [Evaluation(step, step / 10, step / 10, 0.5) for step in range(5)]


@pytest.mark.parametrize(("model_bytes", "waiting"), [(1 << 40, 2), (1 << 28, 4), (100, 16)])
def test_the_training_waits_for_tests_that_take_longer(model_bytes: int, waiting: int) -> None:
    """The number of copies that may wait depends on their size."""
    evaluator = Held(model_bytes)
    for step in range(1 + waiting):
        evaluator.ask(step)
    with ThreadPoolExecutor(1) as pool:
        late = pool.submit(evaluator.ask, 99)
        assert wait([late], 0.3).not_done
        evaluator.is_let.set()
    evaluator.finish(lambda: None, 1.0)
    assert len(evaluator.seen) == waiting + 2


@pytest.mark.parametrize("how", [Evaluator.abandon, Evaluator.drop])
def test_what_is_abandoned_is_not_answered_and_whoever_waits_goes_on(
    how: Callable[[Evaluator], None],
) -> None:
    """Otherwise Ctrl-C would wait for the training, and the training forever."""
    evaluator = Held()
    evaluator.ask(0)
    assert evaluator.begun.wait(20)
    with ThreadPoolExecutor(6) as pool:
        waiting = [pool.submit(evaluator.ask, step) for step in range(1, 7)]
        threading.Timer(0.3, evaluator.is_let.set).start()
        how(evaluator)
        for one in waiting:
            one.result(20)
    assert [one.worker_step for one in evaluator.seen] == [0]
    evaluator.ask(9)
    evaluator.abandon()


def test_a_failed_test_is_raised_at_the_end_and_somebody_may_do_something_meanwhile() -> None:
    evaluator, calls = Held(), list[int]()

    def meanwhile() -> None:
        calls.append(1)
        if len(calls) == 3:
            evaluator.is_let.set()

    for step, accuracy in enumerate((0.5, -1.0)):
        evaluator.ask(step, accuracy)
    with pytest.raises(RuntimeError, match="broken"):
        evaluator.finish(meanwhile, 0.05)
    assert len(calls) >= 3
    assert [one.worker_step for one in evaluator.seen] == [0]
