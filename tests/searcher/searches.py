"""A test tool: searches with generated accuracies, and both accounts of them."""

from __future__ import annotations

import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import optuna
from generated_trainer import GeneratedTrainer

from syncswitch.searcher.backends.base import TrainableJob
from syncswitch.searcher.search.optuna_storage import open_storage
from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.search.search import Search, SearchResult
from syncswitch.searcher.search.study import Patience
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.searcher.sweeps import Sweep, SweepPlan
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.job import ScheduledJob
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.trainers.trainer import Trainer
from tests.identities import GENERATED


class HeldTrainer(GeneratedTrainer):
    """Ends its runs only when it is allowed to."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def train(self, *given: Any) -> Any:
        self.has_begun.set()
        assert self.may_end.wait(60)
        return super().train(*given)


QUICK = Patience(poll_seconds=0.01, retry_seconds=0.0, stale_seconds=0.5)
PLAN = SearchPlan(PaperStrategy(halvings=3, runs=2))  # 8 runs
SHORT = SearchPlan(PaperStrategy(halvings=1, runs=2))  # 4 runs
SINGLE = SearchPlan(PaperStrategy(halvings=2, runs=1))  # 3 runs

Run = tuple[float, int, float, bool]


def search(
    url: str,
    trainer: Trainer | None = None,
    plan: SearchPlan = PLAN,
    *,
    job: ScheduledJob = GENERATED,
    patience: Patience = QUICK,
    **options: Any,
) -> SearchResult:
    """Searches to the end."""
    made = trainer or GeneratedTrainer()
    with open_database(url, create=True) as database:
        return Search(database, job, plan, lambda: made, patience=patience, **options).run()


def swept(
    url: str, trainer: GeneratedTrainer, percents: tuple[float, ...], runs: int, **changes: Any
) -> Sweep:
    """Compares switch points of the generated job; the changes are of the plan."""
    plan = SweepPlan(
        jobs=(TrainableJob(GENERATED, lambda: trainer, "generated"),),
        percents=percents,
        reference_percent=100.0,
        threshold=0.01,
        target_accuracy=None,
        trainer="local",
        runs=runs,
        seed=0,
        guarded=False,
    )
    with open_database(url, create=True) as database:
        return replace(plan, **changes).run(database, patience=QUICK)


def trials_of(url: str) -> list[StoredTrial]:
    """All trials of a database."""
    with open_database(url, create=False) as database:
        return TrialStore(database).trials()


def policies_of(url: str) -> list[TimingPolicy]:
    """All its policies, the newest first."""
    with open_database(url, create=False) as database:
        return PolicyRegistry(database).policies()


def together(work: Callable[[], object], searchers_at_once: int) -> None:
    """Several processes do the same work, and all of them succeed."""
    context = multiprocessing.get_context("fork")
    searchers = [context.Process(target=work) for _ in range(searchers_at_once)]
    for searcher in searchers:
        searcher.start()
    for searcher in searchers:
        searcher.join()
    assert [searcher.exitcode for searcher in searchers] == [0] * searchers_at_once


def the_study(url: str) -> optuna.Study:
    """The only study of a database, as Optuna has it."""
    storage = open_storage(url)
    (name,) = optuna.get_all_study_names(storage)
    return optuna.load_study(study_name=name, storage=storage)


def states_of(url: str) -> Counter[str]:
    """Of its trials, as Optuna has them."""
    return Counter(trial.state.name for trial in the_study(url).get_trials())


def outcome(url: str) -> tuple[list[Run], list[TimingPolicy]]:
    """The completed runs by Optuna's account, and the policies; both sides have to agree."""
    study = the_study(url)
    with open_database(url, create=False) as database:
        store = TrialStore(database)
        runs = []
        for trial in study.get_trials(states=[optuna.trial.TrialState.COMPLETE]):
            row = store.get(study.study_name, trial.number)
            assert row is not None
            assert row.state == "complete"
            assert row.result.converged_accuracy == trial.value
            assert row.result.diverged == trial.user_attrs["diverged"]
            assert row.replicate == trial.user_attrs["replicate"]
            assert row.seed == trial.user_attrs["seed"]
            assert row.result.diverged is not None
            runs.append((row.switch_percent, row.replicate, trial.value, row.result.diverged))
        assert all(row.state != "running" for row in store.trials())
        assert not study.get_trials(states=[optuna.trial.TrialState.RUNNING])
        return sorted(runs), PolicyRegistry(database).policies()
