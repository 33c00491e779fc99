from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from syncswitch.storage.records.trial import Evaluation
from syncswitch.trainers.cluster.chief.evaluator import EvaluationRequest, Evaluator


class FakeTester:
    """Returns the first parameter as the accuracy."""

    further = ()

    def __init__(self) -> None:
        self.first = threading.Event()

    def accuracy(self, parameters: Any, statistics: Any) -> float:
        assert self.first.wait(20)
        if parameters < 0:
            raise RuntimeError("broken")
        return float(parameters)


def request(step: int, accuracy: float) -> EvaluationRequest:
    return EvaluationRequest(step, step / 10, 0.5, (accuracy, None))


def finish(evaluator: Evaluator) -> None:
    evaluator.finish(lambda: None, 1.0)


class TestEvaluator:
    def test_a_few_requests_do_not_wait_and_all_are_answered_in_order(self) -> None:
        tester = FakeTester()
        seen: list[Evaluation] = []
        evaluator = Evaluator(tester, 1 << 40, seen.append)  # type: ignore[arg-type]
        for step in range(2):
            evaluator.submit(request(step, step / 10))
        assert seen == []
        tester.first.set()
        for step in range(2, 5):
            evaluator.submit(request(step, step / 10))
        finish(evaluator)
        assert seen == [Evaluation(step, step / 10, step / 10, 0.5) for step in range(5)]

    @pytest.mark.parametrize(("model_bytes", "waiting"), [(1 << 40, 2), (1 << 28, 4), (100, 16)])
    def test_the_training_waits_for_tests_that_take_longer(
        self, model_bytes: int, waiting: int
    ) -> None:
        """The number of copies that may wait depends on their size."""
        tester = FakeTester()
        evaluator = Evaluator(tester, model_bytes, lambda evaluation: None)  # type: ignore[arg-type]
        for step in range(1 + waiting):
            evaluator.submit(request(step, 0.5))
        late = threading.Thread(target=evaluator.submit, args=(request(99, 0.5),), daemon=True)
        late.start()
        late.join(0.3)
        assert late.is_alive()
        tester.first.set()
        late.join(20)
        assert not late.is_alive()
        finish(evaluator)

    @pytest.mark.parametrize("how", [Evaluator.abandon, Evaluator.drop])
    def test_what_is_abandoned_is_not_answered(self, how: Callable[[Evaluator], None]) -> None:
        tester = FakeTester()
        seen: list[Evaluation] = []
        evaluator = Evaluator(tester, 1 << 40, seen.append)  # type: ignore[arg-type]
        for step in range(3):
            evaluator.submit(request(step, 0.5))
        threading.Timer(0.3, tester.first.set).start()
        how(evaluator)
        assert len(seen) == 1
        evaluator.abandon()

    def test_who_waits_for_an_abandoned_test_goes_on(self) -> None:
        """Otherwise Ctrl-C would wait for the training, and the training forever."""
        tester = FakeTester()
        evaluator = Evaluator(tester, 1 << 40, lambda evaluation: None)  # type: ignore[arg-type]
        waiting = [
            threading.Thread(target=evaluator.submit, args=(request(step, 0.5),), daemon=True)
            for step in range(6)
        ]
        for thread in waiting:
            thread.start()
        threading.Timer(0.3, tester.first.set).start()
        evaluator.abandon()
        for thread in waiting:
            thread.join(20)
            assert not thread.is_alive()
        evaluator.submit(request(9, 0.5))

    def test_somebody_may_do_something_meanwhile(self) -> None:
        tester = FakeTester()
        evaluator = Evaluator(tester, 1 << 40, lambda evaluation: None)  # type: ignore[arg-type]
        evaluator.submit(request(0, 0.5))
        threading.Timer(0.5, tester.first.set).start()
        calls: list[int] = []
        evaluator.finish(lambda: calls.append(1), 0.05)
        assert len(calls) > 3

    def test_a_failed_test_is_raised_at_the_end(self) -> None:
        tester = FakeTester()
        tester.first.set()
        seen: list[Evaluation] = []
        evaluator = Evaluator(tester, 1 << 40, seen.append)  # type: ignore[arg-type]
        for step, accuracy in enumerate((0.5, -1.0, 0.7)):
            evaluator.submit(request(step, accuracy))
        with pytest.raises(RuntimeError, match="broken"):
            finish(evaluator)
        assert [evaluation.worker_step for evaluation in seen] == [0]
