"""A guarded switch inside your own training loop.

It imports only the standard library and `typing_extensions`, and pydantic to check a policy file.
It starts no thread and no server.

```
switch = LoopSwitch("job.json", seed=7, keeps=[model, optimizer])
step = 0
while step < total_steps:
    train(second_way=switch.is_second(step))
    step += 1
    if step % 100 == 0 and (back := switch.report(step, accuracy())) is not None:
        step = back
```
"""

from __future__ import annotations

import copy
import logging
import math
import os
import sys
import time
import uuid
import weakref
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

from syncswitch.storage.errors import UserError
from syncswitch.storage.formats import KEY, LOOP_STATE
from syncswitch.storage.marks import deprecated
from syncswitch.storage.policies.file import json_content, read_plan, read_policy_file
from syncswitch.storage.policies.unmeasured import (
    LOOP_JOBS,
    check_one_says_when,
    unmeasured_policy,
    unmeasured_text,
    watched_metric,
)
from syncswitch.storage.records.flat import nested
from syncswitch.storage.records.guard import Band, FailedSwitch
from syncswitch.storage.records.job import ScheduledJob, protocol_text
from syncswitch.storage.records.metric import ACCURACY_NAME, Metric
from syncswitch.storage.records.policy import TimingPolicy, whole_use
from syncswitch.storage.records.trial import (
    BASELINE_PERCENT,
    Evaluation,
    PhaseRecord,
    RunEvent,
    TrialSpec,
)
from syncswitch.storage.uses.spool import spool_beside, spool_use
from syncswitch.trainers.command import report, tell_run
from syncswitch.trainers.job.schedule import switch_worker_step
from syncswitch.trainers.run.end_text import UNRECORDED, end_text
from syncswitch.trainers.run.guard import SwitchGuard
from syncswitch.trainers.run.own_evaluations import has_only_fallen
from syncswitch.trainers.run.record import Position, event_line, trial_record

_LOG = logging.getLogger("syncswitch")

_NO_LENGTH = (
    "there is neither a policy nor total_steps, so that all steps are in the first way; give"
    " LoopSwitch total_steps="
)
_SURELY = 5  # tests that do not fall by chance, before the switch
_ENOUGH_TESTS = 20  # in a run, for a guard that has the means of three
_EARLY_SHARE = 0.25  # of the run, by which a loop that tests at all has tested
_COPIED = "what was trained after it, and a copy of its state in memory"
_SAVED = "what was trained after it, where the loop saves its state at the switch (saves_at)"

Broadcast = Callable[[int | None], int | None]  # passes the chief's value to every process


class Stateful(Protocol):
    """An object with a state, such as a model or an optimizer of PyTorch."""

    def state_dict(self) -> Any: ...  # the whole state, which may share memory with the object
    def load_state_dict(self, state: Any, /) -> Any: ...


@dataclass
class _Course:
    """How far a loop is that has to test after its last step."""

    total_steps: int = 0  # 0 where nobody waits for that test
    last_step: int = 0
    stride: int = 1  # steps made at once
    is_switched: bool = False

    def say_untested(self) -> None:
        if 0 < self.total_steps <= self.last_step + self.stride:
            shown = "whether the switch held" if self.is_switched else "how good its model is"
            _LOG.warning(
                "the training made its %s steps, and the model was not tested after the last one:"
                " nothing shows %s, and the run is not recorded",
                f"{self.total_steps:,}",
                shown,
            )


class LoopSwitch:
    """Tells a loop in which of two ways to make a step, and when to go back to a saved state.

    If `syncswitch-run` or a search started the script, that decides when to switch and how good the
    run has to be, and gets its measurements. With a policy file alone the run is added to
    `NAME.uses.jsonl` beside the file. Without either it switches at 25 % of `total_steps`,
    which local SGD tolerated in jobs that were measured, and is compared with its own evaluations;
    a warning says what to expect, and what is not known.

    Args:
        policy: Policy file, or `{plan}` of `--trainer command`; None or empty for neither.
        switch_at: Without either, switch after this percentage of the steps; 100 is the first way
            alone.
        seed: Seed of this run, unless `syncswitch-run` started it, which has its own.
        keeps: Objects to copy in memory at the switch, and to restore after an alarm; empty if the
            loop saves and loads its state itself, see `saves_at`.
        clock: Returns the training time so far, in seconds.
        is_chief: True if this process decides and records, as one of several has to. None for rank
            0 of `torch.distributed` if that is initialized at the first test, and for a single
            process otherwise.
        broadcast: Passes the chief's value to every process; None as above.
        total_steps: The steps of this loop, to be told where the policy is for another number.
            Needed without a policy: otherwise all steps are in the first way.
        processes: The processes that train together, to be told the same; None for those of
            `torch.distributed` if that is initialized at the first test.
        metric_name: Without a policy, the name of what is tested, for messages.
        metric_goal: Without a policy, whether more of it is better, `max`, or less, `min`; None for
            an accuracy from 0 to 1.

    Attributes:
        events: The alarms so far, if this process decides.

    Raises:
        PolicyError: The file is not a policy with one switch.
        UserError: An argument is out of range.
    """

    def __init__(
        self,
        policy: str | Path | None = None,
        *,
        switch_at: float | None = None,
        seed: int = 0,
        keeps: Sequence[Stateful] = (),
        clock: Callable[[], float] = time.monotonic,
        is_chief: bool | None = None,
        broadcast: Broadcast | None = None,
        total_steps: int | None = None,
        processes: int | None = None,
        metric_name: str = ACCURACY_NAME,
        metric_goal: str | None = None,
    ) -> None:
        check_one_says_when(policy, switch_at)
        self._processes: tuple[bool, Broadcast | None] | None = None
        if is_chief is not None or broadcast is not None:
            self._processes = is_chief is not False, broadcast
        self._keeps = tuple(keeps)
        self._kept: list[Any] = []
        self._clock, self._started = clock, clock()
        self._started_at = datetime.now(timezone.utc)
        self._use_id = uuid.uuid4().hex
        self._evaluations: list[Evaluation] = []
        self.events: tuple[RunEvent, ...] = ()
        self._lost_seconds = 0.0
        self._guard: SwitchGuard | None = None
        self._is_over = False
        self._course = _Course()
        weakref.finalize(self, self._course.say_untested)
        self._has_told_fall = False
        self._untested: str | None = None
        self._is_watched: bool | None = None  # None until the tests show how rare they are
        # The first step at or after the switch, and the seconds until then.
        self._began: tuple[int, float] | None = None
        self._is_behind = True  # until a step before the switch was seen
        plan, told = (os.environ.get(f"SYNCSWITCH_{name}") for name in ("PLAN", "SWITCH_STEP"))
        self._told_step = int(told) if told and not plan else None
        self._plan_path = Path(plan) if plan else None
        self._path = self._plan_path or Path(policy or "")
        self._policy: TimingPolicy | None = None
        self._first: tuple[int, float | None, Metric] | None = None
        self._to_tell: str | None = None  # before the first step
        self._loaded: dict[str, Any] | None = None
        if self._told_step is not None:
            return
        if plan or policy:
            self._policy, spec = _read(self._path, seed)
            if self._policy is None:
                self._plan_path = self._path
            self._guard = SwitchGuard(spec)
            if self._plan_path is not None and (self._processes is None or self._processes[0]):
                tell_run(self._plan_path)
            self._tell_difference("steps", total_steps, spec.identity.total_worker_steps)
            self._tell_difference("processes", processes, spec.identity.workers)
            return
        self._first = seed, switch_at, watched_metric(metric_name, metric_goal)
        self._to_tell = _NO_LENGTH
        if total_steps is not None:
            self.set_length(total_steps, _COPIED if self._keeps else _SAVED)

    def set_length(self, total_steps: int, lost: str) -> None:
        """Takes the length of a run without a policy, unless it is known already.

        `lost` is a clause: what a switch that fails costs. Raises UserError if `switch_at` is no
        percentage.
        """
        if self._first is None:
            return
        (seed, switch_at, metric), self._first = self._first, None
        job = ScheduledJob.undescribed("loop", total_steps, 1, ("first", "second"), metric)
        policy = unmeasured_policy(job, switch_at, is_loop=True)
        self._guard = SwitchGuard(_spec(policy, job, seed))
        self._to_tell = None
        if switch_at is None:
            told = unmeasured_text(policy, lost, jobs=LOOP_JOBS, untested=self._untested)
            self._to_tell = f"this run {told}"
        elif self._untested is not None:
            self.goes_untested(self._untested)
        if self._loaded is not None:
            self.load_state_dict(self._loaded)

    def _tell_difference(self, what: str, here: int | None, there: int) -> None:
        # A policy for one process may come from a search that was not told how many there are.
        if here is not None and here != there > 1:
            _LOG.warning(
                "this loop has %s %s, and %s is for %s: the best switch may differ; find a"
                " policy for this job",
                f"{here:,}",
                what,
                self._path,
                f"{there:,}",
            )

    @property
    def switch_step(self) -> int | None:
        """The first step in the second way; None if all are in the first."""
        if self._guard is None:
            return self._told_step
        spec = self._guard.spec
        return switch_worker_step(spec) if spec.switch_percent < 100 else None

    @property
    def total_steps(self) -> int | None:
        """The steps of the job, if there is a policy file or a plan."""
        return None if self._guard is None else self._guard.spec.identity.total_worker_steps

    @property
    def may_go_back(self) -> bool:
        """True if the switch is guarded here, so that its state has to be saved."""
        if self._first is not None:
            return self._first[1] != BASELINE_PERCENT
        return self._guard is not None and self._guard.is_on

    def is_second(self, step: int) -> bool:
        """Returns True if the next step, after `step` ones, is to be made in the second way.

        Call it before each step, as it copies the states to keep. A loop that makes several steps
        at once switches at the first one at or after the switch.
        """
        if self._keeps:
            self.saves_at(step)
        return self._note_begin(int(step))

    def saves_at(self, step: int) -> bool:
        """Returns True if the state after `step` steps has to be saved, as the one to go back to.

        Call it before each step if the switch `keeps` nothing itself.
        """
        guard, step = self._guard, int(step)
        if not self._note_begin(step) or self._began is None or step != self._began[0]:
            return False
        if guard is not None and guard.switch is None:
            self._kept = [copy.deepcopy(one.state_dict()) for one in self._keeps]
            guard.switch = Position(step, *self._began)
        return True

    def goes_untested(self, why: str, *, is_end_tested: bool = False) -> None:
        """Is told before the first step that the model is not tested while it trains.

        Args:
            why: The reason, as a clause; it is said before the first step.
            is_end_tested: Whether it is tested after the last step, which may be enough.
        """
        guard = self._guard
        if guard is not None and guard.is_on:
            W = guard.spec.identity.total_worker_steps
            if is_end_tested and guard.notices(W):
                return
            self._to_tell = f"{why}, so that nothing guards the switch"
        self._untested, self._is_watched = why, False

    @property
    def is_watched_from_outside(self) -> bool:
        """Whether whoever has started this process waits for its tests."""
        return self._told_step is not None or self._plan_path is not None

    @property
    def _is_chief(self) -> bool:
        return (self._processes or _torch_processes())[0]

    def _note_begin(self, step: int) -> bool:
        """Notes where the second way begins; returns whether it has."""
        if self._to_tell is not None:
            told, self._to_tell = self._to_tell, None
            if self._is_chief:
                _LOG.warning("%s", told)
        self._note_step(step)
        at = self.switch_step
        if at is None or step < at:
            self._is_behind, self._began = False, None
            if self._guard is not None:
                self._guard.switch = None
            return False
        if self._began is None:
            if step > at and self._is_behind:
                _LOG.warning(
                    "the loop starts at step %s, after the switch at step %s: the steps before it"
                    " count as the first way; call load_state_dict to continue a killed loop",
                    f"{step:,}",
                    f"{at:,}",
                )
            self._began = step, self._clock() - self._started
        self._check_tests(step)
        return True

    def _note_step(self, step: int) -> None:
        guard, course = self._guard, self._course
        if guard is None or self._plan_path is not None or self._is_over or not self._is_chief:
            return
        course.total_steps = guard.spec.identity.total_worker_steps
        course.stride = (
            max(1, step - course.last_step) if step != course.last_step else course.stride
        )
        course.last_step = step
        course.is_switched = guard.spec.switch_percent < BASELINE_PERCENT

    def _check_tests(self, step: int) -> None:
        """Says at the switch, or when it can be known, that tests are too rare for the guard."""
        guard = self._guard
        if guard is None or self._is_watched is not None or not self._is_chief:
            return
        W = guard.spec.identity.total_worker_steps
        tests = [one.worker_step for one in self._evaluations]
        if not guard.is_on or (not tests and step < _EARLY_SHARE * W):
            return
        every = max(1, round(tests[-1] / len(tests))) if tests else step + 1
        self._is_watched = guard.notices(every)
        if self._is_watched:
            return
        seen = f"with a test about every {every:,} steps" if tests else "without a test so far"
        _LOG.warning(
            "%s nothing shows whether the switch at step %s fails: test the model at least every %s"
            " steps",
            seen,
            f"{self.switch_step or 0:,}",
            f"{max(1, W // _ENOUGH_TESTS):,}",
        )

    def _check_saved(self, guard: SwitchGuard) -> None:
        if self._began is None or guard.switch is not None or not guard.is_on:
            return
        guard.give_up()
        _LOG.warning(
            "the second way began at step %s and nothing was saved there, so that the run continues"
            " without a guard; give keeps=[model, optimizer], or call saves_at before each step",
            f"{self._began[0]:,}",
        )

    def report(self, step: int, value: float | None, loss: float = math.nan) -> int | None:
        """Takes what an evaluation of the model measured; the one after all steps ends the run.

        All processes call it after the same steps; the chief's values count.

        Args:
            step: Steps done.
            value: The policy's metric, an accuracy from 0 to 1 unless it has another one. None in
                processes other than the chief, which need not test.
            loss: Mean training loss since the last report; nan if unknown.

        Returns:
            The step to go back to, whose state has to be loaded; None to go on. What the switch
            `keeps` is restored already.
        """
        guard = self._guard
        if self._processes is None:
            is_chief, broadcast, number = _torch_processes()
            self._processes = is_chief, broadcast
            if guard is not None and is_chief and number > 1:
                self._tell_difference("processes", number, guard.spec.identity.workers)
        is_chief, broadcast = self._processes
        if is_chief and value is None:
            raise TypeError("rank 0 decides: give report() a value; other processes may give None")
        # NumPy's and PyTorch's numbers are no JSON.
        step, loss = int(step), float(loss)
        value = math.nan if value is None else float(value)
        if guard is None:
            if is_chief and self._told_step is not None:
                # Without a clock of the loop's own the reader of the report uses its own.
                seconds = None if self._clock is time.monotonic else self._clock() - self._started
                report(step, value, seconds=seconds, loss=None if math.isnan(loss) else loss)
            return None
        self._check_saved(guard)
        back = self._decide(guard, step, value, loss) if is_chief else None
        if broadcast is not None:
            back = broadcast(back)
        if back is None:
            return None
        if not is_chief:
            guard.switch = None
            guard.fail(FailedSwitch(guard.spec.switch_percent, "", step, 0.0, 0.0))
        for one, state in zip(self._keeps, self._kept, strict=True):
            one.load_state_dict(state)
        self._kept = []  # the objects may share their memory now
        self._began = None
        return back

    @deprecated("0.2", "0.3", "report")
    def test(self, step: int, value: float | None, loss: float = math.nan) -> int | None:
        """Does what `report` does."""
        return self.report(step, value, loss)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state to save with the loop's own checkpoints, to go on after a kill."""
        guard = self._guard
        mark = None if guard is None else guard.switch
        return {
            KEY: LOOP_STATE.version,
            "use_id": self._use_id,
            "started_at": self._started_at.isoformat(),
            "elapsed_seconds": self._clock() - self._started,
            "lost_seconds": self._lost_seconds,
            "evaluations": [asdict(one) for one in self._evaluations],
            "events": [asdict(one) for one in self.events],
            "history": None if guard is None else guard.history(),
            "switch": None if mark is None else [mark.done, mark.elapsed_seconds],
            "began": self._began,
            "kept": self._kept,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the state of a loop that was killed, or of an earlier step of this one.

        A state from before the last alarm changes nothing: a failed switch is not forgotten.

        Raises TooNewError if a newer version has saved it in a way that this one cannot read.
        """
        LOOP_STATE.check(state.get(KEY), "the state of this loop")
        guard, history = self._guard, state["history"]
        if self._first is not None:
            self._loaded = state
        if guard is None or history is None or len(history["failed"]) < len(guard.failed):
            return
        guard.remember(history)
        guard.alarm, mark = None, state["switch"]
        guard.switch = None if mark is None else Position(mark[0], *mark)
        began, at = state["began"], self.switch_step
        # That of a switch that has failed since is over.
        self._began = tuple(began) if began and at is not None and began[0] >= at else None
        self._use_id = state["use_id"]
        self._started_at = datetime.fromisoformat(state["started_at"])
        self._started = self._clock() - state["elapsed_seconds"]
        self._lost_seconds = state["lost_seconds"]
        self._evaluations = [Evaluation.of(one) for one in state["evaluations"]]
        self.events = tuple(nested(RunEvent, one) for one in state["events"])
        self._kept, self._is_over = state["kept"], False

    def _decide(self, guard: SwitchGuard, step: int, value: float, loss: float) -> int | None:
        if self._is_over:
            return None
        seconds = self._clock() - self._started
        identity = guard.spec.identity
        metric = identity.metric
        is_finite = math.isfinite(value)
        accuracy = metric.accuracy(value) if is_finite else metric.worst_accuracy
        is_unmeasured = self._plan_path is None and self._policy is None
        if is_unmeasured and not metric.is_possible(accuracy):
            raise UserError(
                f"an evaluation has {metric.name} {value:g}, and without a policy it is an accuracy"
                " from 0 to 1: give metric_goal='max' if more of it is better, or 'min' if less is",
                code="parameter-missing",
            )
        self._evaluations.append(Evaluation(step, seconds, accuracy, loss))
        if is_finite:
            if not self._has_only_fallen(guard):
                guard.look(self._evaluations)
        elif guard.switch is not None and step > guard.switch.done:
            # At the switch itself it is the first way that has failed.
            guard.try_going_back("it diverged")
        if guard.alarm is not None:
            mark, event = guard.go_back(step, seconds, self._evaluations)
            self.events += (event,)
            _LOG.warning("%s", event_line(event, identity.step_noun))
            self._is_watched = None if self._untested is None else False
            self._lost_seconds += seconds - mark.elapsed_seconds
            self._evaluations = [one for one in self._evaluations if one.worker_step <= mark.done]
            if self._plan_path is not None:
                tell_run(self._plan_path, event=event, failed=guard.failed[-1], back=mark.done)
                report(step, seconds=seconds)
            return mark.done
        if not is_finite or step >= identity.total_worker_steps:
            self._is_over, self._course.total_steps = True, 0
            self._record(guard, step, seconds, diverged=not is_finite)
        if self._plan_path is not None:
            losses = {"loss": loss} if math.isfinite(loss) else {}
            report(step, seconds=seconds, **{**losses, metric.name: value})
        return None

    def _has_only_fallen(self, guard: SwitchGuard) -> bool:
        """Whether the first way made it worse and worse, as it does a loss, and says so once."""
        identity, begin = guard.spec.identity, self._began
        band, metric = guard.spec.band, identity.metric
        if metric.is_less_better or (band is not None and band.target_accuracy is not None):
            return False
        before = [one for one in self._evaluations if begin is None or one.worker_step <= begin[0]]
        if not has_only_fallen(before) or (begin is None and len(before) < _SURELY):
            return False
        if not self._has_told_fall:
            self._has_told_fall = True
            _LOG.warning(
                "%s has only fallen in %s, from %s to %s: if less of it is better, give"
                " metric_goal='min'; a fall after the switch sends no such run back",
                metric.name,
                protocol_text(identity.first_protocol),
                metric.text(before[0].accuracy),
                metric.text(before[-1].accuracy),
            )
        return True

    def _record(self, guard: SwitchGuard, step: int, seconds: float, *, diverged: bool) -> None:
        job = guard.spec.identity
        first_done, first_end = self._began or (step, seconds)
        first_seconds = first_end - self._lost_seconds
        phases: tuple[PhaseRecord, ...] = (
            PhaseRecord(job.first_protocol, 0, first_done, first_seconds, None, None),
            PhaseRecord(job.second_protocol, first_done, step, seconds - first_end, None, None),
        )
        phases = tuple(one for one in phases if one.start_worker_step < one.end_worker_step)
        results: dict[str, Any] = {
            "evaluations": self._evaluations,
            "diverged": diverged,
            "events": self.events,
            "guard": guard.outcome(first_done),
        }
        if self._plan_path is not None:
            end = {"worker_steps": step, "training_seconds": seconds, "phases": phases}
            tell_run(self._plan_path, **end, **results)
        else:
            recorded = self._spooled(guard, step, seconds, phases, results)
            _LOG.warning("%s. %s", self._end_text(guard, phases, diverged=diverged), recorded)

    def _end_text(
        self, guard: SwitchGuard, phases: Sequence[PhaseRecord], *, diverged: bool
    ) -> str:
        job = guard.spec.identity
        if diverged:
            return f"the training diverged by {job.step_noun} {phases[-1].end_worker_step:,}"
        has_switched = phases[-1].protocol == job.second_protocol
        return end_text(
            job,
            guard.failed,
            guard.spec.switch_percent if has_switched else BASELINE_PERCENT,
            phases,
            self._lost_seconds,
            is_watched=guard.is_on and bool(self._is_watched) and not self._has_only_fallen(guard),
        )

    def _spooled(
        self,
        guard: SwitchGuard,
        step: int,
        seconds: float,
        phases: tuple[PhaseRecord, ...],
        results: dict[str, Any],
    ) -> str:
        """Adds the run to the file beside its policy; returns a sentence that says so."""
        if self._policy is None:
            return UNRECORDED
        position = Position(step, elapsed_seconds=seconds, phases=phases)
        record = trial_record(guard.specs[0], self._started_at, position, **results)
        use, spool = whole_use(self._policy, self._use_id, record), spool_beside(self._path)
        if use is None:
            return "It is not recorded, as it came to no end"
        try:
            spool_use(spool, use)
        except UserError as error:  # the model is trained
            return f"It is not recorded: {error}"
        return f"It waits in {spool} for its import into the database"


def _torch_processes() -> tuple[bool, Broadcast | None, int]:
    """Returns `is_chief`, `broadcast` and the processes of PyTorch, or of a single process."""
    dist: Any = sys.modules.get("torch.distributed")  # nothing is initialized that is not loaded
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return True, None, 1

    def broadcast(value: int | None) -> int | None:
        box = [value]
        dist.broadcast_object_list(box)
        return box[0]

    return dist.get_rank() == 0, broadcast, dist.get_world_size()


def _read(path: Path, seed: int) -> tuple[TimingPolicy | None, TrialSpec]:
    """Reads a policy file and makes its run, or a plan, the run that `syncswitch-run` watches."""
    content = json_content(path)
    if "trial" in content:
        return None, _trial(**read_plan(path, content))
    found = read_policy_file(path)
    return found.policy, _spec(found.policy, found.identity, seed)


def _spec(policy: TimingPolicy, identity: ScheduledJob, seed: int) -> TrialSpec:
    return TrialSpec.of_policy(identity, policy.switch_percent, seed, policy.band)


def _trial(
    identity: dict[str, Any], band: dict[str, Any] | None, retry_percents: list[float], **own: Any
) -> TrialSpec:
    return TrialSpec(
        ScheduledJob.of(identity),
        band=None if band is None else Band.of(band),
        retry_percents=tuple(retry_percents),
        **own,
    )
