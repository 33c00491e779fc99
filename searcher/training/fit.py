"""`fit`: training a compiled Keras model on workers of this process, and learning from it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, SkipValidation
from typing_extensions import override

from syncswitch.searcher.backends.base import USUAL_EXPECTED_RUNS, ClusterChoice
from syncswitch.searcher.learning.next_run import NextRun
from syncswitch.searcher.python_calls import checked
from syncswitch.searcher.selection import filed_policy, is_policy_file
from syncswitch.searcher.strategies.baseline import allowed_loss
from syncswitch.searcher.training.policy import ChosenRun, RunRequest, SwitchChoice, choose
from syncswitch.searcher.training.train import record_and_learn, trial_of
from syncswitch.searcher.training.uses import RunRecorder
from syncswitch.storage.database.defaults import database_url
from syncswitch.storage.errors import Said, UserError
from syncswitch.storage.marks import renamed_parameter
from syncswitch.storage.policies.unguarded import unguarded_warning
from syncswitch.storage.policies.unmeasured import check_one_says_when, unmeasured_policy
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.job import LARGEST_SEED, USUAL_WORKERS, ScheduledJob, protocol_text
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.hyperparameters import rates_text
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.keras_api.in_memory import FitRecord, ModelInMemory
from syncswitch.trainers.protocols import check_protocols, parse_pair
from syncswitch.trainers.run.end_text import end_text
from syncswitch.trainers.trainer import Observer, Trainer

_LOG = logging.getLogger(__name__)


@renamed_parameter("guard", "guarded", since="0.2", removal="0.3")
@checked
def fit(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    policy: SkipValidation[TimingPolicy | str | Path | None] = None,
    switch_at: Annotated[float, Field(ge=0, le=100)] | None = None,
    epochs: Annotated[int, Field(ge=1)] | None = None,
    workers: Annotated[int, Field(ge=1, le=100_000)] | None = None,
    protocols: str | None = None,
    storage: str | None = None,
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] | None = None,
    observer: Observer | None = None,
    guarded: bool = True,
    learn: bool | None = None,
    expected_runs: Annotated[int, Field(ge=1, le=1_000_000)] = USUAL_EXPECTED_RUNS,
    threshold: float | None = None,
    threshold_runs: int | None = None,
    callbacks: SkipValidation[Sequence[Any]] = (),
    **job: Any,
) -> FitRecord:
    """Trains a compiled Keras model as `syncswitch-run` trains a workload, and learns as it does.

    The n workers are threads of this process. The first training of a job switches where jobs like
    it should, and says what to expect; each later one switches by what the earlier ones have shown.
    A training that fails after its switch goes back there, and on with the first protocol to a
    later switch.

    The training starts from the model's present values, and leaves the trained ones in it. One that
    diverges, or that the observer stops, leaves the model as it was. Loss, optimizer and metric are
    those of `compile`; the optimizer object itself is not touched. The model may be of any class:
    it is not copied. The training of a model that has been trained before is not recorded, as each
    starts from somewhere else.

    Example:
        ```
        record = fit(model, x, y, validation_data=(x_test, y_test), epochs=20)
        ```

    Args:
        model: A compiled model, or a function that builds and compiles one, which is then the
            `model` of what is returned.
        x: Training inputs, or a Dataset, `Data` or `StreamedData`.
        y: Training labels; None if x has them.
        policy: A policy, the path of a policy file, or a version or alias in the database; None
            for the current policy of the job, if any. A policy of another job, which is the job
            of its file, only says where to switch.
        switch_at: Switch after this percentage of the worker-steps, whatever the policy says; 100
            is the first protocol alone.
        epochs: Length of the training, of which the policy's percent is taken; None for the W of
            a policy or policy file.
        workers: n; None for that of the policy, and without one 4.
        protocols: The protocols before and after the switch, such as `bsp,ssp:3`; None for the
            policy's, and without one BSP and ASP.
        storage: The URL of the database; None for the one in SYNCSWITCH_STORAGE, or syncswitch.db
            in the current folder. It need not exist.
        seed: Seed of the order of the data and of random layers; None for one that no other run of
            the job has, or 0 with a policy of another job or with `switch_at`.
        observer: Watches the training.
        guarded: False to train on after the switch whatever happens. There is no guard either with
            `switch_at`, or with a policy of a job with another length, size, model, batch size or
            metric, whose results say nothing about this one.
        learn: Whether the run may try another switch than its policy's; None to decide as
            `syncswitch-run` does.
        expected_runs: How often the job is trained in total, by runs that learn.
        threshold: How much accuracy may be lost, in the unit of the metric, by runs that learn;
            None for that of the policy, or as for a search.
        threshold_runs: Measure that in the first so many runs with the first protocol alone, 3 to
            100, instead of `threshold`.
        callbacks: Callbacks of Keras' `fit` that work at the end of epochs, which last from one
            evaluation to the next. They see in the model what was evaluated, so that
            `ModelCheckpoint` saves it, and `EarlyStopping` ends the training.
        job: The other arguments of Keras' `fit` and of `from_compiled`, such as `validation_data`,
            `batch_size`, `metric`, `name` and `evaluation_interval_worker_steps`, and other fields
            of `Workload`, such as `learning_rate`.

    Returns:
        The measured run, with `model`, and `history` as that of Keras' `fit`.

    Raises:
        UserError: The model is not compiled, the policy cannot be read, the arguments do not fit
            together, or TensorFlow is in use with too few devices.
    """
    check_one_says_when(policy, switch_at)
    if isinstance(policy, Path):
        policy = str(policy)
    choice = policy if isinstance(policy, str) else None
    when = SwitchChoice(
        choice,
        switch_at,
        guarded=guarded,
        learn=learn,
        expected_runs=expected_runs,
        allowed=allowed_loss(threshold, threshold_runs),
    )
    followed: TimingPolicy | None = policy if isinstance(policy, TimingPolicy) else None
    found_for: ScheduledJob | None = None
    if choice is not None and is_policy_file(choice):
        entry = filed_policy(choice)
        followed, found_for = entry.policy, entry.identity
    if epochs is None and followed is not None:
        job["total_worker_steps"] = followed.job.total_worker_steps
    elif epochs is None and "total_worker_steps" not in job:
        raise UserError(
            "nothing says how long to train: give epochs, or a policy", code="parameter-missing"
        )
    given = ModelInMemory.of(model, x, y, epochs, callbacks, job)
    workload = given.workload
    request = RunRequest(
        _Threads(given),
        workload.name,
        workers,
        None if protocols is None else parse_pair(protocols),
        seed,
        RunRecorder(database_url(storage), _tell),
        when,
    )
    is_recorded = not given.is_trained
    may_learn = guarded or policy is not None or switch_at is not None
    if followed is None and is_recorded and may_learn:
        chosen = choose(request)
    else:
        chosen = _chosen(request, workload, followed, found_for, is_recorded=is_recorded)
    if (rates := rates_text(workload, chosen.identity)) is not None:
        _tell(rates)
    record, lost = given.train(trial_of(chosen, _tell), observer)
    _tell(_outcome(record))
    if is_recorded:
        record_and_learn(
            request, chosen, record, uuid.uuid4().hex, Path(f"{workload.name}.keras"), ()
        )
    if lost is not None:
        raise lost
    return record


def _tell(said: Said) -> None:
    _LOG.warning("%s", said)


@dataclass(frozen=True)
class _Threads(ClusterChoice):
    """Workers that are threads of this process, for a model that has no name elsewhere."""

    name = "local"

    given: ModelInMemory

    @override
    def find(self, reference: str) -> None:
        pass

    @override
    def load(self, reference: str, workers: int) -> Workload:
        return self.given.workload

    @override
    def open(self, workload: Workload, reference: str, workers: int) -> Trainer:
        return self.given.open(workers)


def _chosen(
    request: RunRequest,
    workload: Workload,
    followed: TimingPolicy | None,
    found_for: ScheduledJob | None,
    *,
    is_recorded: bool,
) -> ChosenRun:
    """A run by a given policy; or one that does not learn, by the policy of its job, if any.

    `found_for` is the job of the policy's file. A policy of another job only says where to switch.
    """
    when, recorder, usual = request.when, request.recorder, request.trainer.pair(None)
    pair, workers = usual, USUAL_WORKERS
    if followed is not None:
        pair = followed.protocols.first_protocol, followed.protocols.second_protocol
        workers = followed.job.workers
    pair, workers = request.pair or pair, request.workers or workers
    check_protocols(pair, workers)
    identity = workload_identity(workload, workers, *pair)
    known = recorder.policy_of(identity) if is_recorded else None
    own = followed or known
    if own is not None and is_recorded and own.is_of(identity):
        seed = recorder.own_seed(identity) if request.seed is None else request.seed
        band = recorder.band(own) if when.guarded else None
        return ChosenRun(workload, identity, seed, NextRun(own, own.switch_percent, band))
    if followed is None:
        followed = unmeasured_policy(identity, when.switch_at)
    if not is_recorded:
        _tell(
            "the model has been trained before, so this run is not recorded, and learns nothing"
            f" from others: it switches to {protocol_text(identity.second_protocol)} at"
            f" {followed.switch_percent:g} %"
        )
    is_guarded = when.guarded and when.switch_at is None
    band = band_for(followed, found_for or identity, identity) if is_guarded else None
    if band is None and (warning := unguarded_warning(followed)) is not None:
        _tell(warning)
    planned = NextRun(None, followed.switch_percent, band)
    return ChosenRun(workload, identity, request.seed or 0, planned, known)


def _outcome(record: FitRecord) -> str:
    if record.diverged:
        return "the training diverged, and the model has the values that it had before"
    guard = record.guard
    was_ended = guard is not None and guard.failed and guard.held_percent is None
    text = end_text(
        record.spec.identity,
        record.failed,
        BASELINE_PERCENT if was_ended else record.held_percent,
        record.phases,
        0.0 if guard is None else guard.lost_seconds,
        is_watched=record.spec.band is not None,
    )
    return f"{text}; {record.logged} {record.value_text}"


def band_for(policy: TimingPolicy, measured: ScheduledJob, mine: ScheduledJob) -> Band | None:
    """Returns the policy's band, if any, if the job it was found for is mine, as far as known."""
    sizes = (policy.job.total_worker_steps, policy.job.workers)
    is_same = (
        sizes == (mine.total_worker_steps, mine.workers)
        and measured.recipe.model == mine.recipe.model
        and measured.recipe.batch_size == mine.recipe.batch_size
        and measured.described_metric.description == mine.described_metric.description
    )
    return policy.band if is_same else None
