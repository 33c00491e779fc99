"""The search behind `syncswitch-search run`: opens what it needs, and closes it again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from syncswitch.searcher.plan import SearchPlan, study_name
from syncswitch.storage.errors import RetryableError

if TYPE_CHECKING:
    from syncswitch.searcher.cli.compose import Job
    from syncswitch.searcher.result import SearchResult
    from syncswitch.trainers.trainer import Trainer

__all__ = ["search_for_policy"]


def search_for_policy(
    job: Job, reference: str, plan: SearchPlan, storage_url: str, checkpoints: Path
) -> tuple[SearchResult, int | None]:
    """Searches, and shows how it goes on.

    Args:
        job: What is searched for.
        reference: What the user called it.
        plan: How.
        storage_url: Where everything is recorded.
        checkpoints: Folder for the checkpoints that runs share.

    Returns:
        The result, and the version that is used where none is named.
    """
    from syncswitch.searcher.cli.progress import make_reporter
    from syncswitch.searcher.search import Search
    from syncswitch.storage.engine import open_database
    from syncswitch.storage.policies import CURRENT, PolicyRegistry
    from syncswitch.trainers.workload import normal_reference

    with (
        contextlib.closing(_Trainers(job.open_trainer)) as trainers,
        contextlib.ExitStack() as stack,
    ):
        if _is_new(study_name(job.identity, plan), storage_url):
            trainers.open_in_advance()
        database = stack.enter_context(open_database(storage_url, create=True))
        reporter = stack.enter_context(make_reporter())
        result = Search(
            database,
            job.identity,
            plan,
            trainers,
            reference=job.reference or normal_reference(reference),
            reporter=reporter,
            checkpoints=checkpoints,
        ).run()
        aliases = PolicyRegistry(database).aliases(job.identity.fingerprint)
        return result, aliases.get(CURRENT)


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
    from syncswitch.storage.engine import open_database
    from syncswitch.storage.inspection import holds_nothing
    from syncswitch.storage.trials import TrialStore

    if holds_nothing(storage_url):
        return True
    with open_database(storage_url, create=False) as database:
        return all(search.study != study for search in TrialStore(database).searches())
