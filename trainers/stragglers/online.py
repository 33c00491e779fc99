"""The online policies, which react to stragglers during a run; pure.

Sync-Switch paper, section IV-B. Both act only before the switch. Greedy uses the second protocol
while there is a straggler; these steps count towards the job, but not towards the share of the
first protocol. Elastic trains without the stragglers until the switch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import RunEvent
from syncswitch.trainers.stragglers.detector import DetectorSettings, StragglerDetector

ONLINE = ("none", "greedy", "elastic")
"""Names of the online policies."""


@dataclass(frozen=True, slots=True)
class Decision:
    """An online policy's decision."""

    # Observations and decisions, in order, for the record of the run.
    events: tuple[RunEvent, ...] = ()
    remove: tuple[int, ...] = ()  # workers that get no more steps until the switch
    # The protocol to continue with, `first` or `second`; None for no change.
    protocol: Literal["first", "second"] | None = None


NO_DECISION = Decision()
"""The decision to do nothing, without an observation."""


class OnlineController:
    """Watches one run and decides; the caller carries the decisions out.

    Single-threaded: a caller with several threads needs a lock. At least half of the workers always
    stay. Raises UserError if `online` is not in `ONLINE`.
    """

    def __init__(
        self,
        online: str,
        workers: Sequence[int],
        settings: DetectorSettings = DetectorSettings(),  # noqa: B008 (frozen)
    ) -> None:
        if online not in ONLINE:
            raise UserError(
                f"online policy {online!r}: there is no such policy; choose one of "
                f"{', '.join(ONLINE)}",
                code="parameter-invalid",
            )
        self._online = online
        self._workers = frozenset(workers)
        self._detector = StragglerDetector(workers, settings)
        self._least_workers = (len(self._workers) + 1) // 2
        self._removed_seconds: dict[int, float] = {}
        self._lost: set[int] = set()
        self._pushes = 0
        self._left_first = False

    @property
    def active(self) -> frozenset[int]:
        """Workers that are neither lost nor removed."""
        return frozenset(self._detector.active)

    def observe(self, worker: int, busy_seconds: float) -> None:
        """Records a push of an active worker, under any protocol; see `StragglerDetector`."""
        if worker in self._detector.active:
            self._pushes += 1
            self._detector.observe(worker, busy_seconds)

    def judge(self, done: int, now_seconds: float, before_switch: bool) -> Decision:
        """Judges the workers once there are as many new pushes as active workers.

        The online policy may act if it is `before_switch`: the timing policy's switch is still to
        come, also while greedy uses the second protocol.
        """
        if self._pushes < max(1, len(self._detector.active)):
            return NO_DECISION
        self._pushes = 0
        events = self._detector.judge(done, now_seconds)
        if not before_switch or self._online == "none":
            return Decision(tuple(events))
        if self._online == "greedy":
            return self._greedy(events, done, now_seconds)
        return self._elastic(events, done, now_seconds)

    def at_switch(self, done: int, now_seconds: float) -> list[RunEvent]:
        """Restores the workers that elastic removed; called before the second protocol.

        A worker that has been lost meanwhile is active again once it returns.
        """
        events = []
        for worker in sorted(self._removed_seconds.keys() - self._lost):
            away_seconds = now_seconds - self._removed_seconds[worker]
            reason = f"worker {worker} is back for the second protocol, where nobody waits for it"
            events.append(RunEvent("restored", done, now_seconds, reason, worker, away_seconds))
            self._detector.join(worker)
        self._removed_seconds.clear()
        return events

    def lost(self, worker: int) -> None:
        self._lost.add(worker)
        self._detector.leave(worker)

    def returned(self, worker: int) -> None:
        """Records that a lost worker is back; it is active unless it has been removed."""
        self._lost.discard(worker)
        if worker not in self._removed_seconds:
            self._detector.join(worker)

    def _greedy(self, events: list[RunEvent], done: int, now_seconds: float) -> Decision:
        stragglers = sorted(self._detector.stragglers)
        if bool(stragglers) == self._left_first:
            return Decision(tuple(events))
        self._left_first = bool(stragglers)
        if stragglers:
            workers = f"worker{'s' * (len(stragglers) > 1)} {', '.join(map(str, stragglers))}"
            reason = f"to the second protocol, where nobody waits for {workers}"
        else:
            reason = "back to the first protocol: no active worker is a straggler any more"
        events.append(RunEvent("switched", done, now_seconds, reason))
        return Decision(tuple(events), protocol="second" if stragglers else "first")

    def _elastic(self, events: list[RunEvent], done: int, now_seconds: float) -> Decision:
        # Those that were found before, then the slowest.
        new = {event.worker for event in events}
        stragglers = sorted(
            self._detector.stragglers,
            key=lambda worker: ((worker in new and self._detector.rate(worker)) or 0.0, worker),
        )
        spare = max(0, len(self._detector.active) - self._least_workers)
        remove, kept = sorted(stragglers[:spare]), stragglers[spare:]
        stay = f"; it is kept: at least {self._least_workers} of {len(self._workers)} workers stay"
        events = [
            replace(event, reason=event.reason + stay)
            if event.kind == "detected" and event.worker in kept
            else event
            for event in events
        ]
        for worker in remove:
            self._detector.leave(worker)
            self._removed_seconds[worker] = now_seconds
            reason = f"worker {worker} is a straggler: the others continue without it to the switch"
            events.append(RunEvent("removed", done, now_seconds, reason, worker))
        return Decision(tuple(events), remove=tuple(remove))


def controller_of(online: str, workers: Sequence[int]) -> OnlineController | None:
    """The controller of a run; None without an online policy."""
    return None if online == "none" else OnlineController(online, workers)
