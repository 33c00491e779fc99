"""The evaluator: tests copies of the model while the training goes on."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from syncswitch.storage.records.trial import Evaluation
from syncswitch.trainers.model.tester import ModelTester

# The number of copies that may wait for a test, each with the size of the model.
_LEAST_WAITING, _MOST_WAITING = 2, 16
_WAITING_BYTES = 1 << 30
_PATIENCE_SECONDS = 0.1
# A test that takes longer is abandoned, and ends with the process.
_LEAVE_SECONDS = 30.0


class Evaluator:
    """Tests copies of the model, in order, in a thread of its own."""

    def __init__(
        self, tester: ModelTester, model_bytes: int, on_evaluation: Callable[[Evaluation], None]
    ) -> None:
        self._tester = tester
        self._on_evaluation = on_evaluation
        self._requests: queue.Queue[tuple[Evaluation, Sequence[Any]] | None] = queue.Queue(
            min(_MOST_WAITING, max(_LEAST_WAITING, _WAITING_BYTES // max(1, model_bytes)))
        )
        self._error: BaseException | None = None
        self._abandoned = False
        self._thread = threading.Thread(target=self._work, name="evaluator", daemon=True)
        self._thread.start()

    def submit(self, evaluation: Evaluation, model: Sequence[Any]) -> None:
        """Requests an evaluation, whose accuracy is to be found; waits if too many are pending.

        `model` holds the parameters, the statistics, and the embedding rows that the test needs.
        """
        # In slices: once evaluations are abandoned, nobody takes requests any more.
        while not self._abandoned:
            with contextlib.suppress(queue.Full):
                self._requests.put((evaluation, model), timeout=_PATIENCE_SECONDS)
                break

    def catch_up(self) -> None:
        """Waits until all requests so far are answered, or skipped after a failure."""
        self._requests.join()

    def drop(self) -> None:
        """Skips all requests except the one under way, and waits for that."""
        self._abandoned = True
        self.catch_up()

    def finish(self, meanwhile: Callable[[], None], every_seconds: float) -> None:
        """Waits until all requests are answered; raises whatever a test or `on_evaluation` raised.

        Calls `meanwhile` every `every_seconds` while it waits.
        """
        self._requests.put(None)
        while self._thread.is_alive():
            self._thread.join(every_seconds)
            meanwhile()
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        """Ends the thread after the evaluation that is under way."""
        self._abandoned = True
        with contextlib.suppress(queue.Full):
            self._requests.put(None, timeout=_LEAVE_SECONDS)
        self._thread.join(_LEAVE_SECONDS)

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            try:
                if self._error is None and not self._abandoned:
                    evaluation, model = request
                    accuracy = self._tester.accuracy(*model)
                    self._on_evaluation(
                        replace(evaluation, accuracy=accuracy, further=self._tester.further)
                    )
            except BaseException as error:
                self._error = error
            finally:
                self._requests.task_done()
