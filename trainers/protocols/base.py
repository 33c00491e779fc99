"""The interface of protocols: who may start the next step, and whose work is joined first."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


class Exchange(enum.Enum):
    """The use of the gradient of a worker-step."""

    PUSH = "push"
    """It updates the shared parameters at once."""
    ROUND = "round"
    """It waits for the others of its round: their mean is one update of the shared parameters."""
    BUFFER = "buffer"
    """It waits in a buffer, beside others that may be of the same worker, while the worker goes on:
    the mean of a full buffer is one update of the shared parameters."""
    REPLICA = "replica"
    """It updates the worker's own replica; replicas are averaged in groups."""

    def gradients_per_update(self, workers: int) -> int:
        """Number of gradients of one worker each that move the model as far as one update does.

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
            (`Exchange.REPLICA`). A worker that has left since its push may be in a group of the
            first kind: its gradient has arrived. Each gradient in a buffer (`Exchange.BUFFER`) is
            named by its worker, so that one may be there more than once; its oldest come first.
        is_stale: The gradient that has just arrived in the buffer has no weight there: in the mean
            it is zero.
    """

    workers: tuple[int, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    is_stale: bool = False


NOBODY = Release()

_LARGEST = 1_000_000  # beyond all that makes a difference in a job


def whole_number(text: str, called: str, least: int, most: int = _LARGEST) -> int:
    """Reads a number of an option.

    Raises:
        ValueError: It is not a whole number from `least` to `most`.
    """
    digits = text.strip()
    # Python refuses to read thousands of digits, with another message.
    significant = digits.lstrip("0") or "0"
    is_number = digits.isascii() and digits.isdigit() and len(significant) <= len(str(most))
    if not (is_number and least <= int(significant) <= most):
        raise ValueError(f"{called} must be a whole number from {least} to {most}")
    return int(significant)


class SyncProtocol(ABC):
    """A pure, single-threaded state machine; cluster threads and simulated events drive it alike.

    A worker is *released* when it may start its next step. Every method that changes the state
    says whom this releases. Each worker-step of a released worker ends with `on_push`, unless the
    worker is removed before.

    Attributes:
        name: Its name on the command line, before a colon and its options.
        usage: The way to write it with its options, for messages.
        exchange: The use of a gradient.
        least_workers: A cluster needs so many for the protocol to mean anything.
        number: The protocol's only option, a whole number: the argument of the class that takes
            it, its name in `usage`, and the least value. None for a protocol without options, or
            with others.
    """

    name: ClassVar[str]
    usage: ClassVar[str]
    exchange: ClassVar[Exchange]
    least_workers: ClassVar[int] = 1
    number: ClassVar[tuple[str, str, int] | None] = None

    def __init__(self, workers: Iterable[int]) -> None:
        self.active: set[int] = set(workers)
        if not self.active:
            raise ValueError("a protocol needs at least one worker")

    @classmethod
    def parse_options(cls, text: str) -> Mapping[str, Any]:
        """Reads what follows the colon as keyword arguments of the class.

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
        """Writes options in the one way in which they are recorded; reads back as the same."""
        return "" if cls.number is None else str(options[cls.number[0]])

    @classmethod
    def check_cluster(cls, workers: int, options: Mapping[str, Any]) -> None:
        """Refuses a number of workers with which the protocol cannot work.

        Raises:
            ValueError: It is one; the message says what is allowed.
        """
        if workers < cls.least_workers:
            raise ValueError(f"it needs {cls.least_workers} workers or more")

    def start(self) -> Release:
        """Releases the workers that may start at once, which is everybody; called once."""
        return Release(tuple(sorted(self.active)))

    @abstractmethod
    def on_push(self, worker: int, now_seconds: float) -> Release:
        """Records that `worker` has finished its step.

        The late push of a worker that was removed is ignored.
        """

    @abstractmethod
    def add(self, worker: int) -> Release:
        """Lets `worker` take part from now on, new or back again."""

    @abstractmethod
    def remove(self, worker: int) -> Release:
        """Stops waiting for `worker`."""
