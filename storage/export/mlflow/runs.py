"""What MLflow is told of searches, their trials and later runs; pure.

Each has a key, by which its run on MLflow is found again: what is copied twice is there once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.records.metric import ACCURACY_NAME, Metric
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import Evaluation, TrialRecord, TrialState
from syncswitch.storage.trials.values import SearchInfo, StoredTrial

_RESULTS = (
    "converged_accuracy",
    "final_accuracy",
    "diverged",
    "stopped_early",
    "training_seconds",
    "inherited_seconds",
    "switch_overhead_seconds",
)


@dataclass(frozen=True, slots=True)
class Point:
    """One value of a metric.

    Attributes:
        elapsed_seconds: Since the run began.
    """

    name: str
    value: float
    worker_step: int
    elapsed_seconds: float


def metric_tags(metric: Metric) -> dict[str, str]:
    """Its name, direction and unit."""
    return {f"syncswitch.{name}": text for name, text in metric.naming.items() if text is not None}


def with_own(values: Mapping[str, float | None], metric: Metric) -> dict[str, float | None]:
    """Adds the metric's own value, under its name, beside each accuracy."""
    own = {}
    if metric.name != ACCURACY_NAME:
        for name, accuracy in values.items():
            start = name.removesuffix(ACCURACY_NAME)
            if name != start and accuracy is not None:
                own[f"{start}{metric.name}"] = metric.value(accuracy)
    return {**values, **own}


def curve(evaluations: Iterable[Evaluation], metric: Metric) -> list[Point]:
    """Its tests, each under the name of the metric too, where that is another one."""
    return [
        Point(name, value, one.worker_step, one.elapsed_seconds)
        for one in evaluations
        for name, value in {
            **with_own({"accuracy": one.accuracy}, metric),
            "training_loss": one.training_loss,
            "elapsed_seconds": one.elapsed_seconds,
            **dict(one.further),
        }.items()
        if value is not None and math.isfinite(value)
    ]


def results(run: StoredTrial | TrialRecord, metric: Metric) -> tuple[Point, ...]:
    """What is known of its end."""
    values = with_own({name: getattr(run, name) for name in _RESULTS}, metric)
    if isinstance(run, StoredTrial) and run.state != TrialState.COMPLETE:
        values = {name: value for name, value in values.items() if name.endswith("_seconds")}
    for phase in run.phases:
        values[f"{phase.protocol}_worker_steps_per_second"] = phase.worker_steps_per_second
        values[f"{phase.protocol}_mean_staleness"] = phase.mean_staleness
        values[f"{phase.protocol}_max_staleness"] = phase.max_staleness
    return points(values, run.worker_steps, run.training_seconds or 0.0)


def points(
    values: Mapping[str, float | None], worker_step: int, elapsed_seconds: float
) -> tuple[Point, ...]:
    """Those that are known, all at one moment."""
    return tuple(
        Point(name, float(value), worker_step, elapsed_seconds)
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    )


RUNNING, FINISHED, FAILED, KILLED = "RUNNING", "FINISHED", "FAILED", "KILLED"
"""States of a run, by MLflow's names."""

_ACCURACY = Metric()
_OF_POLICY = (
    "switch_percent",
    "target_accuracy",
    "threshold",
    "mean_accuracy",
    "training_seconds",
    "baseline_seconds",
    "speed_up",
    "speed_up_low",
    "speed_up_high",
    "confidence",
    "kept_share",
    "delivered_share",
    "baseline_kept_share",
    "expected_time",
)
_STATES = {TrialState.COMPLETE: FINISHED, TrialState.RUNNING: RUNNING}


@dataclass(frozen=True, slots=True)
class RunCopy:
    """A run as MLflow shall have it.

    Attributes:
        key: Tells it from all others of its job.
        parent: Key of the run under which it is shown; None for none.
        started_at: None where nobody knows.
    """

    key: str
    name: str
    parent: str | None
    status: str
    started_at: datetime | None
    ended_at: datetime | None
    parameters: Mapping[str, str]
    tags: Mapping[str, str]
    points: tuple[Point, ...]


def search_key(study: str) -> str:
    """Tags of the run that holds the trials of a search."""
    return f"search {study}"


def search_copy(
    study: str,
    identity: WorkloadIdentity,
    search: SearchInfo | None,
    started_at: datetime | None,
    policy: TimingPolicy | None,
    *,
    status: str,
) -> RunCopy:
    """A search; of an imported policy nobody here knows more than its study."""
    metric = identity.decided_by
    values: dict[str, Any] = {
        "workers": identity.workers,
        "first_protocol": identity.first_protocol,
        "second_protocol": identity.second_protocol,
        "total_worker_steps": identity.total_worker_steps,
        "batch_size": identity.batch_size,
        "learning_rate": identity.learning_rate,
        "momentum": identity.momentum,
    }
    if search is not None:
        values |= {
            "strategy": search.strategy,
            "settings": search.settings,
            "trainer": search.trainer,
            "threshold": search.threshold,
            "base_seed": search.base_seed,
        }
    found = {} if policy is None else {name: getattr(policy, name) for name in _OF_POLICY}
    version = {} if policy is None else {"syncswitch.policy_version": str(policy.version)}
    return RunCopy(
        key=search_key(study),
        name=study,
        parent=None,
        status=status,
        started_at=started_at,
        ended_at=None,
        parameters=_texts(values),
        tags={
            "syncswitch.kind": "search",
            "syncswitch.study": study,
            **metric_tags(metric),
            **version,
        },
        points=points(
            {f"policy/{name}": value for name, value in with_own(found, metric).items()}, 0, 0.0
        ),
    )


def trial_copy(
    trial: StoredTrial, evaluations: Iterable[Evaluation], metric: Metric = _ACCURACY
) -> RunCopy:
    """A trial of a search, or a use; of a fork the part that it trained itself.

    Args:
        trial: As the database has it.
        evaluations: Its own, as far as they are known.
        metric: Of its job.
    """
    is_cancelled = trial.is_cancelled or trial.is_interrupted
    status = KILLED if is_cancelled else _STATES.get(trial.state, FAILED)
    tags = {"syncswitch.kind": trial.kind, **metric_tags(metric)}
    if trial.failure is not None:
        tags["syncswitch.failure"] = trial.failure
    if trial.study is not None:
        key, parent = f"trial {trial.trial_number} of {trial.study}", search_key(trial.study)
        name = f"{trial.switch_percent:g} %, run {trial.replicate + 1}"
        tags["syncswitch.trial_number"] = str(trial.trial_number)
    else:
        key, parent = use_key(str(trial.use_id)), None
        name = _use_name(trial.switch_percent, trial.seed, trial.policy_version)
        tags["syncswitch.policy_version"] = str(trial.policy_version)
    return RunCopy(
        key=key,
        name=name,
        parent=parent,
        status=status,
        started_at=trial.started_at,
        ended_at=trial.ended_at,
        parameters=_trial_parameters(
            trial.switch_percent, trial.replicate, trial.seed, trial.conditions, trial
        ),
        tags=tags,
        points=(*curve(evaluations, metric), *results(trial, metric)),
    )


def use_key(use_id: str) -> str:
    """Tags of a later run with a policy, or with a switch point of the user's own."""
    return f"use {use_id}"


def use_copy(use_id: str, record: TrialRecord, version: int | None) -> RunCopy:
    """A later run, just as the database would say it.

    Args:
        use_id: Names the run.
        record: What it measured.
        version: Of its policy; None for a switch point of the user's own.
    """
    spec = record.spec
    metric = spec.identity.decided_by
    tags = {"syncswitch.kind": "use", **metric_tags(metric)}
    if version is not None:
        tags["syncswitch.policy_version"] = str(version)
    return RunCopy(
        key=use_key(use_id),
        name=_use_name(spec.switch_percent, spec.seed, version),
        parent=None,
        status=FINISHED,
        started_at=record.started_at,
        ended_at=record.ended_at,
        parameters=_trial_parameters(
            spec.switch_percent, 0, spec.seed, spec.conditions, spec.identity
        ),
        tags=tags,
        points=(*curve(record.evaluations, metric), *results(record, metric)),
    )


def _use_name(switch_percent: float, seed: int | None, version: int | None) -> str:
    of = f"{switch_percent:g} %" if version is None else f"version {version}"
    return f"use of {of}, seed {seed}"


def _trial_parameters(
    switch_percent: float,
    replicate: int,
    seed: int | None,
    conditions: RunConditions,
    job: StoredTrial | WorkloadIdentity,
) -> dict[str, str]:
    values = {
        "switch_percent": f"{switch_percent:g}",
        "replicate": replicate,
        "seed": seed,
        "workers": job.workers,
        "first_protocol": job.first_protocol,
        "second_protocol": job.second_protocol,
        "total_worker_steps": job.total_worker_steps,
    }
    if conditions != RunConditions():
        values["online"] = conditions.online
        values["switch_mechanism"] = conditions.switch_mechanism
        values["injections"] = "; ".join(conditions.injections)
    return _texts(values)


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items() if value is not None}
