"""Reads the status of searches, again and again, and never writes."""

from __future__ import annotations

from datetime import datetime, timezone

from syncswitch.searcher.search.liveness import state_of
from syncswitch.searcher.search.observations import read_observations
from syncswitch.searcher.simulation.rest import RestOfSearch, rest_of_search
from syncswitch.searcher.status.summary import SearchStatus, search_status
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.comparison import ComparisonStrategy
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.registry import stored_strategy
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import UserError
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.trial import TrialState
from syncswitch.storage.trials.optuna_tables import running_accuracies
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import SearchInfo
from syncswitch.storage.uses.store import uses_of

LEAST_RUNS = 3
"""Before so many, a strategy that makes as many runs as it needs foresees far too few of them."""


class StatusReader:
    """Looks at the searches of a database; what is finished it reads once.

    Each look opens the database anew: so it notices that the file was replaced, or the schema
    upgraded, and holds nothing that others may want in between.

    Args:
        url: The database, which has to be there.
        workload: Only searches of it; None for all.
        workers: Only searches on a cluster of this size; None for all.
    """

    def __init__(self, url: str, workload: str | None = None, workers: int | None = None) -> None:
        self._url = url
        self._workload = workload
        self._workers = workers
        self._finished: dict[str, SearchStatus] = {}

    def read(self, *, with_rest: bool = True, is_brief: bool = False) -> list[SearchStatus]:
        """All searches and evaluations, in the order in which they were registered.

        Args:
            with_rest: Whether to say what is to come of those under way, which takes a second for
                each new result.
            is_brief: Whether to leave out the switch points and the bracket of searches that have
                their policy, which take long where there are many.

        Raises:
            SyncSwitchError: The database cannot be read; the class says whether to try again.
        """
        with open_database(self._url, create=False) as database:
            searches = TrialStore(database).searches(workload=self._workload)
            found = []
            for search in searches:
                if not self._is_wanted(database, search):
                    continue
                status = self._finished.get(search.study)
                status = status or _read(database, search, with_rest=with_rest, is_brief=is_brief)
                # Runs under way are cancelled only after the policy was published.
                if status.is_finished and not status.in_flight:
                    self._finished[search.study] = status
                found.append(status)
            return found

    def _is_wanted(self, database: Database, search: SearchInfo) -> bool:
        if self._workers is None:
            return True
        workload = PolicyRegistry(database).workload(search.fingerprint)
        return workload is not None and workload.identity.workers == self._workers


def _read(
    database: Database, search: SearchInfo, *, with_rest: bool, is_brief: bool
) -> SearchStatus:
    registry = PolicyRegistry(database)
    workload = registry.workload(search.fingerprint)
    assert workload is not None  # every search refers to one
    # Before the trials: a search that is decided in between has all of them.
    policy = registry.published(search.fingerprint, search.study)
    store = TrialStore(database)
    rows = store.numbered(search.study)
    states = {number: state_of(row) for number, row in rows.items()}
    is_running = TrialState.RUNNING in states.values()
    strategy = stored_strategy(search)
    finished = read_observations(database, search.study, rows)
    return search_status(
        search,
        workload.identity,
        rows,
        finished,
        states,
        datetime.now(timezone.utc),
        registered_at=None if rows else store.registered_at(search.study),
        policy=policy,
        uses=None if policy is None else uses_of(database, policy),
        is_brief=is_brief,
        accuracies=running_accuracies(database, search.study) if is_running else {},
        rest=_rest(strategy, finished) if with_rest and is_running and policy is None else None,
    )


def _rest(strategy: Strategy, finished: list[Observation]) -> RestOfSearch | None:
    """None for an evaluation, before it can be foreseen, and where the baseline diverged."""
    if isinstance(strategy, ComparisonStrategy):
        return None
    is_early = strategy.repeats is None and len(finished) < LEAST_RUNS
    if is_early or strategy.missing_for_threshold(finished):
        return None
    try:
        return rest_of_search(strategy, finished)
    except UserError:
        return None
