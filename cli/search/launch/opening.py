"""What is behind the commands that make runs: opens what they need, and closes it again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from syncswitch.cli.search.launch.jobs import shared_by
from syncswitch.cli.search.launch.progress import LineReporter, reporting
from syncswitch.searcher.backends.base import Job
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.database.inspection import holds_nothing
from syncswitch.storage.errors import RetryableError
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.trials.store import TrialStore
from syncswitch.trainers.model.kept import kept_for_the_next
from syncswitch.trainers.trainer import Trainer


@contextlib.contextmanager
def opened_for(
    job: Job, storage_url: str, what: str, jobs: int
) -> Iterator[tuple[Database, Callable[[], Trainer], LineReporter]]:
    """What makes runs, where they are recorded, and who is told; all closed at the end.

    Where the database does not know the job yet, a trainer is opened first.
    """
    with opened_for_several([job], storage_url, what, jobs) as opened:
        database, (trainers,), reporter = opened
        yield database, trainers, reporter


@contextlib.contextmanager
def opened_for_several(
    to_train: Sequence[Job], storage_url: str, what: str, jobs: int, study: str | None = None
) -> Iterator[tuple[Database, Sequence[Callable[[], Trainer]], LineReporter]]:
    """The same for jobs that are trained one after the other, with what trains each.

    Only of the first one a trainer may be opened in advance: where the database does not know it,
    or its search of that name.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(kept_for_the_next())
        trainers = [
            stack.enter_context(contextlib.closing(_Trainers(job.open_trainer))) for job in to_train
        ]
        if _is_unknown(to_train[0].identity, study, storage_url):
            trainers[0].open_in_advance()
        database = stack.enter_context(open_database(storage_url, create=True))
        reporter = stack.enter_context(reporting(what))
        # Not before it is clear that the job can be trained.
        stack.enter_context(shared_by(jobs, reporter.tell))
        yield database, trainers, reporter


class _Trainers:
    """Opens trainers; one may be opened in advance, and is then the first that is given out.

    Opening one loads the data and tries the model, so it shows whether the workload can be trained
    before anything is written about it.
    """

    def __init__(self, open_trainer: Callable[[], Trainer]) -> None:
        self._open = open_trainer
        self._ready: Trainer | None = None

    def open_in_advance(self) -> None:
        """A cluster that cannot be had now may be had later: the search tries again."""
        with contextlib.suppress(RetryableError):
            self._ready = self._open()

    def __call__(self) -> Trainer:
        ready, self._ready = self._ready, None
        return self._open() if ready is None else ready

    def close(self) -> None:
        """Closes what nobody took."""
        if self._ready is not None:
            self._ready.close()
            self._ready = None


def _is_unknown(identity: WorkloadIdentity, study: str | None, storage_url: str) -> bool:
    """Whether the database has no run of this job, or not this search; nothing is written.

    Raises:
        UserError: The database cannot be used.
    """
    if holds_nothing(storage_url):
        return True
    with open_database(storage_url, create=False) as database:
        store = TrialStore(database)
        if study is None:
            return not store.trials(fingerprint=identity.fingerprint)
        return all(search.study != study for search in store.searches())
