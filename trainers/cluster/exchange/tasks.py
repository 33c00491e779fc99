"""What is asked of a worker, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from syncswitch.trainers.cluster.exchange.parameter_server import Caller
from syncswitch.trainers.model.layout import Vector
from syncswitch.trainers.protocols import Exchange


class StepError(Exception):
    """A step cannot be computed: model, data and loss do not fit, or the memory is too small."""


@dataclass(frozen=True, slots=True)
class Hold:
    """How a worker is slowed on purpose.

    Attributes:
        seconds: Added between its gradient and its push.
        slowdown: Factor on the time of its gradient.
        message_seconds: Added to each message between it and the parameter server, one way.
    """

    seconds: float = 0.0
    slowdown: float = 1.0
    message_seconds: float = 0.0


NO_HOLD = Hold()


@dataclass(frozen=True, slots=True)
class Task:
    """One worker-step.

    Attributes:
        number: By which the worker's steps are told apart; each one's is higher.
        worker_step: Which one of the job; also of its batch.
        seed: Of the run.
        exchange: What becomes of the gradient.
        rate: Learning rate, where the worker's gradient alone is an update.
        momentum: Likewise.
        hold: Slows it.
    """

    number: int
    worker_step: int
    seed: int
    exchange: Exchange
    rate: float = 0.0
    momentum: float = 0.0
    hold: Hold = NO_HOLD


class Push(NamedTuple):
    """Acknowledgement of one worker-step, after the parameter server has taken it in.

    Attributes:
        loss: Of the batch, before the update.
        pulled_updates: Updates applied when the worker read the parameters.
        pushed_updates: Updates applied when its gradient had arrived; for a protocol that applies
            each push, this one included.
    """

    loss: float
    pulled_updates: int
    pushed_updates: int


class ServerPort(Protocol):
    """A parameter server as a worker sees it."""

    def pull(self, caller: Caller) -> tuple[int, Vector]:
        """Updates applied, and parameters and statistics; valid until the worker pushes."""

    def push_update(
        self, caller: Caller, number: int, computed: Vector, rate: float, momentum: float
    ) -> int:
        """See `ParameterServer.push_update`."""

    def push_gradient(self, caller: Caller, number: int, computed: Vector) -> int:
        """See `ParameterServer.push_gradient`."""


class PeerPort(Protocol):
    """A worker as others see it."""

    def fetch(self, what: str, start: int, stop: int) -> Vector:
        """A piece of what it holds: `model`, `mean` or `slots`."""


Peers = Sequence[PeerPort]
