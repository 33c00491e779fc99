"""What is behind `run` and `evaluate`: opens what they need, and closes it again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from syncswitch.searcher.backends.base import Job
from syncswitch.searcher.cli.jobs import shared_by
from syncswitch.searcher.cli.progress import make_reporter
from syncswitch.searcher.loop.reporter import Reporter
from syncswitch.searcher.results.result import SearchResult
from syncswitch.searcher.results.transfer import EvaluationResult
from syncswitch.searcher.study.plan import SearchPlan, study_name
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.database.inspection import holds_nothing
from syncswitch.storage.errors import RetryableError
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.policies.rows import CURRENT
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.trials.store import TrialStore
from syncswitch.trainers.job.loading import normal_reference
from syncswitch.trainers.run.tensorboard import logged
from syncswitch.trainers.trainer import Trainer


def search_for_policy(
    job: Job,
    reference: str,
    plan: SearchPlan,
    storage_url: str,
    checkpoints: Path,
    jobs: int = 1,
    tensorboard_folder: Path | None = None,
) -> tuple[SearchResult, int | None]:
    """Searches, and shows how it goes on.

    Args:
        job: What is searched for.
        reference: What the user called it.
        plan: How.
        storage_url: Where everything is recorded.
        checkpoints: Folder for the checkpoints that runs share.
        jobs: How many runs to make at once.
        tensorboard_folder: For the logs of the runs; None for none.

    Returns:
        The result, and the version that is used where none is named.
    """
    from syncswitch.searcher.loop.search import Search

    is_new = _is_new(study_name(job.identity, plan), storage_url)
    with _opened(job, storage_url, is_new, "search", jobs) as (database, trainers, reporter):
        search = Search(
            database,
            job.identity,
            plan,
            lambda: logged(trainers(), tensorboard_folder, search.study_name),
            reference=job.reference or normal_reference(reference),
            reporter=reporter,
            checkpoints=checkpoints,
        )
        result = search.run()
        aliases = PolicyRegistry(database).aliases(job.identity.fingerprint)
        return result, aliases.get(CURRENT)


def evaluate_policy(
    job: Job,
    reference: str,
    policy: TimingPolicy,
    runs: int,
    trainer: str,
    base_seed: int,
    storage_url: str,
    conditions: RunConditions = RunConditions(),  # noqa: B008 (frozen)
    jobs: int = 1,
    tensorboard_folder: Path | None = None,
) -> EvaluationResult:
    """Evaluates a policy on a job, and shows how it goes on.

    Args:
        job: What is trained.
        reference: What the user called it.
        policy: With this.
        runs: How many runs of each switch point there are to be.
        trainer: Kind of trainer.
        base_seed: The seeds of all runs derive from it.
        storage_url: Where everything is recorded.
        conditions: Under which the job trains.
        jobs: How many runs to make at once.
        tensorboard_folder: For the logs of the runs; None for none.
    """
    from syncswitch.searcher.loop.transfer import PolicyEvaluation

    is_new = _is_untrained(job.identity, storage_url)
    with _opened(job, storage_url, is_new, "evaluation", jobs) as (database, trainers, reporter):
        evaluation = PolicyEvaluation(
            database,
            job.identity,
            policy,
            lambda: logged(trainers(), tensorboard_folder, evaluation.study_name),
            runs=runs,
            trainer=trainer,
            base_seed=base_seed,
            conditions=conditions,
            reference=job.reference or normal_reference(reference),
            reporter=reporter,
        )
        return evaluation.run()


@contextlib.contextmanager
def _opened(
    job: Job, storage_url: str, is_new: bool, what: str, jobs: int
) -> Iterator[tuple[Database, _Trainers, Reporter]]:
    """What makes runs, where they are recorded, and who is told; all closed at the end."""
    with (
        contextlib.closing(_Trainers(job.open_trainer)) as trainers,
        contextlib.ExitStack() as stack,
    ):
        if is_new:
            trainers.open_in_advance()
        database = stack.enter_context(open_database(storage_url, create=True))
        reporter = stack.enter_context(make_reporter(what))
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


def _is_new(study: str, storage_url: str) -> bool:
    """Whether the database does not know this search; nothing is written.

    Raises:
        UserError: The database cannot be used.
    """
    return _holds_no(lambda store: any(s.study == study for s in store.searches()), storage_url)


def _is_untrained(identity: WorkloadIdentity, storage_url: str) -> bool:
    """Whether the database has no run of this job; nothing is written.

    Raises:
        UserError: The database cannot be used.
    """
    return _holds_no(lambda store: store.trials(fingerprint=identity.fingerprint), storage_url)


def _holds_no(found: Callable[[TrialStore], object], storage_url: str) -> bool:
    if holds_nothing(storage_url):
        return True
    with open_database(storage_url, create=False) as database:
        return not found(TrialStore(database))
