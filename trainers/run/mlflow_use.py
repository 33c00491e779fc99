"""`syncswitch-run --mlflow`: the run on MLflow while it trains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone

from typing_extensions import override

from syncswitch.storage.export.mlflow.runs import (
    FINISHED,
    KILLED,
    RUNNING,
    RunUnderWay,
    use_copy,
)
from syncswitch.storage.export.mlflow.server import MlflowServer
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.trainers.run.mlflow import Copier, WatchedTrainer
from syncswitch.trainers.trainer import Trainer


class UseCopy:
    """A run that is not copied anywhere."""

    def watched(self, trainer: Trainer) -> Trainer:
        """The trainer, wrapped so that the run is seen while it trains."""
        return trainer

    def end(self, record: TrialRecord, policy: TimingPolicy | None) -> None:
        """The run is over, and was one with this policy."""


class _MlflowUse(UseCopy):
    """A run that is copied to MLflow."""

    def __init__(
        self,
        server: MlflowServer,
        spec: TrialSpec,
        policy: TimingPolicy | None,
        use_id: str,
        tell: Callable[[str], None],
    ) -> None:
        self._server, self._spec, self._use_id = server, spec, use_id
        self._version = None if policy is None else policy.version
        self._started_at = datetime.now(timezone.utc)
        self._under_way = RunUnderWay()
        self._record: TrialRecord | None = None
        self._status = RUNNING
        self._copier = Copier(
            self._copy,
            tell,
            "the run does not wait for it, and what is missing is copied later; once it is in a"
            " database, by syncswitch-search export",
        )

    @override
    def watched(self, trainer: Trainer) -> Trainer:
        return WatchedTrainer(trainer, self._under_way, self._copier.wake)

    @override
    def end(self, record: TrialRecord, policy: TimingPolicy | None) -> None:
        self._record, self._status = record, FINISHED
        self._version = None if policy is None else policy.version
        self._copier.wake()

    def close(self) -> None:
        """A run that has no end now was interrupted."""
        if self._record is None:
            self._status = KILLED
        self._copier.close()

    def _copy(self) -> None:
        record = self._record
        tests = self._under_way.evaluations if record is None else record.evaluations
        copy = use_copy(
            self._use_id,
            self._spec,
            self._version,
            self._started_at,
            tests,
            record,
            status=self._status,
        )
        self._server.put(self._spec.identity, [copy])


@contextmanager
def copied_use(
    uri: str | None,
    spec: TrialSpec,
    policy: TimingPolicy | None,
    use_id: str,
    tell: Callable[[str], None],
) -> Iterator[UseCopy]:
    """Copies a run to MLflow until the body ends.

    Args:
        uri: Tracking URI; None for no copy.
        spec: What is trained.
        policy: With this one; None for a switch point of the user's own.
        use_id: Names the run.
        tell: Tells people.
    """
    if uri is None:
        yield UseCopy()
        return
    copy = _MlflowUse(MlflowServer(uri), spec, policy, use_id, tell)
    try:
        yield copy
    finally:
        copy.close()
