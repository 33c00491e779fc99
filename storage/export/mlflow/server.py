"""An MLflow server, or what else its client takes for one, and the runs of a job there.

Whatever is copied may have been copied before, in part, or by another process at the same time.
MLflow knows no unique names of runs, so of several runs with one key that of the lowest identifier
stays: whoever looks next removes the others, and all come to the same end.
"""

from __future__ import annotations

import importlib.util
import os
import re
import warnings
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from syncswitch.storage.errors import RetryableError, UserError, one_line
from syncswitch.storage.export.mlflow.runs import FINISHED, RUNNING, RunCopy
from syncswitch.storage.records.job import WorkloadIdentity

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

KEY, FINGERPRINT = "syncswitch.key", "syncswitch.fingerprint"
"""Tags: what a run is a copy of, and of which job."""

_PARENT = "mlflow.parentRunId"
_PAGE = 1000
_MOST_POINTS = 1000  # of one request
_LONGEST_TAG = 5000
_SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql", "file", "databricks")
_UNREACHABLE = ("Max retries exceeded", "timed out", "Connection aborted")
_MANNERS = {
    # Nobody waits for a server that is away; MLflow's own patience is of many minutes.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    # Standard output is for results.
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}


def check_mlflow(uri: str) -> None:
    """Checks that there is a client, and that this can be a tracking URI; asks nobody."""
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
            f"--mlflow is {shown_uri(uri)!r}, which is no tracking URI of MLflow; give one that"
            " begins like http://localhost:5000 or sqlite:///mlflow.db"
        )


def shown_uri(uri: str) -> str:
    """The URI without a password."""
    return re.sub(r"//[^/@]*@", "//***@", uri)


class MlflowServer:
    """The server or folder behind a tracking URI. All methods may be repeated after any failure.

    They raise RetryableError where the server does not answer as it should.
    """

    def __init__(self, uri: str) -> None:
        """Asks nobody yet."""
        self._uri = uri
        self._known_client: MlflowClient | None = None

    @property
    def client(self) -> MlflowClient:
        """MLflow's own client; it takes seconds to import."""
        if self._known_client is None:
            for name, value in _MANNERS.items():
                os.environ.setdefault(name, value)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                from mlflow import MlflowClient

                self._known_client = MlflowClient(self._uri, registry_uri=self._uri)
        return self._known_client

    def put(self, identity: WorkloadIdentity, copies: Sequence[RunCopy]) -> dict[str, str]:
        """Brings the runs of a job up to date; parents come before their children.

        Returns:
            The identifier on MLflow of each, by its key.
        """
        try:
            return self._put(identity, copies)
        except Exception as error:
            raise self.away(error) from error

    def away(self, error: Exception) -> RetryableError:
        """The message for any failure of MLflow's client."""
        text, place = one_line(error), f"MLflow at {shown_uri(self._uri)}"
        if any(words in str(error) for words in _UNREACHABLE):
            return RetryableError(f"{place} does not answer")
        text = text.replace(self._uri, shown_uri(self._uri))
        return RetryableError(f"{place} does not take this: {text}")

    def _put(self, identity: WorkloadIdentity, copies: Sequence[RunCopy]) -> dict[str, str]:
        experiment = self._experiment(identity.name)
        runs = self._runs(experiment, identity.fingerprint)
        found: dict[str, str] = {}
        for copy in copies:
            run = runs.get(copy.key)
            parent = None if copy.parent is None else found[copy.parent]
            if run is None:
                run = self._create(experiment, identity, copy, parent)
            elif parent is not None and run.data.tags.get(_PARENT) != parent:
                self.client.set_tag(run.info.run_id, _PARENT, parent)
            found[copy.key] = run.info.run_id
            if run.info.status != FINISHED:
                self._update(run, copy)
        return found

    def _experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or name
        known = self.client.get_experiment_by_name(name)
        if known is None:
            try:
                return str(self.client.create_experiment(name))
            except MlflowException:
                known = self.client.get_experiment_by_name(name)  # of somebody at this moment
                if known is None:
                    raise
        return str(known.experiment_id)

    def _runs(self, experiment: str, fingerprint: str) -> dict[str, Run]:
        """The runs of a job by their keys."""
        found: dict[str, list[Run]] = defaultdict(list)
        token: str | None = None
        while True:
            page = self.client.search_runs(
                [experiment],
                f"tags.`{FINGERPRINT}` = '{fingerprint}'",
                max_results=_PAGE,
                page_token=token,
            )
            for run in page:
                if KEY in run.data.tags:
                    found[run.data.tags[KEY]].append(run)
            token = page.token
            if not token:
                break
        chosen = {}
        for key, runs in found.items():
            first, *others = sorted(runs, key=lambda run: str(run.info.run_id))
            chosen[key] = first
            for other in others:
                self.client.delete_run(other.info.run_id)
        return chosen

    def _create(
        self, experiment: str, identity: WorkloadIdentity, copy: RunCopy, parent: str | None
    ) -> Run:
        tags = {
            KEY: copy.key,
            FINGERPRINT: identity.fingerprint,
            "syncswitch.workload": identity.name,
            "mlflow.source.name": "syncswitch",
        }
        if parent is not None:
            tags[_PARENT] = parent
        return self.client.create_run(
            experiment,
            start_time=_milliseconds(copy.started_at),
            tags=_shortened({**tags, **copy.tags}),
            run_name=copy.name,
        )

    def _update(self, run: Run, copy: RunCopy) -> None:
        """Whatever it lacks; its state last, so that what has ended is whole."""
        from mlflow.entities import Metric, Param, RunTag

        run_id = str(run.info.run_id)
        known, data = run.data.params, run.data.tags
        parameters = [Param(*one) for one in copy.parameters.items() if one[0] not in known]
        tags = [RunTag(*one) for one in _shortened(copy.tags).items() if data.get(one[0]) != one[1]]
        # Equal points are one on MLflow if their times are equal, too: all derive from one start.
        start = run.info.start_time or 0
        metrics = [
            Metric(
                _metric_name(point.name),
                point.value,
                start + round(1000 * point.elapsed_seconds),
                point.worker_step,
            )
            for point in copy.points
        ]
        while metrics or parameters or tags:
            batch, metrics = metrics[: _MOST_POINTS - 200], metrics[_MOST_POINTS - 200 :]
            self.client.log_batch(run_id, metrics=batch, params=parameters, tags=tags)
            parameters, tags = [], []
        if copy.status == run.info.status:
            return
        if copy.status == RUNNING:
            self.client.update_run(run_id, status=RUNNING)
        else:
            ended_at = None if copy.ended_at is None else _milliseconds(copy.ended_at)
            self.client.set_terminated(run_id, copy.status, ended_at)


def _metric_name(name: str) -> str:
    """Without what MLflow does not allow, such as the colon in `ssp:3_mean_staleness`."""
    return re.sub(r"[^\w./ -]", "-", name)


def _shortened(tags: Any) -> dict[str, str]:
    return {name: str(value)[:_LONGEST_TAG] for name, value in tags.items()}


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else round(1000 * moment.timestamp())
