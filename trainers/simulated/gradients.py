"""Gradients of many workers at once, each at parameters of its own."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from syncswitch.storage.errors import WorkloadError, one_line
from syncswitch.trainers.job.data import AnyData
from syncswitch.trainers.job.keras_parts import build_model
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.batches.examples import row_specs
from syncswitch.trainers.model.batches.feed import feed_of
from syncswitch.trainers.model.function import ModelFunction
from syncswitch.trainers.model.layout import Vector
from syncswitch.trainers.model.tensorflow_api import concrete, for_threads, quiet_log, tf
from syncswitch.trainers.simulated.patches import with_patches

_LOG = logging.getLogger(__name__)
THREADS = os.cpu_count() or 1
"""So many calls are computed at the same time."""
_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Outstanding:
    """A gradient that is to be computed.

    Attributes:
        worker_step: Number of its batch.
        parameters: At which it is taken, shape [P].
        statistics: Shape [S].
    """

    worker_step: int
    parameters: Vector
    statistics: Vector


@dataclass(frozen=True, slots=True)
class Computed:
    """A gradient.

    Attributes:
        loss: Of the batch.
        gradient: Shape [P].
        contribution: To the statistics (see `ModelFunction.move`), shape [S].
    """

    loss: float
    gradient: Vector
    contribution: Vector


class GradientSource:
    """Computes gradients of one workload.

    Models whose layers allow it are computed several at once, in one compiled call in which every
    place has parameters of its own; the others one at a time.

    Attributes:
        at_once: So many are computed in a call.
    """

    def __init__(
        self,
        workload: Workload,
        data: AnyData,
        function: ModelFunction,
        at_once: int,
    ) -> None:
        self._function = function
        self._feed = feed_of(data.train, workload.batch_size, 2 * at_once)
        self._threads = ThreadPoolExecutor(THREADS, "gradients")
        probes = self._probes()
        try:
            traced = concrete(
                self._traced_single,
                tf.TensorSpec([function.parameters.size]),
                tf.TensorSpec([function.statistics.size]),
                tf.TensorSpec([2], tf.int64),
                *row_specs(data, workload.batch_size),
            )
            self._single = for_threads(traced, THREADS)
            self._call_single(probes[0], 0)
        except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise WorkloadError(
                f"workload {workload.name!r}: model, data and loss do not fit together: "
                f"{one_line(error)}"
            ) from error
        self.at_once = at_once
        if at_once > 1 and not self._can_batch(workload, data, probes):
            self.at_once = 1

    def submit(self, wanted: Sequence[Outstanding], seed: int) -> Future[list[Computed]]:
        """Begins to compute gradients; what one of them is does not depend on the others."""
        call = self._call_single_of_one if self.at_once == 1 else self._call_batch
        return self._threads.submit(call, wanted, seed)

    def move(self, statistics: Vector, contribution: Vector) -> Vector:
        """The statistics after a batch; see `ModelFunction.move`."""
        moved: Vector = self._function.move(statistics, contribution)
        return moved

    def close(self) -> None:
        """Ends the threads."""
        self._threads.shutdown()
        self._feed.close()

    def _can_batch(self, workload: Workload, data: AnyData, wanted: Sequence[Outstanding]) -> bool:
        """Builds the batched call, and tries whether it says the same as the single one."""
        try:
            with quiet_log():
                found = self._try_batch(workload, data, wanted)
            expected = [self._call_single(one, 0) for one in wanted]
            if not all(map(_agree, found, expected)):
                raise ValueError("together they come out differently, as random layers do")
        except Exception as error:  # whatever Keras cannot clone, XLA compile, or the vectoriser do
            _LOG.info(
                "workload %s: gradients are computed one at a time (%s)",
                workload.name,
                one_line(error),
            )
            return False
        return True

    def _try_batch(
        self, workload: Workload, data: AnyData, wanted: Sequence[Outstanding]
    ) -> list[Computed]:
        self._batched_function = ModelFunction(workload, data, with_patches(build_model(workload)))
        self._batch = tf.function(self._traced_batch, autograph=False)
        self._gradients = tf.function(
            lambda *stacked: tf.vectorized_map(
                lambda one: self._batched_function.gradient(*one), stacked
            ),
            autograph=False,
            jit_compile=True,
        )
        return self._call_batch(wanted, 0)

    def _probes(self) -> list[Outstanding]:
        """Two, with batches, parameters and statistics of their own."""
        random = np.random.default_rng(0)
        parameters, statistics = self._function.parameters.size, self._function.statistics.size
        return [
            Outstanding(
                step,
                (0.05 * random.standard_normal(parameters)).astype(np.float32),
                (1 + random.random(statistics)).astype(np.float32),
            )
            for step in range(2)
        ]

    def _call_single_of_one(self, wanted: Sequence[Outstanding], seed: int) -> list[Computed]:
        return [self._call_single(wanted[0], seed)]

    def _call_single(self, wanted: Outstanding, seed: int) -> Computed:
        numbers = tf.constant([wanted.worker_step, seed], tf.int64)
        loss, gradient, contribution = self._single(
            tf.constant(wanted.parameters),
            tf.constant(wanted.statistics),
            numbers,
            *self._feed.rows(wanted.worker_step, seed),
        )
        return Computed(float(loss), gradient.numpy(), contribution.numpy())

    def _call_batch(self, wanted: Sequence[Outstanding], seed: int) -> list[Computed]:
        # Filled up, as each size would be compiled anew.
        more = self.at_once - len(wanted)
        full = [*wanted, *[wanted[-1]] * more]
        rows = [self._feed.rows(one.worker_step, seed) for one in wanted]
        losses, gradients, contributions = self._batch(
            tf.constant(np.stack([one.parameters for one in full])),
            tf.constant(np.stack([one.statistics for one in full])),
            tf.constant([one.worker_step for one in full], tf.int64),
            tf.constant(seed, tf.int64),
            [*rows, *[rows[-1]] * more],
        )
        found = zip(losses.numpy(), gradients.numpy(), contributions.numpy(), strict=True)
        return [Computed(float(row[0]), row[1], row[2]) for row in list(found)[: len(wanted)]]

    def _traced_single(self, parameters: Any, statistics: Any, numbers: Any, *rows: Any) -> Any:
        batch = self._function.batch(rows, numbers[0], numbers[1])
        return self._function.gradient(parameters, statistics, *batch)

    def _traced_batch(
        self, parameters: Any, statistics: Any, steps: Any, seed: Any, rows: list[Any]
    ) -> Any:
        batches = [
            self._batched_function.batch(one, step, seed)
            for one, step in zip(rows, tf.unstack(steps, self.at_once), strict=True)
        ]
        stacked = [tf.stack(part) for part in zip(*batches, strict=True)]
        return self._gradients(parameters, statistics, *stacked)


def _agree(one: Computed, other: Computed) -> bool:
    """Whether two gradients differ by rounding alone."""
    scale = float(np.max(np.abs(other.gradient))) or 1.0
    return np.allclose(one.gradient, other.gradient, atol=_TOLERANCE * scale) and np.allclose(
        one.contribution, other.contribution, atol=_TOLERANCE
    )
