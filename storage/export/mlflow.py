"""Copies of searches, trials, later runs and policies on MLflow.

A workload is an experiment. A search is a run with its trials below it, and later runs with a
policy stand beside it. The policies of a job are the versions of a registered model.

A job may have been copied before, or in part. MLflow has no unique names for runs, so a tag holds
a key. One process at a time copies a job, when its search or run is over.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import RetryableError, SyncSwitchError, UserError, one_line
from syncswitch.storage.policies.file import policy_text
from syncswitch.storage.policies.registry import PolicyEntry, PolicyRegistry
from syncswitch.storage.records.flat import columns, flat
from syncswitch.storage.records.job import (
    Job,
    RegisteredWorkload,
    RunConditions,
    ScheduledJob,
    SearchInfo,
    protocol_text,
)
from syncswitch.storage.records.metric import ACCURACY_NAME, Metric
from syncswitch.storage.records.policy import Measured, Promise, TimingPolicy
from syncswitch.storage.records.trial import Evaluation, TrialRecord, TrialSpec, TrialState
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

_KEY, _FINGERPRINT = "syncswitch.key", "syncswitch.fingerprint"
_VERSION, _PARENT = "syncswitch.policy_version", "mlflow.parentRunId"
RUNNING, FINISHED, FAILED, KILLED = "RUNNING", "FINISHED", "FAILED", "KILLED"
"""MLflow's names for the states of a run."""

_PAGE = 1000
_POINTS_PER_REQUEST = 800  # MLflow takes 1000 entries, parameters and tags included
_LONGEST_TAG = 5000
_SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql", "file", "databricks")
_ANSWER_SECONDS = 3.0
_UNREACHABLE = ("Max retries exceeded", "timed out", "Connection aborted")
_SETTINGS = {
    # MLflow's own patience with a server that is away lasts many minutes.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    # Standard output is for results.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}
_RESERVED_ALIAS = re.compile(r"latest|v\d+")
_SWEEP = "sweep"  # a strategy that publishes no policy
_RESULTS = (
    "converged_accuracy",
    "final_accuracy",
    "diverged",
    "stopped_early",
    "training_seconds",
    "inherited_seconds",
    "switch_overhead_seconds",
)
_POLICY_METRICS = (
    *("switch_percent", "target_accuracy", "threshold", "speed_up"),
    *(one.name for part in (Measured, Promise) for one in columns(part) if one.kind is float),
)


def check_mlflow(uri: str) -> None:
    """Raises UserError without a client, or if this is not a tracking URI; connects to nothing."""
    if importlib.util.find_spec("mlflow") is None:
        raise UserError(
            "needs the package mlflow-skinny (or mlflow), which is missing",
            parameter="mlflow",
            remedy="run: pip install 'syncswitch[mlflow]'",
            code="package-missing",
        )
    try:
        scheme = urlsplit(uri).scheme.partition("+")[0]
    except ValueError:
        scheme = ""
    if uri != "databricks" and scheme not in _SCHEMES:
        raise UserError(
            "it is not a tracking URI of MLflow",
            parameter="mlflow",
            value=shown_uri(uri),
            remedy="give one that begins like http://localhost:5000 or sqlite:///mlflow.db",
        )


def shown_uri(uri: str) -> str:
    """Returns the URI without a password."""
    return re.sub(r"//[^/@]*@", "//***@", uri)


def copy_job(database: Database, uri: str, workload: RegisteredWorkload) -> int:
    """Brings MLflow up to date with a job, and returns the number of its runs there.

    A run that is under way is copied once it has ended. Raises RetryableError if MLflow, or the
    database, does not answer as it should.
    """
    job, store = workload.job, TrialStore(database)
    fingerprint = job.fingerprint
    entries = PolicyRegistry(database).entries(workload=fingerprint)
    searches = {one.study: one for one in store.searches(workload=fingerprint)}
    policies = {entry.policy.study: entry.policy for entry in reversed(entries)}
    trials = store.trials(fingerprint=fingerprint, kinds=("search", "use"))
    curves = store.curves(fingerprint) | store.curves(fingerprint, of_uses=True)
    running = {row.origin.study for row in trials if row.state == TrialState.RUNNING}
    # The study of a policy from elsewhere is no search of this database.
    copies = [
        search_copy(
            study,
            ScheduledJob(job, (searches.get(study) or policies[study]).protocols),
            searches.get(study),
            store.registered_at(study),
            policies.get(study),
            is_running=study in running,
        )
        for study in dict.fromkeys([*searches, *policies])
    ]
    copies += [
        trial_copy(row, curves.get(row.trial_id, ()))
        for row in trials
        if row.state != TrialState.RUNNING
    ]
    with _connected(uri) as client:
        run_ids = _put_runs(client, job, copies)
        if entries:
            _put_policies(client, workload, entries, run_ids)
    return len(copies)


def copy_run(uri: str, use_id: str, record: TrialRecord, version: int | None) -> None:
    """Copies a run that is over; without a version of a policy, the user chose its switch point.

    Raises RetryableError if MLflow does not answer as it should.
    """
    with _connected(uri) as client:
        _put_runs(client, record.spec.identity.job, [use_copy(use_id, record, version)])


class Point(NamedTuple):
    """One value of a metric, measured when the run had trained for so long."""

    name: str
    value: float
    worker_step: int
    elapsed_seconds: float


@dataclass(frozen=True, slots=True)
class RunCopy:
    """A run as MLflow is to have it; parameters that are None are left out.

    `key` identifies it among the runs of its job, `parent` is the key of the one above it.
    """

    key: str
    name: str
    parent: str | None
    status: str
    started_at: datetime | None
    ended_at: datetime | None
    parameters: Mapping[str, object]
    tags: Mapping[str, str]
    points: tuple[Point, ...]


def search_copy(
    study: str,
    identity: ScheduledJob,
    search: SearchInfo | None,
    started_at: datetime | None,
    policy: TimingPolicy | None,
    *,
    is_running: bool = False,
) -> RunCopy:
    """Describes a search; of the one that found an imported policy, only its study is known."""
    is_over = policy is not None or search is None
    status = RUNNING if is_running else KILLED
    if is_over or (search and search.strategy == _SWEEP and not is_running):
        status = FINISHED
    of_job = ("batch_size", "learning_rate", "momentum")
    of_search = ("strategy", "halvings", "trainer", "threshold", "base_seed") if search else ()
    stated = {**flat(policy), "speed_up": policy.measured.speed_up} if policy else {}
    found = {f"policy/{name}": stated[name] for name in _POLICY_METRICS if policy}
    return RunCopy(
        key=f"search {study}",
        name=study,
        parent=None,
        status=status,
        started_at=started_at,
        ended_at=None,
        parameters={
            **_job_parameters(flat(identity)),
            **{name: getattr(identity.recipe, name) for name in of_job},
            **{name: getattr(search, name) for name in of_search},
        },
        tags=_tags("search", identity.metric, policy.version if policy else None, study=study),
        points=tuple(_points(found, identity.metric, 0, 0.0)),
    )


def trial_copy(trial: StoredTrial, evaluations: Iterable[Evaluation]) -> RunCopy:
    """Describes a trial of a search, or a use; of a fork the part that it trained itself."""
    metric, origin, facts = trial.metric.metric, trial.origin, flat(trial)
    use_id, version = origin.use_id or "", origin.policy_version
    copy = _use_copy(use_id, version, trial, trial, facts, metric, evaluations)
    if origin.study is None:
        return copy
    status = FINISHED if trial.state == TrialState.COMPLETE else FAILED
    return replace(
        copy,
        key=f"trial {origin.trial_number} of {origin.study}",
        name=f"{trial.switch_percent:g} %, run {trial.replicate + 1}",
        parent=f"search {origin.study}",
        status=KILLED if trial.is_cancelled or trial.is_interrupted else status,
        parameters={**copy.parameters, "replicate": trial.replicate},
        tags=_tags("search", metric, None, trial_number=origin.trial_number, failure=trial.failure),
    )


def use_copy(use_id: str, record: TrialRecord, version: int | None) -> RunCopy:
    """Describes a later run exactly as `trial_copy` does once the database has it."""
    spec, job = record.spec, record.spec.identity
    facts = flat(job) | {name: getattr(record, name) for name in _RESULTS}
    return _use_copy(use_id, version, record, spec, facts, job.metric, record.evaluations)


def _use_copy(
    use_id: str,
    version: int | None,
    run: StoredTrial | TrialRecord,
    spec: StoredTrial | TrialSpec,
    facts: Mapping[str, Any],
    metric: Metric,
    evaluations: Iterable[Evaluation],
) -> RunCopy:
    what = f"{spec.switch_percent:g} %" if version is None else f"version {version}"
    conditions, is_usual = spec.conditions, spec.conditions == RunConditions()
    points: list[Point] = []
    for one in evaluations:
        measured = {
            "accuracy": one.accuracy,
            "training_loss": one.training_loss,
            "elapsed_seconds": one.elapsed_seconds,
        }
        points += _points(measured, metric, one.worker_step, one.elapsed_seconds)
        further = {name: value for name, value in one.further if name not in measured}
        # They have no other value, even those that are called an accuracy.
        points += _points(further, Metric(), one.worker_step, one.elapsed_seconds)
    results = {name: facts[name] for name in _RESULTS}
    for phase in run.phases:
        for name in ("worker_steps_per_second", "mean_staleness", "max_staleness"):
            results[f"{phase.protocol}_{name}"] = getattr(phase, name)
    points += _points(results, metric, run.worker_steps, results["training_seconds"] or 0.0)
    return RunCopy(
        key=f"use {use_id}",
        name=f"use of {what}, seed {spec.seed}",
        parent=None,
        status=FINISHED,
        started_at=run.started_at,
        ended_at=run.ended_at,
        parameters={
            "switch_percent": f"{spec.switch_percent:g}",
            "replicate": 0,
            "seed": spec.seed,
            "online": None if is_usual else conditions.online,
            "switch_mechanism": None if is_usual else conditions.switch_mechanism,
            "injections": None if is_usual else "; ".join(conditions.injections),
            **_job_parameters(facts),
        },
        tags=_tags("use", metric, version),
        points=tuple(points),
    )


def _job_parameters(facts: Mapping[str, Any]) -> dict[str, object]:
    protocols = ("first_protocol", "second_protocol", "momentum_after_switch")
    return {name: facts[name] for name in ("workers", *protocols, "total_worker_steps")}


def _tags(kind: str, metric: Metric, version: int | None, **others: object) -> dict[str, str]:
    named = {"kind": kind, **metric.naming, "policy_version": version, **others}
    return {f"syncswitch.{name}": str(text) for name, text in named.items() if text is not None}


def _points(
    values: Mapping[str, float | None], metric: Metric, worker_step: int, elapsed_seconds: float
) -> Iterator[Point]:
    """Yields the finite values of one moment, and beside an accuracy the metric's own value."""
    for name, value in values.items():
        if value is None or not math.isfinite(value):
            continue
        yield Point(name, float(value), worker_step, elapsed_seconds)
        start = name.removesuffix(ACCURACY_NAME)
        if start != name and metric.name != ACCURACY_NAME:
            own = metric.value(value)
            yield Point(f"{start}{metric.name}", own, worker_step, elapsed_seconds)


@contextmanager
def _connected(uri: str) -> Iterator[MlflowClient]:
    """Makes a client; raises RetryableError if the server does not answer it as it should."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _check_answers(uri)
            from mlflow import MlflowClient  # takes seconds

            client = MlflowClient(uri, registry_uri=uri)
        yield client
    except SyncSwitchError:
        raise
    except Exception as error:  # MLflow's client passes on those of several libraries
        place = f"MLflow at {shown_uri(uri)}"
        if any(words in str(error) for words in _UNREACHABLE):
            raise RetryableError(f"{place} does not answer", code="service-away") from error
        text = one_line(error).replace(uri, shown_uri(uri))
        raise RetryableError(f"{place} refuses a copy: {text}", code="service-away") from error


def _check_answers(uri: str) -> None:
    """Raises RetryableError if nobody answers soon; MLflow waits longer, each time."""
    import requests

    if not uri.startswith(("http://", "https://")):
        return
    try:
        # Any answer will do, also of a server whose certificate MLflow is told to trust.
        requests.head(uri, timeout=_ANSWER_SECONDS, verify=False)
    except (requests.ConnectionError, requests.Timeout) as error:
        raise RetryableError(
            f"MLflow at {shown_uri(uri)} does not answer", code="service-away"
        ) from error


def _put_runs(client: MlflowClient, job: Job, copies: Iterable[RunCopy]) -> dict[str, str]:
    """Brings the runs of a job up to date; returns the identifier of each by its key.

    Parents come before their children.
    """
    experiment = _experiment(client, job.name)
    runs = _runs(client, experiment, job.fingerprint)
    found: dict[str, str] = {}
    for copy in copies:
        parent = {} if copy.parent is None else {_PARENT: found[copy.parent]}
        if copy.key not in runs:
            tags = {
                _KEY: copy.key,
                _FINGERPRINT: job.fingerprint,
                "syncswitch.workload": job.name,
                "mlflow.source.name": "syncswitch",
            }
            runs[copy.key] = client.create_run(
                experiment,
                start_time=_milliseconds(copy.started_at),
                tags=_shortened({**tags, **parent, **copy.tags}),
                run_name=copy.name,
            )
        run = runs[copy.key]
        found[copy.key] = str(run.info.run_id)
        if run.info.status != FINISHED:
            _update(client, run, copy)
    return found


def _experiment(client: MlflowClient, name: str) -> str:
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or name
    known = client.get_experiment_by_name(name)
    return str(known.experiment_id if known else client.create_experiment(name))


def _runs(client: MlflowClient, experiment: str, fingerprint: str) -> dict[str, Run]:
    found: list[Run] = []
    token: str | None = ""
    while token is not None:
        page = client.search_runs(
            [experiment],
            f"tags.`{_FINGERPRINT}` = '{fingerprint}'",
            max_results=_PAGE,
            page_token=token or None,
        )
        found += [run for run in page if _KEY in run.data.tags]
        token = page.token or None
    return {run.data.tags[_KEY]: run for run in found}


def _update(client: MlflowClient, run: Run, copy: RunCopy) -> None:
    """Writes all of a run; its state comes last, so that a run that has ended is whole."""
    from mlflow.entities import Metric as MlflowMetric
    from mlflow.entities import Param, RunTag

    run_id = str(run.info.run_id)
    parameters = [Param(name, str(x)) for name, x in copy.parameters.items() if x is not None]
    tags = [RunTag(name, text) for name, text in _shortened(copy.tags).items()]
    # MLflow keeps equal points once if their times are equal too: all derive from one start.
    start = run.info.start_time or 0
    metrics = [
        MlflowMetric(
            # MLflow allows no colon, such as that of `ssp:3_mean_staleness`.
            re.sub(r"[^\w./ -]", "-", point.name),
            point.value,
            start + round(1000 * point.elapsed_seconds),
            point.worker_step,
        )
        for point in copy.points
    ]
    while metrics or parameters or tags:
        batch, metrics = metrics[:_POINTS_PER_REQUEST], metrics[_POINTS_PER_REQUEST:]
        client.log_batch(run_id, metrics=batch, params=parameters, tags=tags)
        parameters, tags = [], []
    if copy.status == RUNNING != run.info.status:
        client.update_run(run_id, status=RUNNING)
    elif copy.status != run.info.status:
        client.set_terminated(run_id, copy.status, _milliseconds(copy.ended_at))


def _put_policies(
    client: MlflowClient,
    workload: RegisteredWorkload,
    entries: Sequence[PolicyEntry],
    run_ids: Mapping[str, str],
) -> None:
    """Brings the policies of a job up to date; the searches that found them are among the runs."""
    job = workload.job
    # MLflow's filters know no way to write a quote.
    plain = re.sub(r"[^\w.+() -]", "-", job.name)
    model = f"syncswitch-{plain}-{job.fingerprint[:8]}"
    if not client.search_registered_models(f"name = '{model}'", max_results=1):
        client.create_registered_model(
            model,
            tags={_FINGERPRINT: job.fingerprint},
            description=f"Timing policies of {job.name} on {job.size}: when to"
            " switch. Each version holds a policy file to train with.",
        )
    # MLflow's numbers differ if others added or removed some.
    numbers = {
        int(one.tags[_VERSION]): str(one.version)
        for one in client.search_model_versions(f"name = '{model}'")
        if _VERSION in one.tags
    }
    for entry in sorted(entries, key=lambda entry: entry.policy.version):
        policy = entry.policy
        if policy.version in numbers:
            continue
        run_id, folder = run_ids[f"search {policy.study}"], f"policy-{policy.version}"
        client.log_text(run_id, policy_text(policy, workload), f"{folder}/policy.json")
        pair = policy.protocols
        first, second = map(protocol_text, (pair.first_protocol, pair.second_protocol))
        made = client.create_model_version(
            model,
            f"runs:/{run_id}/{folder}",
            run_id,
            tags={
                _VERSION: str(policy.version),
                "syncswitch.switch_percent": f"{policy.switch_percent:g}",
                "syncswitch.study": policy.study,
            },
            description=f"{first} for the first {policy.switch_percent:g} % of"
            f" {entry.identity.length}, then {second}",
            await_creation_for=None,
        )
        numbers[policy.version] = str(made.version)
    aliases = client.get_registered_model(model).aliases
    for entry in entries:
        number = numbers[entry.policy.version]
        for alias in entry.aliases:
            if not _RESERVED_ALIAS.fullmatch(alias) and str(aliases.get(alias)) != number:
                client.set_registered_model_alias(model, alias, number)


def _shortened(tags: Mapping[str, str]) -> dict[str, str]:
    return {name: text[:_LONGEST_TAG] for name, text in tags.items()}


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else round(1000 * moment.timestamp())
