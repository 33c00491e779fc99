"""The interface of protocols: who may start the next step, and whose work is joined first."""

from __future__ import annotations

import enum
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


class AfterAverage(enum.Enum):
    """What becomes of the workers' optimizers when their replicas are averaged."""

    KEPT = "kept"
    """Each worker goes on with its own momentum, or other variables of the optimizer."""
    AVERAGED = "averaged"
    """All get the mean of these."""
    ZEROED = "zeroed"
    """All begin anew, with zeros."""
    NESTEROV = "nesterov"
    """They are kept, and an outer step takes the place of the average; see `outer_step`."""


class Exchange(enum.Enum):
    """The use of a worker-step's gradient."""

    PUSH = "push"
    """It updates the shared parameters at once."""
    ROUND = "round"
    """It waits for the others of its round; their mean is one update of the shared parameters."""
    BUFFER = "buffer"
    """It waits in a buffer, perhaps with others of the same worker, while the worker goes on; the
    mean of a full buffer is one update of the shared parameters."""
    REPLICA = "replica"
    """It updates the worker's own replica; replicas are averaged in groups."""

    def gradients_per_update(self, workers: int) -> int:
        """The number of single gradients that move the model as far as one update does.

        The learning rate grows with it (linear scaling): n workers that each take a step on a
        replica move the mean of the replicas as far as one update with their mean gradient.
        """
        return 1 if self is Exchange.PUSH else workers


@dataclass(frozen=True, slots=True)
class Release:
    """A protocol's answer to an event.

    Attributes:
        workers: Workers that may start their next step, in ascending order.
        groups: Workers, each group in ascending order, whose work is joined before that: the mean
            of their gradients is applied (`Exchange.ROUND`), or their replicas are averaged
            (`Exchange.REPLICA`). A group of the first kind may contain a worker that has left since
            its push, as its gradient has arrived. A buffer (`Exchange.BUFFER`) lists the worker of
            each gradient, so a worker may occur several times; its oldest gradients are meant.
        is_stale: Whether the gradient that has just arrived in the buffer has no weight: it counts
            as zero in the mean.
    """

    workers: tuple[int, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    is_stale: bool = False


NOBODY = Release()


@dataclass(frozen=True, slots=True)
class ReplicaStep:
    """What a protocol sees of a step on a replica.

    Attributes:
        gradient_square: Squared length of its gradient.
        rate: Its learning rate.
    """

    gradient_square: float
    rate: float


LARGEST_NUMBER = 1_000_000
"""The largest number in an option; larger ones make no difference in any job."""


def whole_number(text: str, called: str, least: int, most: int = LARGEST_NUMBER) -> int:
    """Reads a whole number from `least` to `most`; a ValueError names the option as `called`."""
    digits = text.strip()
    # Python refuses thousands of digits, with a message of its own.
    significant = digits.lstrip("0") or "0"
    is_number = digits.isascii() and digits.isdigit() and len(significant) <= len(str(most))
    if not (is_number and least <= int(significant) <= most):
        raise ValueError(f"{called} must be a whole number from {least} to {most}")
    return int(significant)


def decimal_number(text: str, called: str, *, is_above_zero: bool = False) -> float:
    """Reads a number from 0, or above it, to a million; see `whole_number`."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (number > 0 if is_above_zero else number >= 0) or number > LARGEST_NUMBER:
        least = "above 0 and at most" if is_above_zero else "from 0 to"
        raise ValueError(f"{called} must be a number {least} {LARGEST_NUMBER}")
    return number


def decimal_text(number: float) -> str:
    """Writes a number so that `decimal_number` reads the same."""
    return repr(number).removesuffix(".0")


class SyncProtocol(ABC):
    """A pure, single-threaded state machine, driven by a cluster's threads or by simulated events.

    A worker is *released* when it may start its next step. Every method that changes the state
    returns whom this releases. Each worker-step of a released worker ends with `on_push`, unless
    the worker is removed before.

    Attributes:
        name: The protocol's name on the command line, followed by a colon and its options.
        usage: Form of the name with its options, for messages.
        exchange: Use of a gradient.
        least_workers: The least number of workers with which the protocol makes sense.
        has_flags: Whether every step ends with a short message to all others, whose own are waited
            for.
        after: What becomes of the optimizers of replicas that are averaged, unless options say so.
        number: The protocol's only option, if it is a whole number: the argument of the class, its
            name in `usage`, and the least value. None for a protocol with no or other options.
    """

    name: ClassVar[str]
    usage: ClassVar[str]
    exchange: ClassVar[Exchange]
    least_workers: ClassVar[int] = 1
    has_flags: ClassVar[bool] = False
    after: AfterAverage = AfterAverage.KEPT
    number: ClassVar[tuple[str, str, int] | None] = None

    def __init__(self, workers: Iterable[int]) -> None:
        self.active: set[int] = set(workers)
        if not self.active:
            raise ValueError("a protocol needs at least one worker")

    @classmethod
    def parse_options(cls, text: str) -> Mapping[str, Any]:
        """Reads the text after the colon as keyword arguments of the class.

        Raises:
            ValueError: It is not as in `usage`; the message says what is allowed.
        """
        if cls.number is not None:
            argument, called, least = cls.number
            return {argument: whole_number(text, called, least)}
        if text:
            raise ValueError("it takes no options")
        return {}

    @classmethod
    def format_options(cls, options: Mapping[str, Any]) -> str:
        """Writes options as they are recorded; `parse_options` reads them back."""
        return "" if cls.number is None else str(options[cls.number[0]])

    @classmethod
    def check_cluster(cls, workers: int, options: Mapping[str, Any]) -> None:
        """Checks that the protocol can be used with a number of workers.

        Raises:
            ValueError: It cannot; the message says what is allowed.
        """
        if workers < cls.least_workers:
            raise ValueError(f"it needs {cls.least_workers} workers or more")

    def place(self, done: int, second_since: int | None) -> None:  # noqa: B027 (most need not know)
        """Sees where in the job it begins, before `start`; see `RunLog.second_since`."""

    def start(self) -> Release:
        """Releases the workers that may start at once, by default all; called once."""
        return Release(tuple(sorted(self.active)))

    def observe(self, worker: int, step: ReplicaStep) -> None:  # noqa: B027 (most need not look)
        """Sees a step that `worker` has finished on its replica, before its `on_push`."""

    @abstractmethod
    def on_push(self, worker: int, now_seconds: float) -> Release:
        """Records that `worker` has finished its step.

        The late push of a worker that was removed is ignored.
        """

    @property
    def next_seconds(self) -> float:
        """When `on_time` is to be called if nothing happens before; infinite for never.

        By the clock of `on_push`. A cluster may be a little late.
        """
        return math.inf

    def on_time(self, now_seconds: float) -> Release:
        """Notes that nothing has happened until `next_seconds`."""
        return NOBODY

    @abstractmethod
    def add(self, worker: int) -> Release:
        """Lets `worker` take part from now on, be it new or back."""

    @abstractmethod
    def remove(self, worker: int) -> Release:
        """Stops waiting for `worker`."""
