"""Searches in separate processes, killed with -9 or side by side on one database."""

from __future__ import annotations

import importlib
import itertools
import multiprocessing
import os
import random
import signal
from collections import Counter
from functools import partial
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
from generated_trainer import GeneratedTrainer
from searches import SHORT, Run, outcome, search

from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.search.study import Patience
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.records.flat import flat
from syncswitch.storage.records.policy import TimingPolicy
from tests.processes import exit_code_of

# That a creation is killed is tested where databases are created.
pytestmark = pytest.mark.usefixtures("our_tables")

PLAN = SearchPlan(PaperStrategy(halvings=4, runs=3))
PATIENCE = Patience(
    poll_seconds=0.02, retry_seconds=0.1, heartbeat_interval_seconds=0.01, stale_seconds=0.5
)
KILLS = 5
FORK = multiprocessing.get_context("fork")
RUN_SECONDS = 0.2


def make(url: str, delay_seconds: float = 0.0, plan: SearchPlan = PLAN) -> None:
    trainer = GeneratedTrainer(delay_seconds=delay_seconds, diverges_below_percent=7)
    search(url, trainer, plan, patience=PATIENCE)


def search_and_die(url: str, place: str, when: str) -> None:
    """Ends the process at an exact place, the second time that the search gets there."""
    module_name, class_name, method = place.split(":")
    owner = getattr(importlib.import_module(f"syncswitch.{module_name}"), class_name)
    real = getattr(owner, method)
    calls = itertools.count(1)

    def deadly(*args: Any, **kwargs: Any) -> Any:
        is_last = next(calls) == (1 if method == "publish" else 2)
        if is_last and when == "before":
            os._exit(9)
        result = real(*args, **kwargs)
        if is_last:
            os._exit(9)
        return result

    setattr(owner, method, deadly)
    make(url, plan=SHORT)


def start(url: str, delay_seconds: float) -> BaseProcess:
    process = FORK.Process(target=make, args=(url, delay_seconds))
    process.start()
    return process


def same_answer(one: TimingPolicy, other: TimingPolicy) -> bool:
    names = ("switch_percent", "target_accuracy", "mean_accuracy", "training_seconds", "version")
    return all(flat(one)[name] == flat(other)[name] for name in names)


@pytest.fixture(scope="module", params=[PLAN], ids=["long"])
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> tuple[list[Run], list[TimingPolicy]]:
    url = f"sqlite:///{tmp_path_factory.mktemp('undisturbed')}/search.db"
    make(url, plan=request.param)
    return outcome(url)


def test_kills_at_any_moment_change_nothing(
    url: str, undisturbed: tuple[list[Run], list[TimingPolicy]]
) -> None:
    draw = random.Random(8)
    for _ in range(KILLS):
        process = start(url, delay_seconds=RUN_SECONDS)
        # From before the first transaction to within the second run.
        process.join(draw.uniform(0.01, 1.5 * RUN_SECONDS))
        assert process.is_alive(), "the search ended before the kills did"
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    assert exit_code_of(partial(make, url)) == 0

    runs, policies = outcome(url)
    expected_runs, expected_policies = undisturbed
    assert Counter(runs) == Counter(expected_runs)
    assert len(policies) == len(expected_policies) == 1
    assert same_answer(policies[0], expected_policies[0])


@pytest.mark.parametrize("undisturbed", [SHORT], indirect=True, ids=["short"])
# Before one is after the one that was written before.
@pytest.mark.parametrize(
    ("place", "when"),
    [
        ("searcher.search.study:SearchStudy:_choose", "before"),
        ("searcher.search.study:SearchStudy:_choose", "after"),
        ("storage.trials.store:TrialStore:begin", "after"),
        ("storage.trials.store:TrialStore:complete", "after"),
        ("searcher.search.study:SearchStudy:note_result", "after"),
        ("searcher.search.study:SearchStudy:complete", "after"),
        ("storage.policies.registry:PolicyRegistry:publish", "before"),
        ("storage.policies.registry:PolicyRegistry:publish", "after"),
    ],
)
def test_death_at_any_write_changes_nothing(
    url: str, undisturbed: tuple[list[Run], list[TimingPolicy]], place: str, when: str
) -> None:
    assert exit_code_of(partial(search_and_die, url, place, when)) == 9
    make(url, plan=SHORT)

    runs, policies = outcome(url)
    expected_runs, expected_policies = undisturbed
    assert runs == expected_runs
    assert len(policies) == 1
    assert same_answer(policies[0], expected_policies[0])
