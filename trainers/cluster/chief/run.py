"""One training run on a running cluster: segments, threads, evaluations, copies of the state."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialSpec
from syncswitch.trainers.cluster.chief.clock import TrainingClock
from syncswitch.trainers.cluster.chief.coordinator import Coordinator, Notice
from syncswitch.trainers.cluster.chief.evaluator import Evaluator
from syncswitch.trainers.cluster.chief.executor import ClusterExecutor
from syncswitch.trainers.cluster.chief.recovery import Note, Recovery, TakenSteps
from syncswitch.trainers.cluster.exchange.plans import Hold
from syncswitch.trainers.cluster.exchange.shards import Undone
from syncswitch.trainers.cluster.members.cluster import Cluster, ServerLostError, WorkerLostError
from syncswitch.trainers.faults.active import ActiveInjections
from syncswitch.trainers.job.hyperparameters import Configuration
from syncswitch.trainers.job.schedule import (
    Segment,
    checkpoint_path,
    next_segment,
    switch_worker_step,
)
from syncswitch.trainers.model.embeddings import NoRoomForEmbeddingsError
from syncswitch.trainers.model.layout import ModelState
from syncswitch.trainers.model.tester import ModelTester
from syncswitch.trainers.protocols import Exchange, choose_protocol
from syncswitch.trainers.protocols.steps import SegmentSteps, Ticket
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.run.record import Position
from syncswitch.trainers.stragglers.online import Decision, OnlineController


@dataclass(frozen=True)
class Backup:
    """A copy of the state, from which a run goes on if a parameter server is lost.

    `undone` are the worker-steps before the position `mark` that are missing from the state.
    """

    state: ModelState
    mark: Position
    undone: Undone = field(default_factory=dict)


class FaultInjector:
    """Carries out the injected stragglers and failures of one trial."""

    def __init__(self, active: ActiveInjections, cluster: Cluster) -> None:
        self._active = active
        self._cluster = cluster
        # For each worker that is to die, whether that is after its step or before.
        self._doomed: dict[int, bool] = {}
        self._strikes = 0

    def advance(self, done: int, now_seconds: float, note: Note) -> None:
        for injection, is_start in self._active.advance(done, now_seconds):
            if not is_start:
                continue
            note("injected", injection.text, injection.worker)
            if injection.kind == "straggler":
                continue
            if injection.role == "chief":
                os.kill(os.getpid(), signal.SIGKILL)
            elif self._cluster.has_processes:
                number = signal.SIGSTOP if injection.kind == "hang" else signal.SIGKILL
                self._cluster.signal((injection.role, injection.number), number)
            elif injection.worker is not None:
                self._doomed[injection.worker] = bool(self._strikes % 2)
                self._strikes += 1

    def hold_of(self, worker: int) -> Hold:
        return Hold(self._active.delay_seconds(worker), self._active.slowdown(worker))

    def maybe_lose(self, worker: int, *, is_done: bool) -> None:
        """Raises WorkerLostError if a worker without a process is to die; called in its thread.

        Workers die alternately before their step and after it, when nobody knows that it was done.
        """
        if self._doomed.get(worker) is is_done:
            del self._doomed[worker]
            raise WorkerLostError("it was told to end")


@dataclass
class ClusterTrial:
    """A trial, on as many clusters as it takes.

    `switch_state` is None before the switch, and without a guard.
    """

    spec: TrialSpec
    log: RunLog
    clock: TrainingClock
    configuration: Configuration
    fault_injector: FaultInjector
    controller: OnlineController | None
    backup: Backup | None = None
    switch_state: ModelState | None = None


# The state is copied so often, but copying takes at most a twentieth of the time.
_PAUSE_SECONDS = 2.0
_SHARE = 20.0
_NO_COPY = "the run continues, but will go back further if a parameter server is lost"

_TICK_SECONDS = 0.02
_PROGRESS_SECONDS = 0.2
# Threads that wait longer, for lost processes, end with this process.
_LEAVE_SECONDS = 30.0


class TrainingRun:
    """Trains from the state on the parameter servers to the end of the job; used once.

    With `restarts_at_switch` it ends at the switch, so that the cluster can be restarted. `undone`
    are worker-steps to do first, although later ones are done.
    """

    def __init__(
        self,
        trial: ClusterTrial,
        cluster: Cluster,
        tester: ModelTester,
        *,
        restarts_at_switch: bool,
        undone: Undone = MappingProxyType({}),
    ) -> None:
        self._cluster = cluster
        self._trial = trial
        self._undone = tuple(undone)
        self._taken = TakenSteps(len(cluster.servers), undone)
        self._spec = spec = trial.spec
        self._log = log = trial.log
        self._fault_injector = trial.fault_injector
        self._clock = trial.clock
        self._restarts_at_switch = restarts_at_switch
        workers = range(spec.identity.workers)
        self._executor = executor = ClusterExecutor(
            cluster, trial.configuration, spec.seed, lambda: self._coordinator.members, self._note
        )
        self._coordinator = Coordinator(
            workers,
            executor.join,
            self._on_done,
            on_step=log.add_step,
            prepare=executor.prepare,
            done=log.done,
        )
        self._controller = trial.controller
        self._judging = threading.Lock()
        if self._controller is not None:
            self._coordinator.decide = self._decide
            for worker in workers:
                # Workers that were lost in an earlier cluster are there again.
                self._controller.returned(worker)
            self._coordinator.resting |= set(workers) - self._controller.active
        self._protocol = ""
        self._backed_up_seconds = time.monotonic()
        self._pause_seconds = _PAUSE_SECONDS
        self._recovery = Recovery(cluster, self._coordinator, self._note, self._taken)
        self._evaluator = Evaluator(tester, 4 * cluster.program.sizes.model, self._on_evaluation)
        self._tested_rows = tester.ids
        self._ended = threading.Event()
        self._requested_step = log.last_evaluation_step

    def execute(self) -> bool:
        """Runs to the end, to divergence or an alarm, or until the observer stops it.

        Returns False if the cluster has to be restarted for the switch before the run continues;
        raises ServerLostError if a parameter server is gone, and with it the state.
        """
        threads = [
            threading.Thread(
                target=self._work, args=(worker,), name=f"worker-{worker}", daemon=True
            )
            for worker in self._coordinator.workers
        ]
        threads.append(threading.Thread(target=self._watch, name="watchdog", daemon=True))
        for thread in threads:
            thread.start()
        try:
            if not self._run_segments():
                return False
            self._request_evaluation(self._coordinator.done)
            if self._log.has_to_go_back:
                self._evaluator.drop()
            else:
                self._evaluator.finish(self._report_progress, _PROGRESS_SECONDS)
            self._report_progress()
        except ServerLostError:
            # Evaluations of steps that are not lost still count.
            self._evaluator.catch_up()
            raise
        finally:
            self._ended.set()
            self._log.reached = self._coordinator.done
            self._coordinator.stop()
            self._coordinator.dismiss()
            self._evaluator.abandon()
            deadline = time.monotonic() + _LEAVE_SECONDS
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))
        return True

    def _run_segments(self) -> bool:
        log = self._log
        while (segment := log.next_segment(is_detour=log.is_detour)) is not None:
            if self._restarts_at_switch and not log.is_before_switch and log.is_switch(segment):
                # Pending evaluations would be abandoned with this run.
                start = time.perf_counter()
                self._evaluator.catch_up()
                self._clock.leave_out(time.perf_counter() - start)
                return False
            self._run_segment(segment)
            if self._coordinator.stopping:
                break
        if self._coordinator.error is not None:
            raise self._coordinator.error
        return True

    def _run_segment(self, segment: Segment) -> None:
        choice = choose_protocol(segment.protocol)
        self._protocol = segment.protocol
        if self._log.is_at_guarded_switch:
            # A guard may go back to it.
            checkpoints = self._cluster.program.checkpoints
            self._trial.switch_state = checkpoints.kept_switch(self._state, self._log)
        if not self._log.is_before_switch:
            self._log.is_detour = False
            if self._controller is not None:
                done, now_seconds = self._coordinator.done, self._clock.now_seconds
                with self._judging:
                    events = self._controller.at_switch(done, now_seconds)
                self._keep_events(events)
            self._coordinator.resting.clear()
        members, second_since = self._coordinator.members, self._log.second_since(segment)
        for lost in self._executor.begin(
            choice.exchange,
            members,
            second_since,
            self._coordinator.done,
            choice.after,
            is_trial=segment.is_trial,
        ):
            self._coordinator.note_lost(lost)
        if self._log.is_switch(segment):
            # The time since the last update is the cost of the switch.
            seconds = max(0.0, self._clock.idle_seconds)
            self._clock.add(seconds)
            self._log.add_switch(segment.protocol, seconds, self._clock.now_seconds)
        self._clock.start()
        end, batches = segment.end_worker_step, self._executor.batches
        machine = partial(choice.machine, done=self._coordinator.done, second_since=second_since)
        self._coordinator.begin(machine, end, self._undone, batches)
        self._undone = ()
        while not self._coordinator.wait_until_drained(_PROGRESS_SECONDS):
            self._coordinator.tick()
            self._report_progress()
            self._back_up_if_due(segment)
        if self._coordinator.error is not None:
            raise self._coordinator.error
        self._executor.finish()
        self._clock.stop()
        done, staleness = self._coordinator.done, self._coordinator.staleness
        self._log.add_phase(segment, done, self._clock.last_update_seconds, staleness)
        is_whole = done == segment.end_worker_step
        if segment.checkpoint_percents and is_whole and not self._coordinator.stopping:
            start = time.perf_counter()
            self._write_checkpoint(segment.checkpoint_percents)
            self._clock.leave_out(time.perf_counter() - start)

    def _report_progress(self) -> None:
        self._log.progress(self._coordinator.done)

    def _work(self, worker: int) -> None:
        try:
            while True:
                if self._serve(worker):
                    return
                if not self._recovery.bring_back(worker):
                    return
                self._tell_controller(worker, is_lost=False)
        except BaseException as error:
            self._coordinator.fail(worker, error)

    def _serve(self, worker: int) -> bool:
        """Does the steps of a worker until the run ends; returns False if the worker is lost."""
        inbox = self._coordinator.inboxes[worker]
        while (ticket := inbox.get()) is not Notice.END:
            if not isinstance(ticket, Ticket):
                self._recovery.lose_unreached(worker, self._executor.exchange)
                self._tell_controller(worker, is_lost=True)
                return False
            start, number = time.perf_counter(), next(self._cluster.numbers)
            self._taken.ask(ticket, number)
            try:
                self._fault_injector.maybe_lose(worker, is_done=False)
                hold = self._fault_injector.hold_of(worker)
                taken = self._taken.by(ticket.worker_step)
                step = self._executor.step(ticket, hold, number, taken)
                self._fault_injector.maybe_lose(worker, is_done=True)
            except BaseException as error:
                if self._recovery.lose(ticket, number, error, self._executor.exchange):
                    self._tell_controller(worker, is_lost=True)
                    return False
                continue
            try:
                if not math.isfinite(step.loss):
                    self._log.diverge("a training loss is not finite")
                    self._coordinator.stop()
                busy_seconds = (time.perf_counter() - start) / ticket.batches
                self._coordinator.acknowledge(worker, step, busy_seconds, ticket.batches)
            except BaseException as error:
                self._coordinator.fail(worker, error)
        return True

    def _on_done(self, done: int) -> None:
        self._clock.mark_update()
        if self._log.is_due(done):
            self._request_evaluation(done)
        if self._log.count_steps(done, self._clock.last_update_seconds):
            self._coordinator.cut()

    def _request_evaluation(self, done: int) -> None:
        if done == self._requested_step or self._log.diverged or self._log.has_to_go_back:
            return
        self._requested_step = done
        loss = self._coordinator.loss.take()
        model, seconds = self._executor.snapshot(self._tested_rows), self._clock.last_update_seconds
        self._evaluator.submit(Evaluation(done, seconds, math.nan, loss), model)

    def _on_evaluation(self, evaluation: Evaluation) -> None:
        """Called in the evaluator's thread."""
        try:
            self._log.add_evaluation(evaluation)
        except BaseException:
            # The evaluator raises it at the end of the run, which is now.
            self._coordinator.stop()
            raise
        if self._log.is_stopping:
            self._coordinator.stop()

    def _decide(self, worker: int, busy_seconds: float) -> Decision:
        assert self._controller is not None
        done, now_seconds = self._coordinator.done, self._clock.now_seconds
        with self._judging:
            self._controller.observe(worker, busy_seconds)
            decision = self._controller.judge(done, now_seconds, self._is_before_switch)
        self._keep_events(decision.events)
        if decision.protocol is not None:
            self._log.is_detour = decision.protocol == "second"
        for straggler in decision.remove:
            self._executor.leave(straggler)
        return decision

    def _tell_controller(self, worker: int, *, is_lost: bool) -> None:
        if self._controller is not None:
            with self._judging:
                (self._controller.lost if is_lost else self._controller.returned)(worker)

    def _keep_events(self, events: Iterable[RunEvent]) -> None:
        for event in events:
            self._log.keep_event(event)

    @property
    def _is_before_switch(self) -> bool:
        first = self._log.first_protocol_done
        if self._protocol == self._spec.identity.first_protocol:
            first += self._coordinator.done - self._log.done
        return not self._log.guard.failed and first < switch_worker_step(self._spec)

    def _watch(self) -> None:
        """Injects what is due and gives up parts that hang, in a thread of its own.

        It never waits for a part of the cluster, nor for a lock that is held meanwhile: a part that
        hangs raises no error, so everybody would wait forever.
        """
        while not self._ended.wait(_TICK_SECONDS):
            try:
                done, now_seconds = self._coordinator.done, self._clock.now_seconds
                self._fault_injector.advance(done, now_seconds, self._note)
                self._cluster.look_after()
            except BaseException as error:
                self._coordinator.fail(None, error)
                return

    def _note(
        self, kind: str, reason: str, worker: int | None = None, seconds: float | None = None
    ) -> None:
        done, now_seconds = self._coordinator.done, self._clock.now_seconds
        self._log.add_event(RunEvent(kind, done, now_seconds, reason, worker, seconds))

    def _write_checkpoint(self, percents: Sequence[float]) -> None:
        self._report_progress()
        # The checkpoint includes all evaluations so far.
        self._evaluator.catch_up()
        path = checkpoint_path(self._spec, percents[-1], ".npz")
        with ExitStack() as reading:
            try:
                state = self._state()
            except NoRoomForEmbeddingsError as error:
                self._log.add_unsaved(f"{error}; {_NO_COPY}")
                state = reading.enter_context(self._cluster.readable_state())
            self._cluster.program.checkpoints.save(path, percents, state, self._spec, self._log)

    def _back_up_if_due(self, segment: Segment) -> None:
        """Copies the state if it is time to; not that of replicas, which the workers hold."""
        start = time.monotonic()
        is_due = start - self._backed_up_seconds >= self._pause_seconds
        is_replica = self._executor.exchange is Exchange.REPLICA
        if not is_due or not self._cluster.has_processes or is_replica:
            return
        try:
            mark, undone = self._coordinator.at_rest(lambda steps: self._mark(steps, segment))
            state = self._executor.with_own_slots(self._cluster.marked())
            spec = self._log.guard.spec
            following = next_segment(
                spec, mark.done, mark.first_protocol_done, is_detour=mark.is_detour
            )
            # Just after an online policy has decided to change the protocol, the other one would
            # redo steps that some servers have.
            is_other = following is not None and following.protocol != segment.protocol
            if not (is_other and any(undone.values())):
                self._trial.backup = Backup(state, mark, undone)
        except ServerLostError as error:
            self._coordinator.fail(None, error)
        except NoRoomForEmbeddingsError as error:
            self._log.add_unsaved(f"{error}; {_NO_COPY}")
        self._backed_up_seconds = time.monotonic()
        self._pause_seconds = max(_PAUSE_SECONDS, _SHARE * (self._backed_up_seconds - start))

    def _mark(self, steps: SegmentSteps, segment: Segment) -> tuple[Position, Undone]:
        """Marks the state on the cluster; returns the position and the steps that it lacks."""
        pushed = self._cluster.mark()
        applied: Collection[Ticket] = ()
        taken: dict[int, frozenset[int]] = {}
        if steps.exchange is Exchange.PUSH:
            taken, applied = self._taken.at_mark(pushed)
        undone = {step: taken.get(step, frozenset()) for step in steps.undone(applied)}
        done, now_seconds = steps.next_step - len(undone), self._clock.last_update_seconds
        return self._log.mark(segment, done, now_seconds, self._coordinator.staleness), undone

    def _state(self) -> ModelState:
        """Returns a copy of the state between segments, and keeps it as the newest."""
        backup, mark = self._trial.backup, self._log.position
        if backup is None or backup.mark != mark or backup.undone:
            self._trial.backup = backup = Backup(self._cluster.state(), mark)
        return backup.state
