"""The worker-steps of one segment, handed out as a protocol allows; pure.

Threads of a cluster and events of a simulation use it in the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from syncswitch.trainers.protocols import Exchange, SyncProtocol

__all__ = ["Advance", "SegmentSteps", "Ticket"]


@dataclass(frozen=True, slots=True)
class Ticket:
    """Permission for one worker to do one worker-step.

    Attributes:
        worker: Who may.
        worker_step: Number of the step in the job, from 0; also the number of its batch.
    """

    worker: int
    worker_step: int


@dataclass(frozen=True, slots=True)
class Advance:
    """How it goes on.

    Attributes:
        groups: Their work is to be joined (see `Release.groups`), before anybody goes on: they are
            complete because others have no more steps to do.
        tickets: Steps that may start then.
    """

    groups: tuple[tuple[int, ...], ...] = ()
    tickets: tuple[Ticket, ...] = ()


class SegmentSteps:
    """Hands out the worker-steps from one number to another.

    No ticket is handed out beyond the end of the segment, so there is no overshoot. The segment is
    over when no ticket is out (drained).

    Attributes:
        exchange: What becomes of a gradient.
        done: Worker-steps whose gradient counts: it has been applied, or is about to be by one of
            the groups of the last `Advance`.
    """

    def __init__(self, protocol: SyncProtocol, done: int, end_step: int) -> None:
        self.exchange = protocol.exchange
        self.done = done
        self._protocol = protocol
        self._next_step = done
        self._end_step = end_step
        self._released: deque[int] = deque()

    def start(self) -> Advance:
        """The first steps; called once."""
        self._released.extend(self._protocol.start().workers)
        return self.hand_out()

    def push(self, worker: int, now_seconds: float) -> tuple[tuple[int, ...], ...]:
        """Takes note that `worker` has finished its step; `hand_out` follows.

        Between the two `stop` may be called, and nothing starts any more.

        Returns:
            Groups whose work is to be joined.
        """
        if self.exchange is not Exchange.ROUND:
            self.done += 1
        release = self._protocol.on_push(worker, now_seconds)
        self._released.extend(release.workers)
        return self._counted(release.groups)

    def hand_out(self) -> Advance:
        """Gives the workers that were released their next steps."""
        groups: list[tuple[int, ...]] = []
        tickets = []
        while self._released:
            worker = self._released.popleft()
            if self._next_step < self._end_step:
                tickets.append(Ticket(worker, self._next_step))
                self._next_step += 1
            else:
                # Nothing is left for it to do in this segment: nobody must wait for it.
                further = self._protocol.remove(worker)
                groups += further.groups
                self._released.extend(further.workers)
        return Advance(self._counted(groups), tuple(tickets))

    def stop(self) -> None:
        """Hands out no further tickets."""
        self._end_step = self._next_step

    def _counted(self, groups: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
        if self.exchange is Exchange.ROUND:
            self.done += sum(map(len, groups))
        return tuple(groups)
