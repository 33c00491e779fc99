"""Training a compiled Keras model with a timing policy on workers of this process."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from syncswitch.storage.errors import FatalError, UserError, WorkloadError
from syncswitch.storage.files import OwnedFolder
from syncswitch.storage.policies.file import read_policy_file
from syncswitch.storage.policies.unguarded import unguarded_warning
from syncswitch.storage.policies.unmeasured import (
    check_one_says_when,
    unmeasured_policy,
    unmeasured_text,
)
from syncswitch.storage.records.guard import Band, later_switch_points
from syncswitch.storage.records.job import USUAL_PROTOCOLS, USUAL_WORKERS, WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.keras_api.from_compiled import from_compiled
from syncswitch.trainers.model.state import read_checkpoint, restored_model
from syncswitch.trainers.protocols import parse_pair
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
    **job: Any,
) -> TrialRecord:
    """Trains a compiled Keras model with a timing policy, as `syncswitch-run` trains a workload.

    The n workers are threads of this process. If the training fails after its switch by the
    policy's `band`, it goes back there, and on with the first protocol to a later switch; the
    record says so.

    Without a policy it switches from BSP to ASP where the first training of a workload does, at
    6.25 % where each worker keeps its own momentum and the metric is an accuracy. It is
    compared with its own evaluations, and a warning says what to expect, and what is not known.

    The training starts from the model's present values, and leaves the trained ones in it. One that
    diverges, or that the observer stops, leaves the model as it was. Loss, optimizer and metric are
    those of `compile`; the optimizer object itself is not touched.

    Example:
        ```
        record = fit(
            model, x, y, policy="policy.json", validation_data=(x_test, y_test), epochs=20
        )
        ```

    Args:
        model: A compiled model, as `from_compiled` takes it.
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
        job: The other arguments of `from_compiled`, such as `validation_data`, `batch_size`,
            `metric` and `evaluation_interval_worker_steps`, and other fields of `Workload`, such as
            `learning_rate`.

    Returns:
        The measured run.

    Raises:
        UserError: The model is not compiled, the policy cannot be read, the arguments do not fit
            together, or TensorFlow is in use with too few devices.
    """
    check_one_says_when(policy, switch_at)
    measured = None
    if policy is not None and not isinstance(policy, TimingPolicy):
        content = read_policy_file(policy)
        policy, measured = content.policy, content.workload.identity
    if workers is None:
        workers = USUAL_WORKERS if policy is None else policy.job.workers
    if workers < 1:
        raise UserError(f"workers is {workers}: give a whole number of 1 or more")
    if not hasattr(model, "set_weights"):
        raise WorkloadError("the model is not compiled; call its compile() before")
    if epochs is None and policy is not None:
        job["total_worker_steps"] = policy.job.total_worker_steps
    elif epochs is None and "total_worker_steps" not in job:
        raise UserError("nothing says how long to train: give epochs, or a policy")
    workload = from_compiled(
        model,
        x,
        y,
        **{
            "epochs": 1 if epochs is None else epochs,
            "data_set": "given to fit",
            "is_pretrained": True,
            # The model is in memory anyway.
            "least_embedding_values": None,
            **job,
        },
    )
    pair = parse_pair(USUAL_PROTOCOLS)
    if policy is not None:
        pair = policy.job.first_protocol, policy.job.second_protocol
    identity = workload_identity(workload, workers, *pair)
    if policy is None:
        policy = unmeasured_policy(identity, switch_at)
        if guard and switch_at is None:
            lost = "what was trained after it, and its state is kept in a file until then"
            _LOG.warning("this run %s", unmeasured_text(policy, lost))
    band = band_for(policy, measured or identity, identity) if guard else None
    if band is None and (warning := unguarded_warning(policy)) is not None:
        _LOG.warning(warning)
    percent = policy.switch_percent
    retries = later_switch_points(percent, identity.momentum_after_switch) if band else ()
    spec = TrialSpec(identity, percent, seed, band=band, retry_percents=retries)
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
            path = record.checkpoints.get(100.0)
            if path is None:
                raise FatalError(f"the trained values are lost: {record.events[-1].reason}")
            model.set_weights(restored_model(workload, read_checkpoint(path)).get_weights())
            path.unlink()
    return replace(record, spec=spec, checkpoints={})


def band_for(
    policy: TimingPolicy, measured: WorkloadIdentity, mine: WorkloadIdentity
) -> Band | None:
    """Returns the policy's band, if any, if the job it was found for is mine, as far as known."""
    sizes = (policy.job.total_worker_steps, policy.job.workers)
    is_same = (
        sizes == (mine.total_worker_steps, mine.workers)
        and measured.recipe.model == mine.recipe.model
        and measured.recipe.batch_size == mine.recipe.batch_size
        and measured.metric.description == mine.metric.description
    )
    return policy.band if is_same else None
