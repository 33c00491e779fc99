"""The log of a run: its measurements, decisions and checkpoints."""

from __future__ import annotations

import json
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path

from syncswitch.storage.records.flat import nested
from syncswitch.storage.records.trial import (
    BASELINE_PERCENT,
    Evaluation,
    PhaseRecord,
    RunEvent,
    TrialRecord,
    TrialSpec,
)
from syncswitch.trainers.job.schedule import Segment, next_segment, switch_worker_step
from syncswitch.trainers.run.guard import SwitchGuard
from syncswitch.trainers.run.record import (
    Position,
    StalenessCount,
    merge_phases,
    run_identity,
    trial_record,
)
from syncswitch.trainers.run.second_phase import SecondPhase
from syncswitch.trainers.trainer import Observer, Verdict


class CheckpointFiles:
    """The checkpoints of one run, by percentage of W."""

    def __init__(self) -> None:
        self.paths: dict[float, Path] = {}

    def add(self, percents: Sequence[float], path: Path) -> None:
        self.paths.update(dict.fromkeys(percents, path))

    def drop_all_but(self, kept: int, spared: float | None = None) -> list[Path]:
        """Forgets all but the `kept` furthest files and that at `spared`; returns the others."""
        at_spared = None if spared is None else self.paths.get(spared)
        files = dict.fromkeys(self.paths[percent] for percent in sorted(self.paths))
        others = [path for path in files if path != at_spared]
        return self._forget(others[: max(0, len(others) - kept)])

    def drop_after(self, percent: float) -> list[Path]:
        """Forgets the files of later parts of the job, and returns them."""
        later = (path for one, path in self.paths.items() if one > percent)
        return self._forget(list(dict.fromkeys(later)))

    def _forget(self, dropped: list[Path]) -> list[Path]:
        self.paths = {one: path for one, path in self.paths.items() if path not in dropped}
        return dropped


class RunLog:
    """The log of one run, which outlives a cluster that has to be rebuilt.

    Evaluations may be added from another thread than the rest; the observer gets each once, after
    `told_step`, the last one that a lost chief has reported.
    """

    def __init__(
        self,
        spec: TrialSpec,
        observer: Observer,
        is_chance: Callable[[float], bool],
        told_step: int = -1,
    ) -> None:
        self._spec = spec
        self._observer = observer
        self._is_chance = is_chance
        self._started_at = datetime.now(timezone.utc)
        self.guard = SwitchGuard(spec)
        self._second = SecondPhase(spec)
        self._watched: Segment | None = None  # the one that is timed
        self._counted = (0, 0.0)  # worker-steps and training time that it has been told of
        self._observing = threading.Lock()
        self.position = Position(next_test=self._evaluation_after(0))
        self.reached = 0
        self.files = CheckpointFiles()
        self.diverged = False
        self._told_step, self._told_to_stop = told_step, False
        self._evaluations: list[Evaluation] = []
        self._events: list[RunEvent] = []
        self._pending: deque[RunEvent] = deque()

    @property
    def done(self) -> int:
        return self.position.done

    @property
    def first_protocol_done(self) -> int:
        """Those of the worker-steps that were done before the switch."""
        return self.position.first_protocol_done

    @property
    def elapsed_seconds(self) -> float:
        """Training time when the cluster was last drained."""
        return self.position.elapsed_seconds

    @property
    def is_detour(self) -> bool:
        """Whether an online policy has left the first protocol temporarily."""
        return self.position.is_detour

    @is_detour.setter
    def is_detour(self, is_detour: bool) -> None:
        self.position = replace(self.position, is_detour=is_detour)

    @property
    def is_stopping(self) -> bool:
        """Whether the run has diverged, was told to stop, or must go back to its switch."""
        return self.diverged or self._told_to_stop or self.guard.alarm is not None

    @property
    def has_to_go_back(self) -> bool:
        """Whether the guard has raised an alarm, and the run was not told to stop."""
        return self.guard.alarm is not None and not self._told_to_stop

    @property
    def last_protocol(self) -> str | None:
        """Protocol of the last phase, including a fork's prefix; None before the first."""
        phases = self.position.phases
        return phases[-1].protocol if phases else self.position.protocol_before

    @property
    def last_evaluation_step(self) -> int:
        """Worker-step of the last test; -1 before the first."""
        return self._evaluations[-1].worker_step if self._evaluations else -1

    @property
    def is_before_switch(self) -> bool:
        """Whether the first protocol has not done its share yet."""
        return self.first_protocol_done < switch_worker_step(self.guard.spec)

    @property
    def is_at_guarded_switch(self) -> bool:
        """Whether a guarded run is about to begin the second protocol for good."""
        is_now = self.last_protocol in (None, self._spec.identity.first_protocol)
        is_return = self._second.looks > 0  # from a comparison long after it
        return self.guard.is_on and is_now and not self.is_before_switch and not is_return

    def fork(self, done: int, first_protocol_done: int, elapsed_seconds: float) -> None:
        """Starts from another run's checkpoint; see `Position`."""
        identity, is_first = self._spec.identity, first_protocol_done == done
        before = identity.first_protocol if is_first else identity.second_protocol
        self.position = Position(
            done,
            first_protocol_done,
            elapsed_seconds,
            inherited_seconds=elapsed_seconds,
            protocol_before=before if done else None,
            next_test=self._evaluation_after(done),
        )

    def go_back(
        self, done: int, first_protocol_done: int, elapsed_seconds: float, history: str
    ) -> None:
        """Goes back to a checkpoint of this run, given its position and its `history`.

        Events since then are kept, because they did happen; evaluations are dropped, because they
        will be made again.
        """
        content = json.loads(history)
        events = [nested(RunEvent, event) for event in content["events"]]
        self._events[: len(events)] = events
        self._evaluations = [Evaluation.of(evaluation) for evaluation in content["evaluations"]]
        self.guard.remember(content["guard"])
        if "second phase" in content:  # an older version had no choice
            self._second.remember(content["second phase"])
            if self._second.is_first_alone:
                self.guard.stay()
        self.fork(done, first_protocol_done, elapsed_seconds)
        self.position = replace(
            self.position,
            inherited_seconds=content["inherited_seconds"],
            switch_overhead_seconds=content["switch_overhead_seconds"],
            phases=tuple(nested(PhaseRecord, phase) for phase in content["phases"]),
        )

    def mark(
        self, segment: Segment, done: int, elapsed_seconds: float, staleness: StalenessCount
    ) -> Position:
        """Returns the position of the run in the middle of a segment, for `fall_back`."""
        before = self.position
        is_first = segment.protocol == self._spec.identity.first_protocol
        seconds = elapsed_seconds - before.elapsed_seconds
        most = staleness.maximum if staleness.pushes else None
        start = segment.start_worker_step
        phase = PhaseRecord(segment.protocol, start, done, seconds, staleness.mean, most)
        return replace(
            before,
            done=done,
            first_protocol_done=before.first_protocol_done + (done - before.done) * is_first,
            elapsed_seconds=elapsed_seconds,
            phases=merge_phases((*before.phases, phase)),
        )

    def add_phase(
        self, segment: Segment, done: int, elapsed_seconds: float, staleness: StalenessCount
    ) -> None:
        self.position = self.mark(segment, done, elapsed_seconds, staleness)
        self.count_steps(done, elapsed_seconds)
        self._watched = None

    def add_step(self, worker: int, compute_seconds: float, busy_seconds: float) -> None:
        """Counts what a step took: to compute, and in all but waiting for others."""
        self._second.last_steps.add(worker, compute_seconds, busy_seconds)

    def count_steps(self, done: int, elapsed_seconds: float) -> bool:
        """Counts the steps up to `done`, and says whether the segment is to end with them.

        It is where another protocol may be faster.
        """
        segment, (counted, at) = self._watched, self._counted
        if segment is None or done <= counted:
            return False
        self._counted = done, elapsed_seconds
        was_chosen = self._second.reason
        ends = self._second.add(segment.protocol, done - counted, elapsed_seconds - at)
        if self._second.reason != was_chosen:
            self.keep_event(self._chosen_event(done, elapsed_seconds))
        return ends

    def fall_back(self, start: Position) -> None:
        """Goes back to a mark; events, and tests up to it, are kept."""
        self._evaluations = [one for one in self._evaluations if one.worker_step <= start.done]
        next_test = max(start.next_test, self._evaluation_after(self.last_evaluation_step))
        self.position = replace(start, next_test=next_test)

    def keep_switch(self, position: Position | None = None) -> None:
        """Makes this position, or the given one, the one to which the guard takes the run back."""
        self.guard.switch = position or self.position
        self.guard.look(self._evaluations)

    def return_to_switch(self, now_seconds: float) -> None:
        """Goes back to the switch; the lost time still counts, and tests are reported again."""
        guard, second, was_chosen = self.guard, self._second, self._second.reason
        name, mark = second.second or self.last_protocol, guard.switch
        if mark is not None and self.done > mark.done:
            second.time_failed((now_seconds - mark.elapsed_seconds) / (self.done - mark.done))
        after = second.following(guard.failed, guard.spec.switch_percent, guard.later_percent)
        start, event = guard.go_back(
            self.done, now_seconds, self._evaluations, second_protocol=name, following=after
        )
        self.fall_back(replace(start, elapsed_seconds=now_seconds))
        second.restart(after)
        if second.is_first:
            guard.stay()
        self._told_step = start.done
        self.add_event(event)
        if second.reason != was_chosen:
            self.add_event(self._chosen_event(self.done, now_seconds))

    def history(self) -> str:
        """Everything besides its state that a run needs to continue from here, as JSON."""
        content = {
            "run": run_identity(self._spec),
            "evaluations": self._evaluations,
            "phases": self.position.phases,
            "events": self._events,
            "guard": self.guard.history(),
            "second phase": self._second.history(),
            "inherited_seconds": self.position.inherited_seconds,
            "switch_overhead_seconds": self.position.switch_overhead_seconds,
        }
        return json.dumps(content, default=asdict)

    def next_segment(self, *, is_detour: bool = False) -> Segment | None:
        """The segment to train next; see `schedule.next_segment`."""
        spec = self.guard.spec
        segment = next_segment(spec, self.done, self.first_protocol_done, is_detour=is_detour)
        if segment is None or is_detour or not self._second.is_on:
            return segment
        if not self.is_before_switch:
            was_chosen = self._second.reason
            segment = self._second.of(segment)
            if self._second.reason != was_chosen:
                if self._second.is_first_alone:
                    self.guard.stay()
                self.add_event(self._chosen_event(self.done, self.elapsed_seconds))
        self._watched, self._counted = segment, (self.done, self.elapsed_seconds)
        return segment

    def is_switch(self, segment: Segment) -> bool:
        return self.last_protocol not in (None, segment.protocol)

    def second_since(self, segment: Segment) -> int | None:
        """Worker-step at which the second protocol began, if the next segment uses it; else None.

        It may have begun before the switch, on a detour, which ends with the first protocol.
        """
        second = segment.protocol
        if second == self._spec.identity.first_protocol:
            return None
        if len(self.position.phases) > 1:
            last = self.position.phases[-1]
            return last.start_worker_step if last.protocol == second else self.done
        # So far there was one switch at most, which may be part of a fork's prefix.
        return self.first_protocol_done

    def progress(self, done: int) -> None:
        """Reports progress to the observer, after the events that were only kept."""
        self.reached = done
        with self._observing:
            while self._pending:
                self._observer.on_event(self._pending.popleft())
            self._observer.on_progress(done)

    def is_due(self, done: int) -> bool:
        """Whether a test is due after `done` worker-steps; True only once."""
        if done < self.position.next_test:
            return False
        self.position = replace(self.position, next_test=self._evaluation_after(done))
        return True

    def add_evaluation(self, evaluation: Evaluation) -> None:
        """Records a test and its consequences: `is_stopping` may have changed."""
        if math.isnan(evaluation.accuracy):
            self.diverge("the parameters are not finite")
            return
        self._evaluations.append(evaluation)
        boundaries = self._spec.identity.recipe.learning_rate_boundaries or ()
        is_after_decay = any(evaluation.worker_step > step for step, _ in boundaries[:1])
        if is_after_decay and self._is_chance(evaluation.accuracy):
            self.diverge(f"after the first decay the accuracy is {evaluation.accuracy:.4f}: chance")
        self.guard.look(self._evaluations)
        # After parts were lost, some tests are repeated.
        if evaluation.worker_step <= self._told_step:
            return
        self._told_step = evaluation.worker_step
        with self._observing:
            if self._observer.on_evaluation(evaluation) is Verdict.STOP:
                self._told_to_stop = True

    def diverge(self, reason: str) -> None:
        """Records that the training has diverged, which ends it unless its guard takes it back."""
        self.diverged |= not self.guard.try_going_back(reason)

    def add_switch(self, protocol: str, seconds: float, now_seconds: float) -> None:
        """Records a change of protocol; the timing policy's switch is also an event."""
        overhead_seconds = self.position.switch_overhead_seconds + seconds
        self.position = replace(self.position, switch_overhead_seconds=overhead_seconds)
        if not self.is_before_switch:
            why = f"the switch is at {self.guard.spec.switch_percent:g} %"
            is_open = self._second.is_open
            if is_open:
                why = "to see how fast it is"
            elif self._second.reason is not None:
                why = "as it was chosen"
            reason = f"from {self.last_protocol} to {protocol}: {why}"
            kind = "tried" if is_open else "switched"
            self.add_event(RunEvent(kind, self.done, now_seconds, reason, seconds=seconds))

    def _chosen_event(self, done: int, now_seconds: float) -> RunEvent:
        assert self._second.reason is not None
        return RunEvent("chosen", done, now_seconds, self._second.reason)

    def add_event(self, event: RunEvent) -> None:
        self._events.append(event)
        with self._observing:
            self._observer.on_event(event)

    def add_unsaved(self, reason: str) -> None:
        """Records that something could not be written, once for each reason."""
        if ("unsaved", reason) not in {(one.kind, one.reason) for one in self._events}:
            self.add_event(RunEvent("unsaved", self.done, self.elapsed_seconds, reason))

    def keep_event(self, event: RunEvent) -> None:
        """Records an event that is reported with the next progress, so as not to wait."""
        self._events.append(event)
        self._pending.append(event)

    def record(self) -> TrialRecord:
        guard, second = self.guard.outcome(self.first_protocol_done), self._second.second
        if guard is not None and guard.failed and guard.held_percent == BASELINE_PERCENT:
            second = guard.failed[0].second_protocol  # the first one of several in vain
        protocols = self._second.protocols_with(second)
        chosen = replace(self._spec.identity, protocols=protocols)
        return trial_record(
            replace(self._spec, identity=chosen),
            self._started_at,
            self.position,
            self._evaluations,
            diverged=self.diverged,
            stopped_early=self._told_to_stop and self.done < self._spec.identity.total_worker_steps,
            checkpoints=self.files.paths,
            events=self._events,
            guard=guard,
            step_seconds=self._second.step_seconds,
        )

    def _evaluation_after(self, done: int) -> int:
        interval = self._spec.identity.recipe.evaluation_interval_worker_steps
        assert interval is not None, "a job that can be trained has an evaluation interval"
        return (done // interval + 1) * interval
