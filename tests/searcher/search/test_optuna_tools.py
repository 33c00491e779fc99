"""Optuna's own command line on the database of a search."""

from __future__ import annotations

import json
import sys
from typing import Any

import optuna.cli
import pytest
from generated_trainer import GeneratedTrainer, identity

from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.search.search import Patience, Search
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.database.inspection import driver_url
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial

PLAN = SearchPlan(PaperStrategy(settings=3, runs=2))
COMPLETE = 7  # the last switch point diverges, so that its repeat is not made
TRIALS = COMPLETE + 1  # the first run is lost, and made again


@pytest.fixture
def policy(url: str, our_tables: None) -> TimingPolicy:
    """The policy that a search published in the database."""
    trainer = GeneratedTrainer(failures=1, diverges_below_percent=20)
    patience = Patience(poll_seconds=0.01, retry_seconds=0.0)
    with open_database(url, create=True) as database:
        return Search(database, identity(), PLAN, lambda: trainer, patience=patience).run().policy


def rows(url: str) -> list[StoredTrial]:
    with open_database(url, create=False) as database:
        return TrialStore(database).trials()


def optuna_says(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["optuna", *arguments, "--format", "json"])
        assert optuna.cli.main() == 0
    return json.loads(capsys.readouterr().out)


def test_optunas_command_line_lists_the_search_and_its_trials(
    url: str, policy: TimingPolicy, capsys: pytest.CaptureFixture[str]
) -> None:
    (study,) = optuna_says(capsys, "studies", "--storage", driver_url(url))
    assert (study["name"], study["n_trials"]) == (policy.study, TRIALS)
    assert study["direction"] == ["MAXIMIZE"]
    assert study["user_attrs"] == {
        "workload": "generated",
        "workers": 4,
        "protocols": "bsp,asp",
        "strategy": "paper",
        "policy_switch_percent": policy.switch_percent,
    }
    arguments = ("--study-name", policy.study, "--storage", driver_url(url))
    trials = optuna_says(capsys, "trials", *arguments)
    told = [
        (
            trial["number"],
            trial["params"]["switch_percent"],
            trial["value"]["converged_accuracy"],
            *(
                trial["user_attrs"][name]
                for name in ("replicate", "seed", "diverged", "training_seconds")
            ),
        )
        for trial in trials
        if trial["state"] == "COMPLETE"
    ]
    assert told == [
        (
            row.trial_number,
            row.switch_percent,
            row.converged_accuracy,
            row.replicate,
            row.seed,
            row.diverged,
            row.training_seconds,
        )
        for row in rows(url)
        if row.state == "complete"
    ]
    assert len(told) == COMPLETE
    assert [trial["state"] for trial in trials].count("FAIL") == 1
