"""Tracks which workers take part in a simulated run, and how slow they are."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import RunEvent, TrialSpec
from syncswitch.trainers.faults.active import ActiveInjections
from syncswitch.trainers.faults.injections import Extent, check_injections, injections
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.stragglers.online import (
    NO_DECISION,
    Decision,
    OnlineController,
    controller_of,
)

_AWAY = Extent(3.0, is_percent=False)


class Membership:
    """Carries out injections and consults the online policy; without either nothing changes.

    Each event is noted for the run's record. On a detour (`is_detour`), the online policy wants the
    second protocol for now.
    """

    def __init__(
        self,
        workers: Iterable[int],
        active: ActiveInjections | None = None,
        online: OnlineController | None = None,
        note: Callable[[RunEvent], None] = lambda event: None,
    ) -> None:
        self._workers = tuple(workers)
        self._active = active or ActiveInjections((), 0)
        self._online = online
        self._note = note
        self.is_detour = False
        self._resting: set[int] = set()
        self._kills: Counter[int] = Counter()
        self._lost_seconds: dict[int, float] = {}
        self._switch_worker_step = math.inf

    @property
    def present(self) -> list[int]:
        """Workers that take part, in ascending order."""
        away = self._lost_seconds.keys() | self._resting
        return [worker for worker in self._workers if worker not in away]

    @property
    def next_seconds(self) -> float:
        """Training time of the next scheduled change; infinite if there is none."""
        return self._active.next_seconds

    def begin(self, done: int, now_seconds: float, switch_worker_step: float) -> float:
        """Begins a segment as soon as a worker is present; returns the training time then.

        The worker-step of the timing policy's switch is infinite on a detour of the online policy.
        """
        self._switch_worker_step = switch_worker_step
        self.advance(done, now_seconds)
        while not self.present:
            now_seconds = self.wait(now_seconds)
            self.advance(done, now_seconds)
        return now_seconds

    def wait(self, now_seconds: float) -> float:
        """The training time of the next scheduled change, when all workers are away."""
        if math.isinf(self.next_seconds):
            raise UserError(
                "the injections remove all workers at once until more of the job is done, which"
                " then never happens; give their length in seconds instead, as in for=3s"
            )
        return max(now_seconds, self.next_seconds)

    def advance(self, done: int, now_seconds: float) -> list[tuple[int, bool]]:
        """Begins and ends injections that are due; returns workers lost, or back if True."""
        changes = []
        for one in self._active.advance(done, now_seconds):
            injection, worker = one.injection, one.injection.worker
            if one.is_start:
                self._note(RunEvent("injected", done, now_seconds, injection.text, worker))
            if injection.kind == "kill" and worker is not None:
                self._kills[worker] += 1 if one.is_start else -1
                if self._kills[worker] != one.is_start:
                    continue  # several kills of it overlap
                (self._lose if one.is_start else self._return)(worker, done, now_seconds)
                if one.is_start or worker not in self._resting:
                    changes.append((worker, not one.is_start))
        return changes

    def slowed(self, worker: int, seconds: float) -> float:
        """The duration, under the active injections, of a step that would take `seconds`."""
        active = self._active
        return seconds * active.slowdown(worker) + active.delay_seconds(worker)

    def decide(self, worker: int, busy_seconds: float, done: int, now_seconds: float) -> Decision:
        """Reports a step to the online policy, and asks it what to do.

        The decision is to be carried out before more steps are handed out; its events are noted.
        """
        if self._online is None:
            return NO_DECISION
        self._online.observe(worker, busy_seconds)
        decision = self._online.judge(done, now_seconds, done < self._switch_worker_step)
        self._note_all(decision)
        self._resting.update(decision.remove)
        if decision.protocol is not None:
            self.is_detour = decision.protocol == "second"
        return decision

    def switch(self, done: int, now_seconds: float) -> None:
        """Brings every resting worker back, at the timing policy's switch."""
        if self._online is not None:
            self._note_all(self._online.at_switch(done, now_seconds))
        self._resting.clear()

    def _note_all(self, decision: Decision) -> None:
        for event in decision.events:
            self._note(event)

    def _lose(self, worker: int, done: int, now_seconds: float) -> None:
        self._lost_seconds[worker] = now_seconds
        if self._online is not None:
            self._online.lost(worker)
        reason = f"worker {worker} was killed; another worker takes over its worker-step"
        self._note(RunEvent("lost", done, now_seconds, reason, worker))

    def _return(self, worker: int, done: int, now_seconds: float) -> None:
        seconds = now_seconds - self._lost_seconds.pop(worker)
        if self._online is not None:
            self._online.returned(worker)
        reason = f"worker {worker} is back"
        self._note(RunEvent("returned", done, now_seconds, reason, worker, seconds))


def membership_of(spec: TrialSpec, log: RunLog) -> Membership:
    """The membership under a trial's conditions, from the position of its log on."""
    identity, conditions = spec.identity, spec.conditions
    workers = range(identity.workers)
    if conditions.switch_mechanism != "hot":
        raise UserError(
            f"switch mechanism {conditions.switch_mechanism!r}: a simulated cluster has no"
            " processes to start anew; use --switch hot (switch_seconds of a profile says what that"
            " costs)"
        )
    found = injections(conditions.injections, identity.workers, spec.switch_percent)
    check_injections(found, "simulated")
    active = ActiveInjections(
        (
            # A killed worker that is not said to stay away for longer is back after 3 s.
            replace(one, lasting=one.lasting or _AWAY) if one.kind == "kill" else one
            for one in found
        ),
        identity.total_worker_steps,
        done=log.done,
        now_seconds=log.elapsed_seconds,
        resumed=spec.resume,
    )
    online = controller_of(conditions.online, workers)
    return Membership(workers, active, online, log.add_event)
