"""A timing policy in your own `model.fit`."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras

from syncswitch.storage.errors import UserError
from syncswitch.storage.marks import renamed_parameter
from syncswitch.storage.policies.file import read_policy_file
from syncswitch.storage.policies.unguarded import unguarded_warning
from syncswitch.storage.policies.unmeasured import (
    check_one_says_when,
    unmeasured_policy,
    unmeasured_text,
    watched_metric,
)
from syncswitch.storage.records.job import USUAL_PROTOCOLS, ScheduledJob
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import Evaluation
from syncswitch.trainers.job.hyperparameters import scaling_text
from syncswitch.trainers.job.keras_parts import warn_once
from syncswitch.trainers.job.schedule import percent_to_worker_steps, round_worker_steps
from syncswitch.trainers.protocols import parse_pair
from syncswitch.trainers.run.guard import FailureDetector

_LOG = logging.getLogger(__name__)


class PolicyCallback(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Counts worker-steps, switches when the policy says so, and ends the training at W.

    It exchanges no gradients itself: that is up to your distribution strategy, which `at_switch`
    changes, or which is another one in a second `fit` with the same callback (`stop_at_switch`).
    The count goes on from one `fit` to the next. Give each `fit` enough epochs, also for those that
    an alarm makes necessary.

    The distribution decides how many worker-steps one batch of `fit` stands for:

    - One `fit` feeds all n workers: before the switch a batch is the global batch of n*B examples,
      a round of n worker-steps; after it a batch is the B examples of one worker, 1 worker-step.
      That is the default for `bsp,asp`: `(n, 1)`. A running `fit` does not change the size of its
      batches, so this needs data that do, or `stop_at_switch`.
    - Each of n processes has a `fit` and a callback of its own, with batches of B (Horovod): while
      one does a batch, so do the others, before and after the switch: give `(n, n)`.

    The learning rate follows the configuration policy (Sync-Switch paper, section IV-B): for
    `bsp,asp` n*eta before the switch and eta after it, where eta is the optimizer's rate when the
    first `fit` starts; set it back to eta if the optimizer comes from the middle of a `fit`.
    Changes that others make meanwhile, such as `ReduceLROnPlateau`, are kept; callbacks that set
    rates from a table, such as `LearningRateScheduler`, overwrite it. At the end of `fit` the
    scaling is taken back.

    With `steps_per_execution` the switch and the end come at the end of an execution.

    Without a policy it switches from BSP to ASP at 50 %, as it is unknown how early a training
    tolerates the second phase of your strategy. A warning says what is expected of that, and what
    is not known. Its guard has the training's own validations alone.

    The training is guarded: weights and optimizer are kept at the switch. If the loss is not a
    number after it, or validations (`monitor`) leave the policy's `band`, they are restored, and
    the first protocol does the rest: count and rate are those of the switch again,
    `is_after_switch` stays False, and `at_alarm` is called. With `stop_at_switch` the `fit` ends
    then.

    Example:
        ```
        from syncswitch import PolicyCallback

        switch = PolicyCallback("policy.json", stop_at_switch=True)
        while not switch.is_done:  # global batches before the switch, and after an alarm
            batch_size = 32 if switch.is_after_switch else 32 * switch.workers
            model.fit(x, y, batch_size=batch_size, epochs=1000, callbacks=[switch])
        ```

    Args:
        policy: The policy, or the path of a policy file; None to train without one.
        switch_at: Without a policy, switch after this percentage of W; 100 is BSP alone.
        total_worker_steps: W of a training without a policy; None for that of the policy.
        at_switch: Called with the model once, between the last batch of the first protocol and the
            first one of the second; before the first batch if the job starts after its switch.
            It may compile the model anew; a new optimizer keeps the rate that it comes with.
        workers: n; None for that of the policy. Without one it is needed.
        worker_steps_per_batch: Before and after the switch; None for the worker-steps of a round
            of the policy's protocols, 1 for those without rounds.
        scale_learning_rate: False to leave the learning rate alone.
        initial_worker_step: Worker-steps that an earlier training has done.
        stop_at_switch: End the `fit` at the switch, for changes that a running one does not allow.
        guarded: False to train on after the switch whatever happens. Needed where each of n
            processes has a callback, unless all see the same losses and validations: one alone
            would go back.
            A callback that begins after its switch has nothing to go back to, and no guard.
        monitor: Name of the metric of the policy's search in the logs of an epoch, measured on the
            data of the search; without it only the loss is watched. None for Keras' name of it,
            such as `val_accuracy`, `val_loss` or `val_mean_absolute_error`. Without a policy it
            may be any, by default `val_accuracy`.
        metric_goal: Without a policy, whether more of that metric is better, `max`, or less, `min`;
            None for an accuracy from 0 to 1. With a goal the switch is at 75 %, as it is unknown
            how much may be lost.
        at_alarm: Called with the model once, before its state at the switch is restored; undoes
            what `at_switch` did.

    Attributes:
        workers: n.
        total_worker_steps: W.
        switch_worker_step: Worker-step of the switch, in whole rounds as with `syncswitch-run`.
        worker_step: Worker-steps done. Batches are not cut, so it may end above W.
        alarm: The reason why the training went back to its switch; None if it did not.

    Raises:
        PolicyError: The policy file cannot be read, or was altered.
        UserError: A number is out of range; from `fit`: the optimizer has a learning-rate schedule,
            or nothing is left to train.
    """

    @renamed_parameter("guard", "guarded", since="0.2", removal="0.3")
    def __init__(
        self,
        policy: TimingPolicy | str | Path | None = None,
        *,
        switch_at: float | None = None,
        total_worker_steps: int | None = None,
        at_switch: Callable[[Any], None] | None = None,
        workers: int | None = None,
        worker_steps_per_batch: tuple[int, int] | None = None,
        scale_learning_rate: bool = True,
        initial_worker_step: int = 0,
        stop_at_switch: bool = False,
        guarded: bool = True,
        monitor: str | None = None,
        metric_goal: str | None = None,
        at_alarm: Callable[[Any], None] | None = None,
    ) -> None:
        super().__init__()
        check_one_says_when(policy, switch_at)
        if policy is None:
            metric = watched_metric((monitor or "").removeprefix("val_"), metric_goal)
            policy = _without_policy(switch_at, total_worker_steps, workers, metric)
            if guarded and switch_at is None:
                lost = "what was trained after it, and a copy of its state in memory"
                _LOG.warning("this run %s", unmeasured_text(policy, lost))
        elif total_worker_steps is not None:
            raise UserError(
                "policy and total_worker_steps both say how long: leave out one of them",
                code="parameters-conflict",
            )
        elif not isinstance(policy, TimingPolicy):
            policy = read_policy_file(policy).policy
        self.workers = policy.job.workers if workers is None else workers
        _check_whole("workers", self.workers, 1)
        rounds = (
            round_worker_steps(policy.protocols.first_protocol, self.workers),
            round_worker_steps(policy.protocols.second_protocol, self.workers),
        )
        self.total_worker_steps = policy.job.total_worker_steps
        self.switch_worker_step = percent_to_worker_steps(
            policy.switch_percent, policy.job.total_worker_steps, rounds[0]
        )
        _check_whole("initial_worker_step", initial_worker_step, 0)
        self.worker_step = initial_worker_step
        self._steps_per_batch = worker_steps_per_batch or rounds
        for steps in self._steps_per_batch:
            _check_whole("worker_steps_per_batch", steps, 1)
        self._protocols = (policy.protocols.first_protocol, policy.protocols.second_protocol)
        self._scales = rounds if scale_learning_rate else (1, 1)
        self._at_switch, self._at_alarm = at_switch, at_alarm
        self._stop_at_switch = stop_at_switch
        self._has_switched = self._is_scaling_said = False
        self._first_batch = 0
        self._first_update: int | None = None
        self._optimizer: Any = None
        self._scale = 1
        self.alarm: str | None = None
        band = policy.stated_band
        self._metric = policy.job.metric
        # Nobody knows what the program's learning rate does.
        watching = FailureDetector(band, self.total_worker_steps, self._metric, decays=None)
        self._guard = watching if guarded else None
        if initial_worker_step > self.switch_worker_step:
            self._guard = None
        elif not guarded and (warning := unguarded_warning(policy)) is not None:
            _LOG.warning(warning)
        self._monitor = monitor or _logged(self._metric.name)
        self._tests: list[Evaluation] = []
        self._kept: tuple[_Kept, int, int] | None = None

    @property
    def is_after_switch(self) -> bool:
        """True if the second protocol trains, or is to train next."""
        return self.worker_step >= self.switch_worker_step and self.alarm is None

    @property
    def is_done(self) -> bool:
        """True if all W worker-steps are done, so that nothing is left to `fit`."""
        return self.worker_step >= self.total_worker_steps

    def on_train_begin(self, logs: Any = None) -> None:
        """Scales the learning rate; switches if the first protocol has nothing left to do."""
        if self.is_done:
            # Keras would train one more batch before it looks at `stop_training`.
            raise UserError(
                f"all {self.total_worker_steps:,} worker-steps of the policy are done (at"
                f" {self.worker_step:,}), so there is nothing to fit; make a new PolicyCallback to"
                " train again"
            )
        if self.model.optimizer is not self._optimizer:
            self._optimizer, self._scale = self.model.optimizer, 1
        if self._scales != (1, 1) and not hasattr(self._optimizer.learning_rate, "assign"):
            raise UserError(
                f"the learning rate of {type(self._optimizer).__name__} is a schedule, which a"
                " policy cannot scale; give the optimizer a plain learning rate, or scale the"
                " schedule yourself and give scale_learning_rate=False"
            )
        self._say_scaling()
        self._scale_rate(self._scales[self.is_after_switch])
        if self.is_after_switch and not self._has_switched:
            self._switch()

    def _say_scaling(self) -> None:
        """Says once what becomes of the compiled rate, whose scaling may be there already."""
        if self._is_scaling_said or self._scales == (1, 1):
            return
        self._is_scaling_said = True
        rate = float(keras.ops.convert_to_numpy(self._optimizer.learning_rate)) / self._scale
        why = f"as {self.workers} workers share a batch"
        remedy = "give PolicyCallback scale_learning_rate=False"
        _LOG.warning("%s", scaling_text(rate, self._scales, why, remedy))

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._first_batch, self._first_update = batch, self._updates()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts; switches or ends the training when it is time."""
        last = min(batch, (self.params.get("steps") or math.inf) - 1)
        batches = int(last) - self._first_batch + 1
        if self._first_update is not None:
            # The last execution of an epoch may have more or fewer batches than Keras says.
            updates = (self._updates() or 0) - self._first_update
            batches = updates if 1 <= updates <= batch - self._first_batch + 1 else batches
        self.worker_step += batches * self._steps_per_batch[self._has_switched]
        if not math.isfinite((logs or {}).get("loss", 0.0)):
            self._note_alarm("the training loss is not a finite number")
        if self.is_done:
            self.model.stop_training = True
        elif self.is_after_switch and not self._has_switched:
            self._switch()
            self.model.stop_training = self.model.stop_training or self._stop_at_switch

    def _updates(self) -> int | None:
        """The optimizer's updates so far, to count the batches of an execution; None for one each.

        To read them takes a while. Between executions they are wrong where Keras looked for another
        batch in vain.
        """
        if getattr(self.model, "steps_per_execution", 1) == 1:
            return None
        return int(keras.ops.convert_to_numpy(self._optimizer._iterations))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Holds the validation, if there was one, against the band."""
        if self._guard is None:
            return
        value = self._value(logs or {})
        if value is None:
            return
        accuracy = self._metric.accuracy(float(value))
        loss = float(logs.get("loss", math.nan))
        self._tests.append(Evaluation(self.worker_step, 0.0, accuracy, loss))
        if self._kept is not None:
            self._note_alarm(self._guard.alarm(self._tests, self._kept[1]))

    def _value(self, logs: dict[str, Any]) -> float | None:
        measured = [name for name in logs if name.startswith("val_")]
        if self._monitor not in logs and measured:
            matching = [name for name in measured if self._monitor in _names(name)]
            if len(matching) != 1:
                raise UserError(
                    f"validations measure {', '.join(measured)}, and the guard looks for"
                    f" {self._monitor!r}; give PolicyCallback monitor=, the name of the policy's"
                    " metric among these, or guarded=False",
                    code="result-invalid",
                )
            self._monitor = matching[0]
        if not measured and self._has_switched and not self._tests:
            warn_once(
                "fit has no validation, so that only a training loss that is no number is noticed"
                " after the switch; give it validation_data"
            )
        return logs.get(self._monitor)

    def on_train_end(self, logs: Any = None) -> None:
        """Sets the optimizer's rate back to that of one worker."""
        self._scale_rate(1)
        if self.is_done:
            self._kept = None

    def _switch(self) -> None:
        if self._guard is not None:
            self._kept = _Kept(self.model), self.worker_step, self._scale
        self._has_switched = True
        self._scale_rate(self._scales[1])
        _LOG.info(
            "switched from %s to %s after %s of %s worker-steps",
            *self._protocols,
            f"{self.worker_step:,}",
            f"{self.total_worker_steps:,}",
        )
        if self._at_switch is not None:
            self._at_switch(self.model)
            # `compile` drops it, and `fit` makes it before its first batch only.
            self.model.make_train_function()

    def _note_alarm(self, alarm: str | None) -> None:
        if alarm is None or self._kept is None:
            return
        _LOG.warning(
            "back to the switch from %s worker-steps, and on with %s: %s",
            f"{self.worker_step:,}",
            self._protocols[0],
            alarm,
        )
        (state, self.worker_step, scale), self._kept, self.alarm = self._kept, None, alarm
        self._has_switched = False
        if self._at_alarm is not None:
            self._at_alarm(self.model)
            self.model.make_train_function()
        self._optimizer = self.model.optimizer
        self._scale = scale if state.restore(self.model) else 1
        self._scale_rate(self._scales[0])
        self.model.stop_training = self._stop_at_switch

    def _scale_rate(self, scale: int) -> None:
        if scale != self._scale:
            rate = self._optimizer.learning_rate
            # `float` cannot read a mirrored variable.
            rate.assign(float(keras.ops.convert_to_numpy(rate)) * scale / self._scale)
            self._scale = scale


def _without_policy(
    switch_at: float | None, total_worker_steps: int | None, workers: int | None, metric: Metric
) -> TimingPolicy:
    if total_worker_steps is None or workers is None:
        raise UserError(
            "there is neither a policy nor total_worker_steps and workers: give both, or a policy",
            code="parameter-missing",
        )
    _check_whole("total_worker_steps", total_worker_steps, 2)
    _check_whole("workers", workers, 1)
    pair = parse_pair(USUAL_PROTOCOLS)
    job = ScheduledJob.undescribed("fit", total_worker_steps, workers, pair, metric)
    return unmeasured_policy(job, switch_at)


class _Kept:
    """Copies of a compiled model's weights and of its optimizer's variables, in memory.

    The learning rate is one of these unless it is a schedule, and the place in a schedule always.
    """

    def __init__(self, model: Any) -> None:
        self._weights = model.get_weights()
        variables = _optimizer_variables(model)
        self._optimizer = [keras.ops.convert_to_numpy(one).copy() for one in variables]

    def restore(self, model: Any) -> bool:
        """Returns False if the model has another kind of optimizer now."""
        model.set_weights(self._weights)
        variables = _optimizer_variables(model)
        if [tuple(one.shape) for one in variables] != [value.shape for value in self._optimizer]:
            return False
        for variable, value in zip(variables, self._optimizer, strict=True):
            variable.assign(value)
        return True


def _optimizer_variables(model: Any) -> list[Any]:
    # `fit` builds them before the first update only.
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    return list(model.optimizer.variables)


def _logged(name: str) -> str:
    """Returns Keras' name of the validations of a metric, such as `val_mean_squared_error`."""
    return f"val_{re.sub('(?<=[a-z0-9])(?=[A-Z])', '_', name).lower()}"


_ACCURACIES = ("acc", "binary_accuracy", "categorical_accuracy", "sparse_categorical_accuracy")


def _names(logged: str) -> tuple[str, ...]:
    """Returns further names of what Keras logs as this: `val_acc`, `val_mse`."""
    name = logged.removeprefix("val_")
    if name in _ACCURACIES:
        return ("val_accuracy",)
    try:
        metric = keras.metrics.get(name)
    except (TypeError, ValueError):
        return ()
    return (_logged(getattr(metric, "__name__", type(metric).__name__)),)


def _check_whole(name: str, value: int, least: int) -> None:
    if not isinstance(value, int) or value < least:
        raise UserError(
            f"{name} is {value!r}: give a whole number of {least} or more", code="parameter-invalid"
        )
