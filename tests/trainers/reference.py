"""Training loops that know nothing of protocols, clocks or clusters."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from syncswitch.trainers.job.keras_parts import build_model
from syncswitch.trainers.job.schedule import decay_factor
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.function import ModelFunction, moving_variables
from syncswitch.trainers.model.layout import ModelState
from syncswitch.trainers.model.tensorflow_api import seeded


@dataclass(frozen=True)
class Final:
    """What a loop ends with; of replicas the mean."""

    parameters: np.ndarray
    slots: np.ndarray
    statistics: np.ndarray


def plain_bsp(workload: Workload, workers: int, seed: int) -> Final:
    """SGD with momentum and the mean gradient of `workers` batches, at so many times the rate."""
    loop = _Loop(workload, seed)
    parameters, slots, statistics = loop.start
    for first in range(0, workload.total_worker_steps, workers):
        steps = range(first, min(first + workers, workload.total_worker_steps))
        parts = [loop.gradient(step, parameters) for step in steps]
        slots = workload.momentum * slots + np.mean([part[0] for part in parts], 0)
        parameters = parameters - len(steps) * loop.rate(first) * slots
        statistics = loop.move(statistics, np.mean([part[1] for part in parts], 0))
    return Final(parameters, slots, statistics)


def plain_own_momentum(workload: Workload, workers: int, seed: int) -> Final:
    """Workers that take turns from the start, each with a momentum of its own and a look ahead.

    Each begins its next step right after its push, so that others' pushes come in between.
    """
    loop = _Loop(workload, seed)
    parameters, slots, statistics = loop.start
    pulled, own = [parameters] * workers, [slots] * workers
    for step in range(workload.total_worker_steps):
        worker = step % workers
        gradient, contribution = loop.gradient(step, pulled[worker])
        own[worker] = workload.momentum * own[worker] + gradient
        ahead = workload.momentum * own[worker] + gradient
        parameters = parameters - loop.rate(step) * ahead
        statistics = loop.move(statistics, contribution)
        pulled[worker] = parameters
    return Final(parameters, np.mean(own, 0), statistics)


def plain_local_sgd(
    workload: Workload, workers: int, period_steps: int, seed: int, after: str = "kept"
) -> Final:
    """Replicas that take turns, and are averaged after so many turns of each.

    `after` is what becomes of their momenta then: kept, averaged or zeroed; or they are kept, and
    the average is `nesterov`: DiLoCo's outer SGD of PyTorch's kind, lr 0.7 and momentum 0.9.
    """
    loop = _Loop(workload, seed)
    replicas = [loop.start] * workers
    joined = loop.start[0]
    buffer = np.zeros_like(joined)
    for step in range(workload.total_worker_steps):
        parameters, slots, statistics = replicas[step % workers]
        gradient, contribution = loop.gradient(step, parameters)
        slots = workload.momentum * slots + gradient
        moved = parameters - workers * loop.rate(step) * slots
        replicas[step % workers] = moved, slots, loop.move(statistics, contribution)
        if (step + 1) % (workers * period_steps) == 0:
            mean, momentum, moving = (np.mean(parts, 0) for parts in zip(*replicas, strict=True))
            if after == "nesterov":
                gradient = joined - mean
                buffer = 0.9 * buffer + gradient
                mean = joined = joined - 0.7 * (gradient + 0.9 * buffer)
            own = {"averaged": momentum, "zeroed": np.zeros_like(momentum)}
            replicas = [(mean, own.get(after, slots), moving) for _, slots, _ in replicas]
    return Final(*(np.mean(parts, 0) for parts in zip(*replicas, strict=True)))


def plain_selsync(workload: Workload, workers: int, delta: float, seed: int) -> Final:
    """Replicas that take turns, and are averaged when one's gradient has changed by delta."""
    loop = _Loop(workload, seed)
    replicas, smoothed = [loop.start] * workers, [0.0] * workers
    is_asked = False
    for step in range(workload.total_worker_steps):
        number, worker = divmod(step, workers)
        parameters, slots, statistics = replicas[worker]
        gradient, contribution = loop.gradient(step, parameters)
        square = float(gradient @ gradient)
        before = smoothed[worker] if number else square
        smoothed[worker] = before + workers / 100 * (square - before)
        change = abs(smoothed[worker] - before) / before
        is_asked = is_asked or number < 25 or change >= delta
        slots = workload.momentum * slots + gradient
        moved = parameters - workers * loop.rate(step) * slots
        replicas[worker] = moved, slots, loop.move(statistics, contribution)
        if worker == workers - 1 and is_asked:
            mean = [np.mean(parts, 0) for parts in zip(*replicas, strict=True)]
            replicas = [(mean[0], slots, mean[2]) for _, slots, _ in replicas]
        is_asked = is_asked and worker < workers - 1
    return Final(*(np.mean(parts, 0) for parts in zip(*replicas, strict=True)))


def plain_stale(workload: Workload, seed: int, at_once: int = 1) -> Final:
    """SGD with momentum whose first gradient of each update is one update old."""
    loop = _Loop(workload, seed)
    parameters, slots, statistics = loop.start
    before = parameters
    for first in range(0, workload.total_worker_steps, at_once):
        parts = [loop.gradient(first, before)]
        parts += [loop.gradient(step, parameters) for step in range(first + 1, first + at_once)]
        slots = workload.momentum * slots + np.mean([part[0] for part in parts], 0)
        before = parameters
        parameters = parameters - at_once * loop.rate(first) * slots
        statistics = loop.move(statistics, np.mean([part[1] for part in parts], 0))
    return Final(parameters, slots, statistics)


def assert_close(state: ModelState, other: Final | ModelState, error: float = 1e-5) -> None:
    """The difference of all values of a kind is no longer than this share of them."""
    for kind in ("parameters", "slots", "statistics"):
        found, expected = getattr(state, kind), getattr(other, kind)
        if np.any(expected):
            assert np.linalg.norm(found - expected) < error * np.linalg.norm(expected), kind


@functools.cache
def _traced(workload: Workload) -> tuple[ModelFunction, Any]:
    """A function of the number of a batch, the seed, parameters and statistics."""
    import tensorflow as tf

    data = workload.data()
    function = ModelFunction(workload, data)
    arrays = tf.constant(data.train_inputs), tf.constant(data.train_labels)

    def compute(step: Any, seed: Any, parameters: Any, statistics: Any) -> Any:
        batch = function.batch(arrays, step, seed)
        return function.gradient(parameters, statistics, *batch)[1:]

    return function, tf.function(compute, autograph=False)


class _Loop:
    def __init__(self, workload: Workload, seed: int) -> None:
        self._workload, self._seed = workload, np.int64(seed)
        function, self._compute = _traced(workload)
        with seeded(seed):
            model = build_model(workload)
        self.start = (
            function.parameters.pack(model.trainable_variables),
            np.zeros(function.parameters.size, np.float32),
            function.statistics.pack(moving_variables(model)),
        )
        self._decay = np.concatenate(
            [
                np.full(variable.shape, layer.momentum, np.float32)
                for layer in model.layers
                for variable in layer.non_trainable_variables
            ]
            or [np.zeros(0, np.float32)]
        )

    def gradient(self, step: int, parameters: np.ndarray) -> list[np.ndarray]:
        """Of a batch: its gradient, and (1 - m) times its own means and variances.

        In training they do not depend on the moving ones, and of zeros the batch's part is left.
        """
        vectors = parameters.astype(np.float32), np.zeros_like(self._decay)
        return [part.numpy() for part in self._compute(np.int64(step), self._seed, *vectors)]

    def move(self, statistics: np.ndarray, contribution: np.ndarray) -> np.ndarray:
        """An exponential moving average, with the momentum that its layer says."""
        return self._decay * statistics + contribution

    def rate(self, step: int) -> float:
        assert not callable(self._workload.learning_rate)
        factor = decay_factor(self._workload.learning_rate_boundaries, step)
        return self._workload.learning_rate * factor
