"""Several searchers on one database: a team that searches together."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest
from generated_trainer import GeneratedTrainer
from searches import search

from syncswitch.searcher.search.optuna_storage import check_database
from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.search.search import Patience
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.trials.store import TrialStore

ADAPTIVE = SearchPlan(AdaptiveStrategy(settings=3))
PATIENCE = Patience(poll_seconds=0.1, heartbeat_interval_seconds=0.05)


def slow() -> GeneratedTrainer:
    return GeneratedTrainer(delay_seconds=0.2)


def runs_of(url: str) -> list[tuple[float, int, float | None]]:
    """Returns switch point, replicate and accuracy of each complete run."""
    with open_database(url, create=False) as database:
        rows = TrialStore(database).trials()
    assert all(row.state == "complete" or row.is_cancelled for row in rows)
    return sorted(
        (row.switch_percent, row.replicate, row.converged_accuracy)
        for row in rows
        if row.state == "complete"
    )


def together(work: Callable[[], None], searchers_at_once: int) -> None:
    """Several processes do the same work, and all of them succeed."""
    context = multiprocessing.get_context("fork")
    searchers = [context.Process(target=work) for _ in range(searchers_at_once)]
    for searcher in searchers:
        searcher.start()
    for searcher in searchers:
        searcher.join()
    assert [searcher.exitcode for searcher in searchers] == [0] * searchers_at_once


@pytest.mark.slow
def test_three_searchers_on_a_server_make_each_run_once(
    postgresql_url: str, sqlite_url: str
) -> None:
    alone = search(sqlite_url).policy

    def work() -> None:
        found = search(postgresql_url, slow(), patience=PATIENCE).policy
        assert (found.switch_percent, found.version) == (alone.switch_percent, 1)

    together(work, 3)
    runs = runs_of(postgresql_url)
    assert len(runs) == len({(percent, replicate) for percent, replicate, _ in runs})
    # Others are there as well, which were only likely to be needed.
    assert set(runs) >= set(runs_of(sqlite_url))
    with open_database(postgresql_url, create=False) as database:
        (policy,) = PolicyRegistry(database).policies()
        processes = {row.process_id for row in TrialStore(database).trials()}
    assert policy.switch_percent == alone.switch_percent
    assert policy.mean_accuracy == alone.mean_accuracy
    assert len(policy.evidence) == len(alone.evidence)
    assert len(processes) > 1, "one searcher made all runs"
    assert check_database(postgresql_url) == []


@pytest.mark.slow
def test_two_adaptive_searchers_publish_one_answer_and_repeat_no_run(
    sqlite_url: str, tmp_path: Path
) -> None:
    def adaptive(trainer: GeneratedTrainer) -> TimingPolicy:
        options = {"patience": PATIENCE, "checkpoints": tmp_path}
        return search(sqlite_url, trainer, ADAPTIVE, **options).policy

    def work() -> None:
        found = adaptive(slow())
        assert (found.switch_percent, found.version) == (12.5, 1)

    together(work, 2)
    runs = [(percent, replicate) for percent, replicate, _ in runs_of(sqlite_url)]
    assert len(runs) == len(set(runs))
    with open_database(sqlite_url, create=False) as database:
        (policy,) = PolicyRegistry(database).policies()
    assert policy.confidence is not None
    # Whatever ended after the answer, the same search still gives it, and trains nothing.
    assert adaptive(GeneratedTrainer()) == policy
    assert len(runs_of(sqlite_url)) == len(runs)
    assert check_database(sqlite_url) == []
