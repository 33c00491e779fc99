"""The guarded switch of a training loop of one's own.

It loads the standard library and `typing_extensions` alone, starts no thread and no server.

```
switch = LoopSwitch("job.json", seed=7)
step = 0
while step < total_steps:
    if switch.saves_at(step):
        save(f"state-{step}")
    train(second_way=switch.is_second(step))
    step += 1
    if step % 100 == 0 and (back := switch.test(step, accuracy())) is not None:
        load(f"state-{back}")
        step = back
```
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from syncswitch.storage.errors import PolicyError
from syncswitch.storage.records.guard import Band, FailedSwitch, later_switch_points
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import Evidence, TimingPolicy
from syncswitch.storage.records.trial import Evaluation, PhaseRecord, RunEvent, TrialSpec
from syncswitch.storage.records.use import whole_use
from syncswitch.storage.uses.waiting import spool_beside, spool_use
from syncswitch.trainers.command import report
from syncswitch.trainers.job.schedule import switch_worker_step
from syncswitch.trainers.run.guard import Guarding
from syncswitch.trainers.run.position import Position
from syncswitch.trainers.run.record import trial_record


class LoopSwitch:
    """Says which of two ways of training holds at a step, and when to go back to a saved state.

    Where `syncswitch-run` or a search started the script, these say when to switch, and guard the
    run. With a policy file alone the loop is guarded here, and the run is added to
    `NAME.uses.jsonl` beside the file. Without either all steps are in the first way.

    Args:
        policy: Policy file; None for none.
        seed: Of this run.
        is_chief: Whether this process decides and records; of several, one does.
        broadcast: Gives every process what the chief has; None for a single process.

    Raises:
        PolicyError: The file is no policy of one switch.
    """

    def __init__(
        self,
        policy: str | Path | None = None,
        *,
        seed: int = 0,
        is_chief: bool = True,
        broadcast: Callable[[int | None], int | None] | None = None,
    ) -> None:
        self._is_chief, self._broadcast = is_chief, broadcast
        self._started_at, self._started = datetime.now(timezone.utc), time.monotonic()
        self._evaluations: list[Evaluation] = []
        self._events: tuple[RunEvent, ...] = ()
        self._lost_seconds = 0.0
        self._guarding: Guarding | None = None
        self._is_over = False
        told = os.environ.get("SYNCSWITCH_SWITCH_STEP")
        self._told_step = int(told) if told else None
        if self._told_step is None and policy is not None:
            self._path = Path(policy)
            self._policy, identity = _read(self._path)
            band, percent = self._policy.band, self._policy.switch_percent
            retries = later_switch_points(percent) if band else ()
            spec = TrialSpec(identity, percent, seed, band=band, retry_percents=retries)
            self._guarding = Guarding(spec)

    @property
    def switch_step(self) -> int | None:
        """The step from which on the second way holds; None for the first way alone."""
        if self._guarding is None:
            return self._told_step
        plan = self._guarding.plan
        return switch_worker_step(plan) if plan.switch_percent < 100 else None

    def is_second(self, step: int) -> bool:
        """Whether the step after so many is made in the second way."""
        return self.switch_step is not None and step >= self.switch_step

    def saves_at(self, step: int) -> bool:
        """Whether to save the state now, after so many steps: it is the one to go back to.

        To be asked once before each step.
        """
        if step != self.switch_step:
            return False
        if self._guarding is not None:
            seconds = time.monotonic() - self._started
            self._guarding.switch = Position(step, step, seconds)
        return True

    def test(self, step: int, value: float, loss: float = math.nan) -> int | None:
        """Takes a test of the model; the last one, after all steps, ends the run.

        All processes call it after the same steps; what the chief gives counts.

        Args:
            step: Steps done.
            value: Of the policy's metric; an accuracy, 0 to 1, where that is what counts.
            loss: Mean training loss since the test before; nan where nobody knows.

        Returns:
            The step whose saved state is to be loaded, from which the loop goes on; else None.
        """
        guarding = self._guarding
        if guarding is None:
            if self._is_chief and self._told_step is not None:
                report(step, value, loss=None if math.isnan(loss) else loss)
            return None
        back = self._decide(guarding, step, value, loss) if self._is_chief else None
        if self._broadcast is not None:
            back = self._broadcast(back)
        if back is None:
            return None
        if not self._is_chief:
            guarding.switch = None
            guarding.fail(FailedSwitch(guarding.plan.switch_percent, "", step, 0.0, 0.0))
        return back

    def _decide(self, guarding: Guarding, step: int, value: float, loss: float) -> int | None:
        if self._is_over:
            return None
        seconds = time.monotonic() - self._started
        metric = self._policy.decided_by
        is_finite = math.isfinite(value)
        accuracy = metric.accuracy(value) if is_finite else metric.worst_accuracy
        self._evaluations.append(Evaluation(step, seconds, accuracy, loss))
        if is_finite:
            guarding.look(self._evaluations)
        else:
            guarding.catches("it diverged")
        if guarding.alarm is not None:
            mark, event = guarding.go_back(step, seconds, self._evaluations)
            self._events += (event,)
            self._lost_seconds += seconds - mark.elapsed_seconds
            self._evaluations = [one for one in self._evaluations if one.worker_step <= mark.done]
            return mark.done
        if not is_finite or step >= self._policy.total_worker_steps:
            self._is_over = True
            self._record(guarding, step, seconds, diverged=not is_finite)
        return None

    def _record(self, guarding: Guarding, step: int, seconds: float, *, diverged: bool) -> None:
        spec, mark = guarding.plan, guarding.switch
        first_done = step if mark is None else mark.done
        first_end = seconds if mark is None else mark.elapsed_seconds
        pair = spec.identity
        phases = (
            (pair.first_protocol, 0, first_done, first_end - self._lost_seconds),
            (pair.second_protocol, first_done, step, seconds - first_end),
        )
        record = trial_record(
            guarding.plans[0],
            self._started_at,
            worker_steps=step,
            evaluations=self._evaluations,
            phases=(PhaseRecord(*one, None, None) for one in phases if one[1] < one[2]),
            diverged=diverged,
            training_seconds=seconds,
            events=self._events,
            guard=guarding.outcome(first_done),
        )
        use = whole_use(self._policy, uuid.uuid4().hex, record)
        if use is not None:
            spool_use(spool_beside(self._path), use)


def _read(path: Path) -> tuple[TimingPolicy, WorkloadIdentity]:
    """A policy file, as `syncswitch-search policy export` writes it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
        values = {"workload": content["workload"], "policy": content["policy"]}
        canonical = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
        checksum = "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()
        if (content["schema_version"], content["checksum"]) != (1, checksum):
            raise ValueError("it was altered, or another version wrote it")
        policy, identity = _policy(values["policy"]), _identity(values["workload"])
        if policy.fingerprint != identity.fingerprint:
            raise ValueError("it is for another workload than it says")
    except OSError as error:
        raise PolicyError(
            f"cannot read the policy file {path}: {error.strerror or error};"
            " `syncswitch-search policy export` writes one"
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise PolicyError(
            f"{path} is no policy file ({error}); export it again with `syncswitch-search policy"
            " export`"
        ) from error
    return policy, identity


def _policy(values: dict[str, Any]) -> TimingPolicy:
    band = None if values["band"] is None else Band.of(values["band"])
    evidence = tuple(Evidence(**run) for run in values["evidence"])
    return TimingPolicy(**{**values, "evidence": evidence, "band": band})


def _identity(values: dict[str, Any]) -> WorkloadIdentity:
    content = {name: value for name, value in values.items() if name != "reference"}
    boundaries = content["learning_rate_boundaries"]
    if boundaries is not None:
        content["learning_rate_boundaries"] = tuple(tuple(one) for one in boundaries)
    return WorkloadIdentity(**content)
