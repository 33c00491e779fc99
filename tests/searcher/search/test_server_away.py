"""Searchers outlast an absent server, whether they train or wait for others."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from generated_trainer import GeneratedTrainer
from searches import HeldTrainer, search

from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.search.reporter import Reporter
from syncswitch.searcher.search.study import Patience
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.storage.errors import RetryableError
from syncswitch.storage.records.policy import TimingPolicy
from tests.conftest import postgresql, stop_server

# With a budget nobody makes runs in advance, so whoever comes later waits.
PLAN = SearchPlan(AdaptiveStrategy(halvings=2, share_prefix=False, budget=100.0))


class Told(Reporter):
    """Sets events when the search waits, and when the database is away."""

    def __init__(self) -> None:
        self.waits, self.is_away = threading.Event(), threading.Event()

    def on_wait(self, switch_percent: float) -> None:
        self.waits.set()

    def on_database_away(self, patience_seconds: float) -> None:
        self.is_away.set()


def made(url: str, trainer: GeneratedTrainer, told: Told, patience: Patience) -> TimingPolicy:
    return search(url, trainer, PLAN, patience=patience, reporter=told).policy


def test_searchers_outlast_a_server_that_is_away_for_less_than_their_patience() -> None:
    patient = Patience(poll_seconds=0.05, retry_seconds=0.1, attempts=3, restart_seconds=60)
    impatient = replace(patient, restart_seconds=0.5)
    held, waits, waits_briefly = HeldTrainer(), Told(), Told()
    with postgresql() as server, ThreadPoolExecutor() as pool:
        url = server.get_uri()
        first = pool.submit(made, url, held, Told(), patient)
        try:
            assert held.has_begun.wait(60)
            second = pool.submit(made, url, GeneratedTrainer(), waits, patient)
            third = pool.submit(made, url, GeneratedTrainer(), waits_briefly, impatient)
            assert waits.waits.wait(60)
            assert waits_briefly.waits.wait(60)
            stop_server(server, "immediate")
            assert waits.is_away.wait(60)
            with pytest.raises(RetryableError, match=r"gave up after \d+ s without the dat") as end:
                third.result(60)
            assert "\n" not in str(end.value)
        finally:
            server.ensure_postgres_running()
            held.may_end.set()
        assert first.result(60) == second.result(60)
