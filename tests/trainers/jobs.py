"""Small workloads with known answers, and short ways to say a trial of one of them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialRecord, TrialSpec
from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.trainer import Observer, Verdict
from syncswitch.trainers.workloads.digits import workload as digits


@functools.cache
def digits_data() -> Data:
    return digits.data()


def digits_model(*hidden: Any, **last: Any) -> Any:
    from keras import Input, Sequential, layers

    output = layers.Dense(10, activation="softmax", **last)
    return Sequential([Input((8, 8, 1)), layers.Flatten(), *hidden, output])


def dense_model() -> Any:
    from keras import layers

    return digits_model(layers.Dense(24, activation="relu"))


def normalized_model() -> Any:
    from keras import layers

    return digits_model(
        layers.Dense(16, use_bias=False),
        layers.BatchNormalization(momentum=0.9),
        layers.Activation("relu"),
    )


def idle_model() -> Any:
    """Always the same probability for each class, until it is trained."""
    return digits_model(kernel_initializer="zeros")


DENSE = Workload(
    name="dense-digits",
    model=dense_model,
    data=digits_data,
    data_set="digits",
    total_worker_steps=403,
    batch_size=16,
    learning_rate=0.02,
    momentum=0.9,
    learning_rate_boundaries=((200, 0.1), (300, 0.01)),
    evaluation_interval_worker_steps=40,
)

# For what is only described: its model is built once.
DESCRIBED = replace(DENSE, model=functools.cache(dense_model))

# As short as a job can be that learns enough to be told from one that does not.
BRIEF = replace(
    DENSE,
    total_worker_steps=163,
    learning_rate=0.1,
    momentum=0.5,
    learning_rate_boundaries=((80, 0.1), (120, 0.01)),
    evaluation_interval_worker_steps=20,
)


def mean_output(labels: Any, outputs: Any) -> Any:
    """A loss that does not look at the labels, for models that are linear in their parameters."""
    return outputs


# What the gradient of `linear_model` is, whatever its parameters are.
CONSTANT_GRADIENT = np.array([1.0, 2.0, -3.0, 0.5], np.float32)


def linear_model(features: int = 4) -> Any:
    from keras import Input, Sequential, layers

    return Sequential(
        [Input((features,)), layers.Dense(1, use_bias=False, kernel_initializer="ones")]
    )


def constant_data(examples: int = 64) -> Data:
    inputs = np.tile(CONSTANT_GRADIENT, (examples, 1))
    labels = np.zeros((examples, 1), np.float32)
    return Data(inputs, labels, inputs[:8], labels[:8])


CONSTANT = Workload(
    name="constant-gradient",
    model=linear_model,
    data=constant_data,
    data_set="constant",
    total_worker_steps=200,
    batch_size=4,
    learning_rate=0.01,
    momentum=0.9,
    loss=lambda: mean_output,
    evaluation_interval_worker_steps=1000,
)


# Without momentum each gradient moves the parameters by the same, exactly, whenever it comes.
COUNTING = replace(
    CONSTANT,
    name="counting",
    total_worker_steps=400,
    learning_rate=2.0**-10,
    momentum=0.0,
    evaluation_interval_worker_steps=50,
)


def counted(worker_steps: float = COUNTING.total_worker_steps) -> np.ndarray:
    """Parameters of `COUNTING` after so many worker-steps, whoever did them."""
    return 1 - worker_steps * COUNTING.learning_rate * CONSTANT_GRADIENT


def momentum_answer(rates: Sequence[float], momentum: float) -> tuple[np.ndarray, np.ndarray]:
    """Parameters and momentum of `CONSTANT` after one update with each of `rates`, in float64."""
    parameters = np.ones(4)
    accumulator = np.zeros(4)
    for rate in rates:
        accumulator = momentum * accumulator + CONSTANT_GRADIENT
        parameters = parameters - rate * accumulator
    return parameters, accumulator


def own_momentum_answer(
    rates: Sequence[float], workers: int, rounds: Sequence[float] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """The same of workers that take turns after rounds, each with its own momentum of 0.9."""
    parameters, accumulator = momentum_answer(rounds, 0.9)
    own = [accumulator] * workers
    for turn, rate in enumerate(rates):
        one = turn % workers
        own[one] = 0.9 * own[one] + CONSTANT_GRADIENT
        parameters = parameters - rate * (0.9 * own[one] + CONSTANT_GRADIENT)
    return parameters, np.mean(own, axis=0)


def phases_answer(workload: Workload, record: TrialRecord) -> np.ndarray:
    """Parameters after rounds of the first protocol, BSP, and pushes of the second one.

    The second one's momentum is zero.
    """
    workers, rate = record.spec.identity.workers, workload.learning_rate
    assert not callable(rate)
    parameters, accumulator = np.ones(4), np.zeros(4)
    for phase in record.phases:
        steps = phase.end_worker_step - phase.start_worker_step
        is_first = phase.protocol == "bsp"
        short = [steps % workers] * bool(steps % workers)
        sizes = [workers] * (steps // workers) + short if is_first else [1] * steps
        for size in sizes:
            accumulator = workload.momentum * is_first * accumulator + CONSTANT_GRADIENT
            parameters = parameters - size * rate * accumulator
    return parameters


def spec_of(
    workload: Workload,
    workers: int,
    switch_percent: float,
    seed: int = 1,
    protocols: tuple[str, str] = ("bsp", "asp"),
    **fields: Any,
) -> TrialSpec:
    """A trial; builds the model for its identity, so TensorFlow must be ready."""
    return TrialSpec(
        identity=_identity(workload, workers, *protocols),
        switch_percent=switch_percent,
        seed=seed,
        **fields,
    )


def pace(workers: int) -> tuple[str, ...]:
    """Slows each step, so that nobody has done them all before a lost worker is back."""
    return tuple(f"straggler:worker={one},at=0%,for=100%,delay=3ms" for one in range(workers))


# To build a model takes longer than many a test.
_identity = functools.cache(workload_identity)


class RecordingObserver(Observer):
    """Remembers what it is told; finds out when two threads call it at once."""

    def __init__(
        self,
        answer: Callable[[Evaluation], Verdict] | None = None,
        at_progress: Callable[[int], object] = lambda worker_step: None,
    ) -> None:
        self.evaluations: list[Evaluation] = []
        self.progress: list[int] = []
        self.events: list[RunEvent] = []
        self.overlaps = 0
        self._answer, self._at_progress = answer, at_progress
        self._inside = threading.Lock()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        is_alone = self._inside.acquire(blocking=False)
        self.overlaps += not is_alone
        try:
            yield
        finally:
            if is_alone:
                self._inside.release()

    def on_progress(self, worker_step: int) -> None:
        with self._alone():
            self.progress.append(worker_step)
            self._at_progress(worker_step)

    def on_evaluation(self, evaluation: Evaluation) -> Verdict:
        with self._alone():
            self.evaluations.append(evaluation)
            return self._answer(evaluation) if self._answer else Verdict.CONTINUE

    def on_event(self, event: RunEvent) -> None:
        with self._alone():
            self.events.append(event)


def _passing_through(note: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """A transform of the data that first tells a function inputs and worker-step of a batch."""

    def transform(inputs: Any, labels: Any, seed: Any) -> tuple[Any, Any]:
        import tensorflow as tf

        passed = tf.py_function(note, [inputs, seed[1]], tf.int64)
        with tf.control_dependencies([passed]):
            return tf.identity(inputs), tf.identity(labels)

    return transform


class Gate:
    """Holds the batch of one worker-step on its worker until it is opened.

    Use `transform` as that of the data. The parameters are pulled before or while it holds.
    """

    def __init__(self, worker_step: int) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()
        self.transform = _passing_through(self._wait)
        self._worker_step = worker_step

    def _wait(self, inputs: Any, worker_step: Any) -> Any:
        if int(worker_step) == self._worker_step:
            self.entered.set()
            if not self.open.wait(60):
                raise RuntimeError("the gate was never opened")
        return worker_step


class BusyGate(Gate):
    """Holds one batch until so many further batches have begun."""

    timed_out = False

    def __init__(self, worker_step: int, batches: int) -> None:
        super().__init__(worker_step)
        self._begun, self._batches = count(), batches

    def _wait(self, inputs: Any, worker_step: Any) -> Any:
        number = next(self._begun)
        if int(worker_step) == self._worker_step:
            self._last = number + self._batches
            self.entered.set()
            self.timed_out = not self.open.wait(60)
        elif self.entered.is_set() and number >= self._last:
            self.open.set()
        return worker_step


class BatchLog:
    """Notes which examples each worker-step was given, where the inputs are their numbers."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}
        self.calls = 0
        self.transform = _passing_through(self._note)
        self._lock = threading.Lock()

    def _note(self, inputs: Any, worker_step: Any) -> Any:
        with self._lock:
            self.calls += 1
            self.batches[int(worker_step)] = [int(value) for value in inputs.numpy()[:, 0]]
        return worker_step
