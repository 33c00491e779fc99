"""Training a compiled Keras model with a timing policy on workers of this process."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from syncswitch.storage.errors import FatalError, UserError
from syncswitch.storage.files import OwnedFolder
from syncswitch.storage.policies.file import read_policy_file
from syncswitch.storage.records.guard import Band, later_switch_points
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.job.data import AnyData, Data, StreamedData
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.workload import Goal, Workload
from syncswitch.trainers.keras_api.compiled import compiled_fields, copies
from syncswitch.trainers.model.export import load_model
from syncswitch.trainers.trainer import Observer

_LOG = logging.getLogger(__name__)


def fit(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    policy: TimingPolicy | str | Path,
    validation_data: tuple[Any, Any] | None = None,
    batch_size: int = 32,
    epochs: int | None = None,
    learning_rate: float | None = None,
    learning_rate_boundaries: tuple[tuple[int, float], ...] = (),
    metric: str | Callable[[], Any] | None = None,
    metric_output: str | None = None,
    metric_goal: Goal | None = None,
    further_metrics: tuple[str | Callable[[], Any], ...] = (),
    evaluation_interval_worker_steps: int | None = None,
    workers: int | None = None,
    seed: int = 0,
    observer: Observer | None = None,
    guard: bool = True,
) -> TrialRecord:
    """Trains a compiled Keras model with a timing policy, as `syncswitch-run` trains a workload.

    The n workers are threads of this process. Where the training fails after its switch by the
    policy's `band`, it goes back there, and on with the first protocol to a later switch; the
    record says so.

    The training starts from the model's present values, and the trained ones are put into it. A
    diverged training, or one that the observer stops, leaves it as it was. Loss and optimizer are
    those that it was compiled with; the optimizer itself is not touched.

    Args:
        model: A Sequential or functional model, or another one that `keras.models.clone_model`
            can copy.
        x: Training inputs, as Keras' `fit` takes arrays; or a `Data`, or data in files, with all
            labels, weights and tests.
        y: Training labels.
        policy: The policy, or the path of a policy file. It is not checked to be of this very job.
        validation_data: Inputs and labels that the model is tested with.
        batch_size: B, examples of a worker-step.
        epochs: Length of the training; the policy's percent is of that. None for the policy's W.
        learning_rate: eta, of one worker; None for the optimizer's, whose schedule, if it has one,
            goes by worker-steps.
        learning_rate_boundaries: `(worker_step, factor)`: from there on the rate is eta * factor.
        metric: Name of a Keras metric, or a function that builds one; None for accuracy as it
            fits the labels. What the model was compiled with need not be one of this kind.
        metric_output: Name of the output whose metric it is, where there are several.
        metric_goal: `max` where more of it is better, or `min`; None for what Keras says of it.
        further_metrics: Metrics that each test records beside it, in the same words.
        evaluation_interval_worker_steps: Worker-steps from test to test; None for an epoch.
        workers: n; None for that of the policy.
        seed: Seed of the order of the data and of random layers.
        observer: Watches the training.
        guard: False to train on after the switch whatever happens. There is no guard either where W
            or n are not the policy's, or the policy file is of a job with another model, batch size
            or metric: what is known of that says nothing of this one.

    Returns:
        What was measured.

    Raises:
        UserError: The model is not compiled, the policy cannot be read, something does not fit, or
            TensorFlow is in use with too few devices.
    """
    policy, known = _policy_and_job(policy)
    workers = policy.workers if workers is None else workers
    if workers < 1:
        raise UserError(f"workers is {workers}: give a whole number of 1 or more")
    data = _data(x, y, validation_data)
    epoch = max(1, math.ceil(data.train.examples / max(1, batch_size)))
    total = policy.total_worker_steps if epochs is None else epochs * epoch
    compiled = compiled_fields(model, "fit")
    if learning_rate is not None:
        compiled["learning_rate"] = learning_rate
    workload = Workload(
        name=model.name,
        model=copies(model, "fit", is_fresh=False),
        data=lambda: data,
        data_set="given to fit",
        total_worker_steps=total,
        batch_size=batch_size,
        learning_rate_boundaries=learning_rate_boundaries,
        evaluation_interval_worker_steps=evaluation_interval_worker_steps or min(epoch, total),
        metric=metric,
        metric_output=metric_output,
        metric_goal=metric_goal,
        further_metrics=further_metrics,
        # The model is in memory anyway.
        least_embedding_values=None,
        **compiled,
    )
    identity = workload_identity(workload, workers, policy.first_protocol, policy.second_protocol)
    band = band_for(policy, known or identity, identity) if guard else None
    if band is None and policy.bare_warning is not None:
        _LOG.warning(policy.bare_warning)
    retries = later_switch_points(policy.switch_percent) if band else ()
    spec = TrialSpec(identity, policy.switch_percent, seed, band=band, retry_percents=retries)
    with OwnedFolder("syncswitch-fit-") as folder:
        own = replace(
            spec,
            checkpoint_percents=(100.0,),
            checkpoint_directory=folder,
            spare_directories=(Path.cwd(),),
        )
        with ClusterTrainer(workload, workers) as trainer:
            record = trainer.train(own, observer)
        if not (record.diverged or record.stopped_early):
            if 100.0 not in record.checkpoints:
                raise FatalError(f"the trained values are lost: {record.events[-1].reason}")
            model.set_weights(load_model(workload, record.checkpoints[100.0]).get_weights())
            record.checkpoints[100.0].unlink()
    return replace(record, spec=spec, checkpoints={})


def _data(x: Any, y: Any, validation_data: tuple[Any, Any] | None) -> AnyData:
    if isinstance(x, Data | StreamedData):
        if y is not None or validation_data is not None:
            raise UserError(
                f"fit: x is a {type(x).__name__}, which holds labels and tests as well; leave out"
                " y and validation_data"
            )
        return x
    if y is None or validation_data is None:
        raise UserError("fit: give y and validation_data besides x, or a Data or StreamedData as x")
    return Data(x, y, *validation_data)


def _policy_and_job(
    policy: TimingPolicy | str | Path,
) -> tuple[TimingPolicy, WorkloadIdentity | None]:
    """The policy, and the job that it was found for, which only its file says."""
    if isinstance(policy, TimingPolicy):
        return policy, None
    content = read_policy_file(policy)
    return content.policy, content.workload.identity


def band_for(policy: TimingPolicy, known: WorkloadIdentity, mine: WorkloadIdentity) -> Band | None:
    """The policy's band, where its search was of this job as far as that is known.

    Args:
        policy: Perhaps with a band.
        known: The job that it was found for, as far as it is known.
        mine: The job that is trained.
    """
    of_policy = (policy.total_worker_steps, policy.workers)
    is_same = of_policy == (mine.total_worker_steps, mine.workers) and all(
        getattr(known, name) == getattr(mine, name) for name in ("model", "batch_size", "metric")
    )
    return policy.band if is_same else None
