"""Several searchers on one database: a team that searches together, and outlasts its server."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from generated_trainer import GeneratedTrainer
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState, create_trial
from searches import PLAN, HeldTrainer, policies_of, search, together, trials_of

from syncswitch.searcher.search.observations import REPLICATE
from syncswitch.searcher.search.optuna_storage import check_database
from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.search.reporter import Reporter
from syncswitch.searcher.search.study import PARAMETER, Patience, SearchState
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.records.policy import TimingPolicy
from tests.conftest import postgresql, stop_server
from tests.failing import fails

ADAPTIVE = SearchPlan(AdaptiveStrategy(halvings=3))
PATIENCE = Patience(poll_seconds=0.1, heartbeat_interval_seconds=0.05)


def runs_of(url: str) -> list[tuple[float, int, float | None]]:
    """Returns switch point, replicate and accuracy of each complete run."""
    rows = trials_of(url)
    assert all(row.state == "complete" or row.is_cancelled for row in rows)
    return sorted(
        (row.switch_percent, row.replicate, row.result.converged_accuracy)
        for row in rows
        if row.state == "complete"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("any_url", "plan"), [("postgresql", PLAN), ("sqlite", ADAPTIVE)], indirect=["any_url"]
)
def test_three_searchers_make_each_run_once_and_agree(
    any_url: str, plan: SearchPlan, tmp_path: Path
) -> None:
    options = {"patience": PATIENCE, "checkpoints": tmp_path}
    alone = search(f"sqlite:///{tmp_path}/alone.db", None, plan, **options).policy

    def work() -> None:
        found = search(any_url, GeneratedTrainer(delay_seconds=0.2), plan, **options).policy
        assert (found.switch_percent, found.version) == (alone.switch_percent, 1)

    together(work, 3)
    runs = runs_of(any_url)
    assert len(runs) == len({(percent, replicate) for percent, replicate, _ in runs})
    (policy,) = policies_of(any_url)
    processes = {row.process_id for row in trials_of(any_url)}
    assert len(processes) > 1, "one searcher made all runs"
    if plan is PLAN:
        # Others are there as well, which were only likely to be needed.
        assert set(runs) >= set(runs_of(f"sqlite:///{tmp_path}/alone.db"))
        assert policy.measured.mean_accuracy == alone.measured.mean_accuracy
        assert len(policy.evidence) == len(alone.evidence)
    # Whatever ended after the answer, the same search still gives it, and trains nothing.
    assert search(any_url, GeneratedTrainer(), plan, **options).policy == policy
    assert len(runs_of(any_url)) == len(runs)
    assert check_database(any_url) == []


PERCENTS = FloatDistribution(0.0, 100.0)


@pytest.mark.parametrize(
    ("percent", "replicate", "trial_state", "is_waited_for"),
    [
        (None, None, TrialState.RUNNING, True),
        (12.5, None, TrialState.RUNNING, True),
        (None, 1, TrialState.RUNNING, True),
        (12.5, 0, TrialState.RUNNING, False),
        (None, None, TrialState.FAIL, False),
    ],
)
def test_who_comes_later_waits_for_both_choices_of_a_run_under_way(
    percent: float | None, replicate: int | None, trial_state: TrialState, is_waited_for: bool
) -> None:
    chosen: dict[str, Any] = {} if percent is None else {PARAMETER: percent}
    trial = create_trial(
        state=trial_state,
        params=chosen,
        distributions=dict.fromkeys(chosen, PERCENTS),
        user_attrs={} if replicate is None else {REPLICATE: replicate},
    )
    trial.number = 0
    state = SearchState(PaperStrategy(), (trial,), rows={})
    assert state.is_choosing_before(1) == is_waited_for
    assert state.is_all_before(1) != is_waited_for
    assert not state.is_choosing_before(0)
    assert not state.is_all_before(2)


# With a budget nobody makes runs in advance, so whoever comes later waits.
WAITING = SearchPlan(AdaptiveStrategy(halvings=2, share_prefix=False, budget=100.0))


class Told(Reporter):
    """Sets events when the search waits, and when the database is away."""

    def __init__(self) -> None:
        self.waits, self.is_away = threading.Event(), threading.Event()

    def on_wait(self, switch_percent: float) -> None:
        self.waits.set()

    def on_database_away(self, patience_seconds: float) -> None:
        self.is_away.set()


def made(url: str, trainer: GeneratedTrainer, told: Told, patience: Patience) -> TimingPolicy:
    return search(url, trainer, WAITING, patience=patience, reporter=told).policy


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
            with fails("database-away") as end:
                third.result(60)
            assert "\n" not in str(end.value)
        finally:
            server.ensure_postgres_running()
            held.may_end.set()
        assert first.result(60) == second.result(60)
