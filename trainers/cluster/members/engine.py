"""The interface to whatever starts and watches the processes of a cluster."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass

from syncswitch.trainers.cluster.exchange.handshake import Address, Part


class Life(enum.Enum):
    """The state of a process, as far as its engine knows."""

    RUNNING = "running"
    STOPPED = "stopped"
    DEAD = "dead"


@dataclass(frozen=True)
class Condition:
    """The condition of a process.

    Attributes:
        life: Whether it runs.
        report: How it has ended, for people; empty where that is not known.
    """

    life: Life
    report: str = ""


class Engine(ABC):
    """Starts a process for each part of a cluster.

    Attributes:
        kind: What can be disturbed there on purpose, as `check_injections` calls it.
        listen: Where the chief lets the parts in.
        secret: Of the cluster; see `Identity`.
        start_seconds: How long a part may take until it is there.
        has_gpus: Whether each worker has a GPU, or a share of one.
        waits_aloud: Whether the user is told who is waited for.
    """

    kind: str
    listen: Address
    secret: bytes | None
    start_seconds: float
    has_gpus: bool = False
    waits_aloud: bool = False

    @abstractmethod
    def start(self, part: Part, chief: Address) -> None:
        """Starts a process for a part, after it has ended the one before.

        Args:
            part: Which.
            chief: Where it finds its chief.

        Raises:
            RetryableError: It cannot be started now.
        """

    @abstractmethod
    def condition(self, part: Part) -> Condition:
        """The condition of the process of a part."""

    @abstractmethod
    def signal(self, part: Part, number: int) -> None:
        """Sends a signal to the process of a part, if it is there."""

    @abstractmethod
    def close(self) -> None:
        """Ends all of them; may be called twice."""
