"""Tests the model beside the training, on copies of the parameters."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.storage.metrics import is_at_chance
from syncswitch.storage.records import Evaluation
from syncswitch.trainers.cluster.program import Program
from syncswitch.trainers.cluster.tensorflow_api import executor_scope, new_executor, tf
from syncswitch.trainers.data import Data
from syncswitch.trainers.keras_parts import build_loss, build_metric, loss_settings
from syncswitch.trainers.workload import Workload

__all__ = ["EvaluationRequest", "Evaluator", "ModelTester"]

_BATCH = 512
# Where one class makes more of the test set, a good model may be at the share of that class.
_LARGEST_CHANCE = 0.6
# Copies of the model that wait for their test; each holds the memory of a model.
_MOST_WAITING = 2


class ModelTester:
    """Computes the test accuracy of flat parameters on the chief's device; traced once."""

    def __init__(self, program: Program, workload: Workload, data: Data, device: str) -> None:
        self._program = program
        self._workload = workload
        self._data = data
        self._device = device
        with tf.device(device):
            self._batches = [
                (
                    tf.constant(data.test_inputs[start : start + _BATCH]),
                    tf.constant(data.test_labels[start : start + _BATCH]),
                )
                for start in range(0, len(data.test_inputs), _BATCH)
            ]
            self._metric = self._build_metric()
            self._update = tf.function(self._traced_update, autograph=False, reduce_retracing=True)
        self.accuracy(*program.snapshot())

    def accuracy(self, parameters: Any, statistics: Any) -> float:
        """Test accuracy, 0 to 1; NaN where the parameters are not finite."""
        with tf.device(self._device):
            parameters, statistics = tf.identity(parameters), tf.identity(statistics)
            finite = tf.reduce_all(tf.math.is_finite(parameters))
            if not (finite & tf.reduce_all(tf.math.is_finite(statistics))).numpy():
                return math.nan
            self._metric.reset_state()
            for inputs, labels in self._batches:
                self._update(parameters, statistics, inputs, labels)
            return float(np.asarray(self._metric.result()))

    def is_chance(self, accuracy: float) -> bool:
        """Whether this accuracy is no better than guessing; False where that is not known."""
        chance = self._data.chance_accuracy
        if chance is None or chance > _LARGEST_CHANCE or self._workload.metric is not None:
            return False
        return is_at_chance(accuracy, chance, len(self._data.test_labels))

    def _traced_update(self, parameters: Any, statistics: Any, inputs: Any, labels: Any) -> None:
        inputs, labels = self._test_batch(inputs, labels)
        self._metric.update_state(
            labels, self._program.function.predict(parameters, statistics, inputs)
        )

    def _build_metric(self) -> Any:
        from keras import metrics

        metric = build_metric(self._workload)
        if metric is not None:
            return metric
        inputs, labels = self._test_batch(*self._batches[0])
        parameters, statistics = map(tf.identity, self._program.snapshot())
        outputs = self._program.function.predict(parameters, statistics, inputs)
        if outputs.shape[-1] == 1:
            return self._binary_accuracy(labels)
        if labels.shape.rank > 1 and labels.shape[-1] == outputs.shape[-1]:
            return metrics.CategoricalAccuracy()
        return metrics.SparseCategoricalAccuracy()

    def _binary_accuracy(self, labels: Any) -> Any:
        from keras import metrics

        if not np.isin(labels, (0, 1)).all():
            raise WorkloadError(
                f"workload {self._workload.name!r}: one output and labels other than 0 and 1 have "
                "no accuracy; give a metric between 0 and 1, where more is better"
            )
        from_logits = loss_settings(build_loss(self._workload)).get("from_logits", False)
        return metrics.BinaryAccuracy(threshold=0.0 if from_logits else 0.5)

    def _test_batch(self, inputs: Any, labels: Any) -> tuple[Any, Any]:
        if self._data.test_transform is None:
            return inputs, labels
        return self._data.test_transform(inputs, labels)


@dataclass(frozen=True)
class EvaluationRequest:
    """A copy of the model on its way to be tested."""

    worker_step: int
    elapsed_seconds: float
    training_loss: float
    parameters: Any
    statistics: Any


class Evaluator:
    """Takes requests from the training threads and answers them, in order, in a thread of its own.

    Args:
        tester: Computes the accuracy.
        on_evaluation: Called in that thread with each evaluation.
    """

    def __init__(self, tester: ModelTester, on_evaluation: Callable[[Evaluation], None]) -> None:
        self._tester = tester
        self._on_evaluation = on_evaluation
        self._requests: queue.Queue[EvaluationRequest | None] = queue.Queue(_MOST_WAITING)
        self._error: BaseException | None = None
        self._abandoned = False
        self._thread = threading.Thread(target=self._work, name="evaluator", daemon=True)
        self._thread.start()

    def submit(self, request: EvaluationRequest) -> float:
        """Asks for a test.

        Returns:
            Seconds that it had to wait because tests take longer than the training between them.
        """
        start = time.perf_counter()
        self._requests.put(request)
        return time.perf_counter() - start

    def finish(self, meanwhile: Callable[[], None], every_seconds: float) -> None:
        """Waits until every request is answered.

        Args:
            meanwhile: Called again and again while it waits.
            every_seconds: How often.

        Raises:
            BaseException: Whatever a test or `on_evaluation` raised.
        """
        self._requests.put(None)
        while self._thread.is_alive():
            self._thread.join(every_seconds)
            meanwhile()
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        """Answers nothing any longer, and ends with the test that is under way."""
        self._abandoned = True
        self._requests.put(None)
        self._thread.join()

    def _work(self) -> None:
        with executor_scope(new_executor()):
            while (request := self._requests.get()) is not None:
                if self._error is not None or self._abandoned:
                    continue
                try:
                    accuracy = self._tester.accuracy(request.parameters, request.statistics)
                    self._on_evaluation(
                        Evaluation(
                            request.worker_step,
                            request.elapsed_seconds,
                            accuracy,
                            request.training_loss,
                        )
                    )
                except BaseException as error:
                    self._error = error
