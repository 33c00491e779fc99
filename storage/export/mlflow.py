"""Copies of searches, trials, later runs and policies on MLflow.

A workload is an experiment. A search is a run with its trials below it, and later runs with a
policy stand beside it. The policies of a job are the versions of a registered model.

Everything may have been copied before, in part, or by another process at the same moment. MLflow
has no unique names for runs, so a tag holds a key; of several runs with one key the one with the
lowest identifier stays, and whoever looks next removes the others.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from syncswitch.storage.database.engine import Database
from syncswitch.storage.errors import RetryableError, SyncSwitchError, UserError, one_line
from syncswitch.storage.policies.file import policy_text
from syncswitch.storage.policies.registry import PolicyEntry, PolicyRegistry
from syncswitch.storage.records.job import RegisteredWorkload, RunConditions, WorkloadIdentity
from syncswitch.storage.records.metric import ACCURACY_NAME, Metric
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import Evaluation, TrialRecord, TrialState
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import SearchInfo, StoredTrial
from syncswitch.storage.uses.store import use_curves, uses

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
_COMPARISON = "comparison"  # a strategy that publishes no policy
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


def check_mlflow(uri: str) -> None:
    """Raises UserError without a client, or if this is not a tracking URI; connects to nothing."""
    if importlib.util.find_spec("mlflow") is None:
        raise UserError(
            "--mlflow needs the package mlflow-skinny (or mlflow), which is missing; run:"
            " pip install 'syncswitch[mlflow]'"
        )
    try:
        scheme = urlsplit(uri).scheme.partition("+")[0]
    except ValueError:
        scheme = ""
    if uri != "databricks" and scheme not in _SCHEMES:
        raise UserError(
            f"--mlflow is {shown_uri(uri)!r}, which is not a tracking URI of MLflow; give one that"
            " begins like http://localhost:5000 or sqlite:///mlflow.db"
        )


def shown_uri(uri: str) -> str:
    """Returns the URI without a password."""
    return re.sub(r"//[^/@]*@", "//***@", uri)


def copy_job(database: Database, uri: str, workload: RegisteredWorkload) -> int:
    """Brings MLflow up to date with a job, and returns the number of its runs there.

    A run that is under way is copied once it has ended. Raises RetryableError if MLflow, or the
    database, does not answer as it should.
    """
    identity = workload.identity
    store = TrialStore(database)
    entries = PolicyRegistry(database).entries(workload=identity.fingerprint)
    trials = [row for row in store.trials(fingerprint=identity.fingerprint) if row.study]
    copies = _searches(store, workload, entries, trials)
    curves = store.curves(identity.fingerprint) | use_curves(database, identity.fingerprint)
    copies += [
        trial_copy(row, curves.get(row.trial_id, ()))
        for row in (*trials, *uses(database, identity.fingerprint))
        if row.state != TrialState.RUNNING
    ]
    _Server(uri).put(workload, copies, entries)
    return len(copies)


def copy_run(uri: str, use_id: str, record: TrialRecord, version: int | None) -> None:
    """Copies a run that is over; without a version of a policy, the user chose its switch point.

    Raises RetryableError if MLflow does not answer as it should.
    """
    workload = RegisteredWorkload(record.spec.identity, "")
    _Server(uri).put(workload, [use_copy(use_id, record, version)], [])


class Point(NamedTuple):
    """One value of a metric, measured when the run had trained for so long."""

    name: str
    value: float
    worker_step: int
    elapsed_seconds: float


@dataclass(frozen=True, slots=True)
class RunCopy:
    """A run as MLflow is to have it.

    Attributes:
        key: Identifies the run among those of its job.
        parent: Key of the run that it is shown below; None for none.
        parameters: By name; those that are None are left out.
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
    identity: WorkloadIdentity,
    search: SearchInfo | None,
    started_at: datetime | None,
    policy: TimingPolicy | None,
    *,
    status: str,
) -> RunCopy:
    """Describes a search; of the one that found an imported policy, only its study is known."""
    names = ("strategy", "settings", "trainer", "threshold", "base_seed")
    metric = identity.decided_by
    found = {} if policy is None else {name: getattr(policy, name) for name in _POLICY_METRICS}
    values = {f"policy/{name}": value for name, value in _with_own(found, metric).items()}
    return RunCopy(
        key=f"search {study}",
        name=study,
        parent=None,
        status=status,
        started_at=started_at,
        ended_at=None,
        parameters={
            **_job_parameters(identity),
            "batch_size": identity.batch_size,
            "learning_rate": identity.learning_rate,
            "momentum": identity.momentum,
            **({name: getattr(search, name) for name in names} if search else {}),
        },
        tags={
            **_tags("search", metric, policy.version if policy else None),
            "syncswitch.study": study,
        },
        points=_points(values, 0, 0.0),
    )


def trial_copy(trial: StoredTrial, evaluations: Iterable[Evaluation]) -> RunCopy:
    """Describes a trial of a search, or a use; of a fork the part that it trained itself."""
    metric = Metric(trial.metric, trial.metric_goal, trial.metric_unit)
    status = FINISHED if trial.state == TrialState.COMPLETE else FAILED
    tags = _tags(trial.kind, metric, trial.policy_version)
    if trial.failure is not None:
        tags["syncswitch.failure"] = trial.failure
    if trial.study is not None:
        tags["syncswitch.trial_number"] = str(trial.trial_number)
        key, parent = f"trial {trial.trial_number} of {trial.study}", f"search {trial.study}"
        name = f"{trial.switch_percent:g} %, run {trial.replicate + 1}"
    else:
        key, parent = f"use {trial.use_id}", None
        name = _use_name(trial.policy_version, trial)
    return RunCopy(
        key=key,
        name=name,
        parent=parent,
        status=KILLED if trial.is_cancelled or trial.is_interrupted else status,
        started_at=trial.started_at,
        ended_at=trial.ended_at,
        parameters=_run_parameters(trial.replicate, trial, trial.conditions)
        | _job_parameters(trial),
        tags=tags,
        points=(*_curve(evaluations, metric), *_results(trial, metric)),
    )


def use_copy(use_id: str, record: TrialRecord, version: int | None) -> RunCopy:
    """Describes a later run exactly as `trial_copy` does once the database has it."""
    spec, metric = record.spec, record.spec.identity.decided_by
    return RunCopy(
        key=f"use {use_id}",
        name=_use_name(version, spec),
        parent=None,
        status=FINISHED,
        started_at=record.started_at,
        ended_at=record.ended_at,
        parameters=_run_parameters(0, spec, spec.conditions) | _job_parameters(spec.identity),
        tags=_tags("use", metric, version),
        points=(*_curve(record.evaluations, metric), *_results(record, metric)),
    )


def _use_name(version: int | None, run: Any) -> str:
    what = f"{run.switch_percent:g} %" if version is None else f"version {version}"
    return f"use of {what}, seed {run.seed}"


def _run_parameters(replicate: int, run: Any, conditions: RunConditions) -> dict[str, object]:
    is_usual = conditions == RunConditions()
    return {
        "switch_percent": f"{run.switch_percent:g}",
        "replicate": replicate,
        "seed": run.seed,
        "online": None if is_usual else conditions.online,
        "switch_mechanism": None if is_usual else conditions.switch_mechanism,
        "injections": None if is_usual else "; ".join(conditions.injections),
    }


def _job_parameters(job: StoredTrial | WorkloadIdentity) -> dict[str, object]:
    names = ("workers", "first_protocol", "second_protocol", "total_worker_steps")
    return {name: getattr(job, name) for name in names}


def _tags(kind: str, metric: Metric, version: int | None) -> dict[str, str]:
    named = {"kind": kind, **metric.naming, "policy_version": version}
    return {f"syncswitch.{name}": str(text) for name, text in named.items() if text is not None}


def _with_own(values: Mapping[str, float | None], metric: Metric) -> dict[str, float | None]:
    """Adds the metric's own value beside each accuracy, unless the metric is the accuracy."""
    own = {}
    if metric.name != ACCURACY_NAME:
        for name, accuracy in values.items():
            start = name.removesuffix(ACCURACY_NAME)
            if name != start and accuracy is not None:
                own[f"{start}{metric.name}"] = metric.value(accuracy)
    return {**values, **own}


def _curve(evaluations: Iterable[Evaluation], metric: Metric) -> list[Point]:
    return [
        point
        for one in evaluations
        for point in _points(
            {
                **_with_own({"accuracy": one.accuracy}, metric),
                "training_loss": one.training_loss,
                "elapsed_seconds": one.elapsed_seconds,
                **dict(one.further),
            },
            one.worker_step,
            one.elapsed_seconds,
        )
    ]


def _results(run: StoredTrial | TrialRecord, metric: Metric) -> tuple[Point, ...]:
    values = _with_own({name: getattr(run, name) for name in _RESULTS}, metric)
    for phase in run.phases:
        for name in ("worker_steps_per_second", "mean_staleness", "max_staleness"):
            values[f"{phase.protocol}_{name}"] = getattr(phase, name)
    return _points(values, run.worker_steps, run.training_seconds or 0.0)


def _points(
    values: Mapping[str, float | None], worker_step: int, elapsed_seconds: float
) -> tuple[Point, ...]:
    """Returns the finite values as points of one moment."""
    return tuple(
        Point(name, float(value), worker_step, elapsed_seconds)
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    )


def _searches(
    store: TrialStore,
    workload: RegisteredWorkload,
    entries: Sequence[PolicyEntry],
    trials: Iterable[StoredTrial],
) -> list[RunCopy]:
    """Describes the searches, and the study of each policy that none of them published."""
    searches = {one.study: one for one in store.searches(workload=workload.identity.fingerprint)}
    policies = {entry.policy.study: entry.policy for entry in reversed(entries)}
    running = {row.study for row in trials if row.state == TrialState.RUNNING}
    copies = []
    for study in dict.fromkeys([*searches, *policies]):
        search, policy = searches.get(study), policies.get(study)
        if policy is not None or search is None:
            status = FINISHED
        elif study in running:
            status = RUNNING
        else:
            status = FINISHED if search.strategy == _COMPARISON else KILLED
        began = store.registered_at(study)
        copies.append(search_copy(study, workload.identity, search, began, policy, status=status))
    return copies


class _Server:
    """The server or folder behind a tracking URI."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    @cached_property
    def _client(self) -> MlflowClient:
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from mlflow import MlflowClient  # takes seconds

            return MlflowClient(self._uri, registry_uri=self._uri)

    def put(
        self,
        workload: RegisteredWorkload,
        copies: Sequence[RunCopy],
        entries: Sequence[PolicyEntry],
    ) -> None:
        """Brings runs and policies of a job up to date; may be repeated after any failure.

        Parents come before their children, and the search of each policy is among the runs.
        Raises RetryableError if the server does not answer as it should.
        """
        try:
            run_ids = self._put_runs(workload.identity, copies)
            if entries:
                self._put_policies(workload, entries, run_ids)
        except SyncSwitchError:
            raise
        except Exception as error:  # MLflow's client passes on those of several libraries
            place = f"MLflow at {shown_uri(self._uri)}"
            if any(words in str(error) for words in _UNREACHABLE):
                raise RetryableError(f"{place} does not answer") from error
            text = one_line(error).replace(self._uri, shown_uri(self._uri))
            raise RetryableError(f"{place} refuses a copy: {text}") from error

    def _put_runs(self, identity: WorkloadIdentity, copies: Sequence[RunCopy]) -> dict[str, str]:
        """Returns the identifier of each run by its key."""
        experiment = self._experiment(identity.name)
        runs = self._runs(experiment, identity.fingerprint)
        found: dict[str, str] = {}
        for copy in copies:
            run = runs.get(copy.key)
            parent = None if copy.parent is None else found[copy.parent]
            if run is None:
                run = self._create(experiment, identity, copy, parent)
            elif parent is not None and run.data.tags.get(_PARENT) != parent:
                self._client.set_tag(run.info.run_id, _PARENT, parent)
            found[copy.key] = run.info.run_id
            if run.info.status != FINISHED:
                self._update(run, copy)
        return found

    def _experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or name
        known = self._client.get_experiment_by_name(name)
        if known is None:
            try:
                return str(self._client.create_experiment(name))
            except MlflowException:
                known = self._client.get_experiment_by_name(name)  # made at this moment
                if known is None:
                    raise
        return str(known.experiment_id)

    def _runs(self, experiment: str, fingerprint: str) -> dict[str, Run]:
        """Returns the runs of a job by their keys."""
        found: dict[str, list[Run]] = defaultdict(list)
        token: str | None = ""
        while token is not None:
            page = self._client.search_runs(
                [experiment],
                f"tags.`{_FINGERPRINT}` = '{fingerprint}'",
                max_results=_PAGE,
                page_token=token or None,
            )
            for run in page:
                if _KEY in run.data.tags:
                    found[run.data.tags[_KEY]].append(run)
            token = page.token or None
        chosen = {}
        for key, runs in found.items():
            chosen[key], *others = sorted(runs, key=lambda run: str(run.info.run_id))
            for other in others:
                self._client.delete_run(other.info.run_id)
        return chosen

    def _create(
        self, experiment: str, identity: WorkloadIdentity, copy: RunCopy, parent: str | None
    ) -> Run:
        tags = {
            _KEY: copy.key,
            _FINGERPRINT: identity.fingerprint,
            "syncswitch.workload": identity.name,
            "mlflow.source.name": "syncswitch",
            **({} if parent is None else {_PARENT: parent}),
            **copy.tags,
        }
        start_time = _milliseconds(copy.started_at)
        return self._client.create_run(
            experiment, start_time=start_time, tags=_shortened(tags), run_name=copy.name
        )

    def _update(self, run: Run, copy: RunCopy) -> None:
        """Adds what a run lacks; its state comes last, so that a run that has ended is whole."""
        from mlflow.entities import Metric as MlflowMetric
        from mlflow.entities import Param, RunTag

        run_id = str(run.info.run_id)
        parameters = [
            Param(name, str(value))
            for name, value in copy.parameters.items()
            if value is not None and name not in run.data.params
        ]
        tags = [
            RunTag(name, text)
            for name, text in _shortened(copy.tags).items()
            if run.data.tags.get(name) != text
        ]
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
            self._client.log_batch(run_id, metrics=batch, params=parameters, tags=tags)
            parameters, tags = [], []
        if copy.status == run.info.status:
            return
        if copy.status == RUNNING:
            self._client.update_run(run_id, status=RUNNING)
        else:
            self._client.set_terminated(run_id, copy.status, _milliseconds(copy.ended_at))

    def _put_policies(
        self,
        workload: RegisteredWorkload,
        entries: Sequence[PolicyEntry],
        run_ids: Mapping[str, str],
    ) -> None:
        identity, client = workload.identity, self._client
        name = re.sub(r"[/:]", "-", identity.name)
        model = f"syncswitch-{name}-{identity.fingerprint[:8]}"
        if not client.search_registered_models(f"name = '{model}'", max_results=1):
            client.create_registered_model(
                model,
                tags={_FINGERPRINT: identity.fingerprint},
                description=f"Timing policies of {identity.name} on {identity.cluster}: when to"
                " switch. Each version holds a policy file for syncswitch-run --policy.",
            )
        numbers = self._versions(model)
        for entry in sorted(entries, key=lambda entry: entry.policy.version):
            if entry.policy.version not in numbers:
                run_id = run_ids[f"search {entry.policy.study}"]
                numbers[entry.policy.version] = self._add_version(model, workload, entry, run_id)
        aliases = client.get_registered_model(model).aliases
        for entry in entries:
            number = numbers[entry.policy.version]
            for alias in entry.aliases:
                if not _RESERVED_ALIAS.fullmatch(alias) and str(aliases.get(alias)) != number:
                    client.set_registered_model_alias(model, alias, number)

    def _versions(self, model: str) -> dict[int, str]:
        """Returns MLflow's number of each version; it differs if others added or removed some."""
        found: dict[int, str] = {}
        versions = self._client.search_model_versions(f"name = '{model}'")
        for one in sorted(versions, key=lambda one: int(one.version)):
            if _VERSION not in one.tags:
                continue
            if int(one.tags[_VERSION]) in found:  # copied twice at the same moment
                self._client.delete_model_version(model, str(one.version))
            else:
                found[int(one.tags[_VERSION])] = str(one.version)
        return found

    def _add_version(
        self, model: str, workload: RegisteredWorkload, entry: PolicyEntry, run_id: str
    ) -> str:
        policy = entry.policy
        folder = f"policy-{policy.version}"
        self._client.log_text(run_id, policy_text(policy, workload), f"{folder}/policy.json")
        first, second = policy.first_protocol.upper(), policy.second_protocol.upper()
        made = self._client.create_model_version(
            model,
            f"runs:/{run_id}/{folder}",
            run_id,
            tags={
                _VERSION: str(policy.version),
                "syncswitch.switch_percent": f"{policy.switch_percent:g}",
                "syncswitch.study": policy.study,
            },
            description=f"{first} for the first {policy.switch_percent:g} % of"
            f" {policy.total_worker_steps:,} worker-steps, then {second}",
            await_creation_for=None,
        )
        return str(made.version)


def _shortened(tags: Mapping[str, str]) -> dict[str, str]:
    return {name: text[:_LONGEST_TAG] for name, text in tags.items()}


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else round(1000 * moment.timestamp())
