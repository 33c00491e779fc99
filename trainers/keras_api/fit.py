"""Training a compiled Keras model with a timing policy on workers of this process."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np

from syncswitch.storage.errors import FatalError, UserError
from syncswitch.storage.files import OwnedFolder
from syncswitch.storage.policies.file import read_policy_file
from syncswitch.storage.policies.unguarded import unguarded_warning
from syncswitch.storage.policies.unmeasured import (
    check_one_says_when,
    recorded_jobs_text,
    unmeasured_policy,
    unmeasured_text,
)
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.job import USUAL_PROTOCOLS, USUAL_WORKERS, ScheduledJob
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT, TrialRecord, TrialSpec
from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.hyperparameters import rates_text
from syncswitch.trainers.job.workload import LOSS_METRIC, Workload
from syncswitch.trainers.keras_api.arguments import check_fields, watched_metrics
from syncswitch.trainers.keras_api.from_compiled import compiled_metrics, from_compiled, metric_name
from syncswitch.trainers.model.optimizer import assign
from syncswitch.trainers.model.state import read_checkpoint, restored_model
from syncswitch.trainers.protocols import parse_pair
from syncswitch.trainers.run.callbacks import logged_name, usable_callbacks
from syncswitch.trainers.run.end_text import end_text
from syncswitch.trainers.trainer import Observer

_LOG = logging.getLogger(__name__)


def fit(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    policy: TimingPolicy | str | Path | None = None,
    switch_at: float | None = None,
    epochs: int | None = None,
    workers: int | None = None,
    seed: int = 0,
    observer: Observer | None = None,
    guard: bool = True,
    callbacks: Sequence[Any] = (),
    **job: Any,
) -> FitRecord:
    """Trains a compiled Keras model with a timing policy, as `syncswitch-run` trains a workload.

    The n workers are threads of this process. If the training fails after its switch by the
    policy's `band`, it goes back there, and on with the first protocol to a later switch; the
    record says so.

    Without a policy it switches from BSP to ASP where the first training of a workload does, at
    25 % with Adam and its like, and at 6.25 % with SGD where the metric is an accuracy. It is
    compared with its own evaluations, and a warning says what to expect, and what is not known.

    The training starts from the model's present values, and leaves the trained ones in it. One that
    diverges, or that the observer stops, leaves the model as it was. Loss, optimizer and metric are
    those of `compile`; the optimizer object itself is not touched. The model may be of any class:
    it is not copied.

    Example:
        ```
        record = fit(
            model, x, y, policy="policy.json", validation_data=(x_test, y_test), epochs=20
        )
        ```

    Args:
        model: A compiled model, or a function that builds and compiles one, which is then the
            `model` of what is returned.
        x: Training inputs, or a Dataset, `Data` or `StreamedData`.
        y: Training labels; None if x has them.
        policy: The policy, or the path of a policy file. Whether it is of this very job is not
            checked. None to train without one.
        switch_at: Without a policy, switch after this percentage of the worker-steps; 100 is BSP
            alone.
        epochs: Length of the training, of which the policy's percent is taken; None for the
            policy's W. Needed without a policy.
        workers: n; None for that of the policy, and without one 4.
        seed: Seed of the order of the data and of random layers.
        observer: Watches the training.
        guard: False to train on after the switch whatever happens. There is no guard either if W or
            n are not the policy's, or if the policy file is of a job with another model, batch size
            or metric, whose results say nothing about this one.
        callbacks: Callbacks of Keras' `fit` that work at the end of epochs, which last from one
            evaluation to the next. They see in the model what was evaluated, so that
            `ModelCheckpoint` saves it, and `EarlyStopping` ends the training.
        job: The other arguments of Keras' `fit` and of `from_compiled`, such as `validation_data`,
            `batch_size`, `metric` and `evaluation_interval_worker_steps`, and other fields of
            `Workload`, such as `learning_rate`.

    Returns:
        The measured run, with `model`, and `history` as that of Keras' `fit`.

    Raises:
        UserError: The model is not compiled, the policy cannot be read, the arguments do not fit
            together, or TensorFlow is in use with too few devices.
    """
    check_one_says_when(policy, switch_at)
    measured = None
    if policy is not None and not isinstance(policy, TimingPolicy):
        content = read_policy_file(policy)
        policy, measured = content.policy, content.identity
    if workers is None:
        workers = USUAL_WORKERS if policy is None else policy.job.workers
    if workers < 1:
        raise UserError(f"workers is {workers}: give a whole number of 1 or more")
    if epochs is None and policy is not None:
        job["total_worker_steps"] = policy.job.total_worker_steps
    elif epochs is None and "total_worker_steps" not in job:
        raise UserError("nothing says how long to train: give epochs, or a policy")
    check_fields(job, inspect.signature(from_compiled).parameters)
    rate_setting = keras.callbacks.LearningRateScheduler
    told = usable_callbacks(
        [one for one in callbacks if not isinstance(one, rate_setting)], "fit", has_model=True
    )
    is_function = not isinstance(model, keras.Model) and callable(model)
    # Built once, after the arguments are looked at.
    built = cache(model if is_function else lambda: model)
    workload = from_compiled(
        built,
        x,
        y,
        **{
            "epochs": 1 if epochs is None else epochs,
            "callbacks": [one for one in callbacks if isinstance(one, rate_setting)],
            "data_set": "given to fit",
            # The model is in memory anyway.
            "least_embedding_values": None,
            **job,
        },
    )
    # Nobody else needs its values meanwhile: a run computes with values of its own.
    model, workload = built(), replace(workload, model=built)
    if told:
        workload = _told(workload, told, model)
    pair = parse_pair(USUAL_PROTOCOLS)
    if policy is not None:
        pair = policy.protocols.first_protocol, policy.protocols.second_protocol
    identity = workload_identity(workload, workers, *pair)
    if (rates := rates_text(workload, identity)) is not None:
        _LOG.warning("%s", rates)
    if policy is None:
        policy = unmeasured_policy(identity, switch_at)
        if guard and switch_at is None:
            lost = "what was trained after it, and its state is kept in a file until then"
            jobs = recorded_jobs_text(identity.momentum_after_switch)
            _LOG.warning("this run %s", unmeasured_text(policy, lost, jobs=jobs))
    band = band_for(policy, measured or identity, identity) if guard else None
    if band is None and (warning := unguarded_warning(policy)) is not None:
        _LOG.warning(warning)
    spec = TrialSpec.of_policy(identity, policy.switch_percent, seed, band)
    with OwnedFolder("syncswitch-fit-") as folder:
        own = replace(
            spec,
            checkpoint_percents=(100.0,),
            checkpoint_directory=folder,
            spare_directories=(Path.cwd(),),
        )
        steps = math.ceil(workload.total_worker_steps / (epochs or 1))
        shown = (model, steps) if told else None
        before = [np.asarray(one) for one in model.weights] if told else []
        with ClusterTrainer(workload, workers, shown=shown) as trainer:
            record = trainer.train(own, observer)
        has_stopped = bool(told) and model.stop_training
        if record.diverged or (record.stopped_early and not has_stopped):
            if told:
                assign(model.weights, before)
        elif not told:
            path = record.checkpoints.get(100.0)
            if path is None:
                raise FatalError(f"the trained values are lost: {record.events[-1].reason}")
            restored_model(workload, read_checkpoint(path))
    done = FitRecord.of(replace(record, spec=spec, checkpoints={}), model, logged_name(workload))
    _LOG.warning("%s", _outcome(done, is_watched=band is not None))
    return done


def _told(workload: Workload, callbacks: list[Any], model: Any) -> Workload:
    """Returns the workload with these callbacks, and the metrics that they watch."""
    metric = logged_name(workload)
    own = [(one, metric_name(one)) for one in workload.further_metrics]
    measured = {**compiled_metrics(model), LOSS_METRIC: LOSS_METRIC}
    measured.update({name: one for one, name in own})
    wanted = watched_metrics(callbacks, measured, metric)
    further = (*workload.further_metrics, *(one for one in wanted if one not in dict(own)))
    return replace(workload, callbacks=lambda: callbacks, further_metrics=further)


def _outcome(record: FitRecord, *, is_watched: bool) -> str:
    if record.diverged:
        return "the training diverged, and the model has the values that it had before"
    guard, percent = record.guard, record.spec.switch_percent
    failed = () if guard is None else guard.failed
    held = percent if guard is None or guard.held_percent is None else guard.held_percent
    if guard is not None and failed and guard.held_percent is None:
        held = BASELINE_PERCENT
    lost = 0.0 if guard is None else guard.lost_seconds
    text = end_text(record.spec.identity, failed, held, record.phases, lost, is_watched=is_watched)
    return f"{text}; {record.logged} {record.value_text}"


@dataclass(frozen=True, slots=True)
class FitRecord(TrialRecord):
    """What `fit` returns.

    Attributes:
        model: The trained model.
        logged: Name of the metric in the logs, without `val_`.
    """

    model: Any = field(default=None, repr=False, compare=False)
    logged: str = "accuracy"

    @classmethod
    def of(cls, record: TrialRecord, model: Any, logged: str) -> FitRecord:
        """Makes it of a run."""
        measured = {one.name: getattr(record, one.name) for one in fields(record)}
        return cls(**measured, model=model, logged=logged)

    @property
    def history(self) -> dict[str, list[float]]:
        """The evaluations, as the `history` of what Keras' `fit` returns."""
        metric = self.spec.identity.decided_by
        found: dict[str, list[float]] = {"loss": [], f"val_{self.logged}": []}
        for one in self.evaluations:
            found["loss"].append(one.training_loss)
            found[f"val_{self.logged}"].append(metric.value(one.accuracy))
            for name, value in one.further:
                found.setdefault(f"val_{name}", []).append(value)
        return found

    @property
    def value_text(self) -> str:
        """The metric at the end, with its unit."""
        return self.spec.identity.decided_by.text(self.final_accuracy)


def band_for(policy: TimingPolicy, measured: ScheduledJob, mine: ScheduledJob) -> Band | None:
    """Returns the policy's band, if any, if the job it was found for is mine, as far as known."""
    sizes = (policy.job.total_worker_steps, policy.job.workers)
    is_same = (
        sizes == (mine.total_worker_steps, mine.workers)
        and measured.recipe.model == mine.recipe.model
        and measured.recipe.batch_size == mine.recipe.batch_size
        and measured.metric.description == mine.metric.description
    )
    return policy.band if is_same else None
