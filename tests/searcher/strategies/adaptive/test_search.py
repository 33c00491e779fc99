"""The adaptive strategy in a real search on recorded runs, with forks and early stops."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from searches import search as searched
from searches import trials_of
from step_recording import FIRST_SECONDS, GRID, TARGET, step_recording

from reproduction.simulator import PlayedRun, SimulatedSearch, played_run, search_with
from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.search.search import SearchResult
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.early_stopping import StopRule
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import StoredTrial
from syncswitch.trainers.replay import Recording, ReplayTrainer
from syncswitch.trainers.trainer import Observer

pytestmark = pytest.mark.usefixtures("our_tables")

RULE = AdaptiveStrategy()
RECORDING = step_recording(12.5)


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


def search(
    url: str,
    checkpoints: Path,
    recording: Recording,
    strategy: AdaptiveStrategy = RULE,
    trainer: ReplayTrainer | None = None,
) -> SearchResult:
    plan, trainer = SearchPlan(strategy, trainer="replay"), trainer or ReplayTrainer(recording)
    return searched(url, trainer, plan, job=recording.identity, checkpoints=checkpoints)


def simulated(recording: Recording, strategy: Strategy = RULE) -> SimulatedSearch:
    """Plays the same search on the same draws, without a database."""
    stop = StopRule.of(strategy, recording.identity.recipe.learning_rate_boundaries)

    def run_at(percent: float, replicate: int) -> PlayedRun | None:
        run = recording.draw(percent, replicate)
        return None if run is None else played_run(run, stop)

    return search_with(strategy, run_at)


def completed(url: str) -> list[StoredTrial]:
    return [trial for trial in trials_of(url) if trial.state == "complete"]


class Watching(ReplayTrainer):
    """Remembers its runs and checkpoints; may be interrupted, or damage checkpoints."""

    def __init__(self, recording: Recording, most_runs: int = 1000, damages: bool = False) -> None:
        super().__init__(recording)
        self.specs: list[TrialSpec] = []
        self.left: list[Path] = []
        self._most_runs, self._damages = most_runs, damages

    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        if len(self.specs) == self._most_runs:
            raise KeyboardInterrupt
        self.specs.append(spec)
        record = super().train(spec, observer)
        for path in record.checkpoints.values():
            if self._damages:
                path.unlink() if len(self.left) % 2 else path.write_text("{")
            self.left.append(path)
        return record


@dataclass(frozen=True)
class Finished:
    """A search with default options."""

    url: str
    result: SearchResult
    trainer: Watching
    checkpoints: Path

    @property
    def trials(self) -> list[StoredTrial]:
        return completed(self.url)


@pytest.fixture(scope="module")
def finished(search_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A search with its knee at 12.5 %; read-only."""
    folder = tmp_path_factory.mktemp("finished")
    url = f"sqlite:///{shutil.copy(search_template, folder)}"
    trainer, checkpoints = Watching(RECORDING), folder / "checkpoints"
    return Finished(url, search(url, checkpoints, RECORDING, trainer=trainer), trainer, checkpoints)


def check_as_simulated(result: SearchResult, expected: SimulatedSearch) -> None:
    assert result.policy.strategy == "adaptive"
    assert result.policy.switch_percent == expected.switch_percent
    assert result.policy.promise.confidence == pytest.approx(expected.confidence, abs=1e-6)
    assert result.cost.completed_runs == expected.runs
    assert result.cost.paid_seconds == pytest.approx(expected.seconds, rel=0.03)


@pytest.mark.parametrize(
    "changes", [{"target_accuracy": TARGET}, {"share_prefix": False}, {"early_stop": False}]
)
def test_a_search_is_as_simulated(
    url: str, checkpoints: Path, finished: Finished, changes: dict[str, Any]
) -> None:
    check_as_simulated(finished.result, simulated(RECORDING))
    recording, strategy = step_recording(50.0), replace(RULE, **changes)
    result = search(url, checkpoints, recording, strategy)
    check_as_simulated(result, simulated(recording, strategy))
    by_id = {trial.trial_id: trial for trial in completed(url)}
    trials = list(by_id.values())
    assert any(t.switch_percent == 100 for t in trials) == (strategy.target_accuracy is None)
    assert any(t.parent_trial_id for t in trials) == strategy.share_prefix
    assert any(t.result.stopped_early for t in trials) == strategy.early_stop
    # Without a baseline a later switch point goes on from an earlier one.
    chained = [t for t in trials if t.fork_percent and t.fork_percent < t.switch_percent]
    assert bool(chained) == ("target_accuracy" in changes)
    for trial in chained:
        parent = by_id[trial.parent_trial_id]
        assert parent.replicate == trial.replicate
        assert parent.switch_percent >= trial.fork_percent
        assert trial.phases[0].protocol == "bsp"


@pytest.mark.parametrize("knee_percent", GRID)
def test_the_knee_is_found_where_it_is(knee_percent: float) -> None:
    answer = simulated(step_recording(knee_percent), RULE.among(GRID)).switch_percent
    # The last halving would save less than one run of it costs.
    assert answer == max(knee_percent, 6.25)


def test_candidates_pay_only_what_comes_after_their_fork(finished: Finished) -> None:
    (baseline,) = [t for t in finished.trials if t.switch_percent == 100 and t.replicate == 0]
    siblings = [t for t in finished.trials if t.switch_percent < 100 and t.replicate == 0]
    assert siblings
    for trial in siblings:
        assert trial.parent_trial_id == baseline.trial_id
        assert trial.fork_percent == trial.switch_percent
        assert [phase.protocol for phase in trial.phases] == ["asp"]
        inherited = FIRST_SECONDS * trial.switch_percent / 100
        assert trial.times.inherited_seconds == pytest.approx(inherited, rel=0.05)
    forks = [spec for spec in finished.trainer.specs if spec.fork_from]
    assert forks
    for spec in forks:
        told = [evaluation.worker_step for evaluation in spec.inherited_evaluations]
        # The baselines test every 100 of 3,000 worker-steps.
        assert told == list(range(100, int(30 * spec.switch_percent) + 1, 100))
    assert finished.trainer.left
    assert not any(path.exists() for path in finished.trainer.left)
    assert not any(finished.checkpoints.iterdir()), "the folder was named by the user, and stays"
    with open_database(finished.url, create=False) as database:
        assert TrialStore(database).checkpoints(finished.result.policy.study) == []


def test_runs_end_when_their_accuracy_is_known(finished: Finished) -> None:
    baseline = next(t for t in finished.trials if t.switch_percent == 100)
    assert baseline.result.stopped_early
    assert baseline.worker_steps < 0.75 * baseline.total_worker_steps
    candidates = [t for t in finished.trials if t.switch_percent < 100]
    assert not candidates[0].result.stopped_early, "the first shows what stopping changes"
    assert any(t.result.stopped_early for t in candidates[1:])
    # The policy speaks of whole trainings all the same.
    for told in (finished.result.policy.measured, finished.result.cost):
        assert told.baseline_seconds == pytest.approx(FIRST_SECONDS, rel=0.02)


def test_a_lost_checkpoint_costs_its_prefix_and_nothing_else(url: str, checkpoints: Path) -> None:
    careless = Watching(RECORDING, damages=True)
    assert search(url, checkpoints, RECORDING, trainer=careless).policy.switch_percent == 12.5
    assert all(trial.times.inherited_seconds == 0 for trial in completed(url))


def test_an_interrupted_search_goes_on_as_if_nothing_had_been(
    url: str, checkpoints: Path, finished: Finished
) -> None:
    with pytest.raises(KeyboardInterrupt):
        search(url, checkpoints, RECORDING, trainer=Watching(RECORDING, 2))
    assert len(completed(url)) == 2
    result = search(url, checkpoints, RECORDING)
    runs, undisturbed = (
        [(t.switch_percent, t.replicate, t.result.converged_accuracy) for t in trials]
        for trials in (completed(url), finished.trials)
    )
    assert runs == undisturbed
    assert result.policy.promise.confidence == finished.result.policy.promise.confidence
    assert result.cost.paid_seconds == pytest.approx(finished.result.cost.paid_seconds)
