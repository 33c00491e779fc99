"""The quadratic synchronization rule: the lower the learning rate, the rarer the averages."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from typing_extensions import override

from syncswitch.trainers.protocols.base import (
    LARGEST_NUMBER,
    AfterAverage,
    ReplicaStep,
    decimal_number,
    whole_number,
)
from syncswitch.trainers.protocols.local_sgd import LocalSGD


def period_steps(least_steps: int, alpha: float, rate: float) -> int:
    """Returns H, the steps from one average to the next: max(least, floor((alpha / rate)^2)).

    Source: Gu et al., A Quadratic Synchronization Rule for Distributed Deep Learning, ICLR 2024
    (arXiv 2310.14423).

    Args:
        least_steps: The steps while the rate is high.
        alpha: As a learning rate: at this rate every step is averaged, at half of it every fourth.
        rate: The learning rate in force on each worker; at 0 it is the longest period.
    """
    if alpha >= rate * LARGEST_NUMBER**0.5:
        return LARGEST_NUMBER
    return max(least_steps, int((alpha / rate) ** 2))


class QSR(LocalSGD):
    """Local SGD with a period that grows as the learning rate falls, see `period_steps`.

    The rate is that of a worker's own steps, which is scaled like that of BSP. A period is as long
    as the rate of the step before it says; the first one has the least length.

    Args:
        least_steps: The least number of steps of each worker from one average to the next.
        alpha: See `period_steps`.
        after: As of local SGD.
        words: Its other arguments; the period grows up to `least_steps`, then as the rate says.
    """

    name = "qsr"
    usage = "qsr:STEPS:ALPHA[:AFTER][:semi-sync][:growing]"
    own: ClassVar = {
        "least_steps": partial(whole_number, called="STEPS", least=1),
        "alpha": partial(decimal_number, called="ALPHA", is_above_zero=True),
    }

    def __init__(
        self,
        workers: Iterable[int],
        least_steps: int,
        alpha: float,
        after: AfterAverage | None = None,
        **words: bool,
    ) -> None:
        super().__init__(workers, least_steps, after, **words)
        self._alpha = alpha

    @override
    def observe(self, worker: int, step: ReplicaStep) -> None:
        self._period_steps = period_steps(self._least_steps, self._alpha, step.rate)
