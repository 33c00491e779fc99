"""The adaptive strategy in a real search on recorded runs, with forks and early stops."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import optuna
import pytest
from step_recording import FIRST_SECONDS, GRID, TARGET, step_recording

from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.search.search import Patience, Search, SearchResult, SearchStudy
from syncswitch.searcher.simulation.simulator import (
    PlayedRun,
    SimulatedSearch,
    played_run,
    search_with,
)
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.early_stopping import StopRule
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Owner, StoredTrial
from syncswitch.trainers.replay.recording import Recording
from syncswitch.trainers.replay.trainer import ReplayTrainer
from syncswitch.trainers.trainer import Observer

pytestmark = pytest.mark.usefixtures("our_tables")

QUICK = Patience(poll_seconds=0.01, retry_seconds=0.0, stale_seconds=0.5)
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
    with open_database(url, create=True) as database:
        return Search(
            database,
            recording.identity,
            SearchPlan(strategy, trainer="replay"),
            lambda: trainer or ReplayTrainer(recording),
            patience=QUICK,
            checkpoints=checkpoints,
        ).run()


def simulated(recording: Recording, strategy: Strategy = RULE) -> SimulatedSearch:
    """Plays the same search on the same draws, without a database."""
    stop = StopRule.of(strategy, recording.identity.learning_rate_boundaries)

    def run_at(percent: float, replicate: int) -> PlayedRun | None:
        run = recording.draw(percent, replicate)
        return None if run is None else played_run(run, stop)

    return search_with(strategy, run_at)


def completed(url: str) -> list[StoredTrial]:
    with open_database(url, create=False) as database:
        return [t for t in TrialStore(database).trials() if t.state == "complete"]


def runs_of(url: str) -> list[tuple[float, int, float | None]]:
    return [(t.switch_percent, t.replicate, t.converged_accuracy) for t in completed(url)]


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

    def copy(self, url: str) -> None:
        """Copies the database to another one."""
        files = (sqlite3.connect(one.removeprefix("sqlite:///")) for one in (self.url, url))
        with ExitStack() as stack:
            source, target = (stack.enter_context(closing(file)) for file in files)
            source.backup(target)


@pytest.fixture(scope="module")
def finished(search_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A search with its knee at 12.5 %; read-only."""
    folder = tmp_path_factory.mktemp("finished")
    url = f"sqlite:///{shutil.copy(search_template, folder)}"
    trainer, checkpoints = Watching(RECORDING), folder / "checkpoints"
    return Finished(url, search(url, checkpoints, RECORDING, trainer=trainer), trainer, checkpoints)


def check_as_simulated(recording: Recording, result: SearchResult) -> None:
    expected = simulated(recording)
    assert result.policy.switch_percent == expected.switch_percent
    assert result.policy.confidence == pytest.approx(expected.confidence, abs=1e-6)
    assert result.cost.completed_runs == expected.runs
    assert result.cost.paid_seconds == pytest.approx(expected.seconds, rel=0.03)
    assert result.policy.strategy == "adaptive"


@pytest.mark.parametrize("knee_percent", GRID)
def test_the_knee_is_found_where_it_is(knee_percent: float) -> None:
    answer = simulated(step_recording(knee_percent), RULE.among(GRID)).switch_percent
    # The last halving would save less than one run of it costs.
    assert answer == max(knee_percent, 6.25)


def test_the_search_is_as_simulated(finished: Finished, url: str, checkpoints: Path) -> None:
    check_as_simulated(RECORDING, finished.result)
    other = step_recording(50.0)
    check_as_simulated(other, search(url, checkpoints, other))


def test_candidates_pay_only_what_comes_after_their_fork(finished: Finished) -> None:
    (baseline,) = [t for t in finished.trials if t.switch_percent == 100 and t.replicate == 0]
    siblings = [t for t in finished.trials if t.switch_percent < 100 and t.replicate == 0]
    assert siblings
    for trial in siblings:
        assert trial.parent_trial_id == baseline.trial_id
        assert trial.fork_percent == trial.switch_percent
        assert [phase.protocol for phase in trial.phases] == ["asp"]
        inherited = FIRST_SECONDS * trial.switch_percent / 100
        assert trial.inherited_seconds == pytest.approx(inherited, rel=0.05)


def test_a_fork_is_told_the_tests_that_it_inherits(finished: Finished) -> None:
    forks = 0
    for spec in finished.trainer.specs:
        told = [evaluation.worker_step for evaluation in spec.inherited_evaluations]
        # The baselines test every 100 of 3,000 worker-steps.
        before = range(100, int(30 * spec.switch_percent) + 1, 100)
        assert told == (list(before) if spec.fork_from else [])
        forks += bool(told)
    assert forks


def test_runs_end_when_their_accuracy_is_known(finished: Finished) -> None:
    baseline = next(t for t in finished.trials if t.switch_percent == 100)
    assert baseline.stopped_early
    assert baseline.worker_steps < 0.75 * baseline.total_worker_steps
    candidates = [t for t in finished.trials if t.switch_percent < 100]
    assert not candidates[0].stopped_early, "the first shows what stopping changes"
    assert any(t.stopped_early for t in candidates[1:])
    # The policy speaks of whole trainings all the same.
    assert finished.result.policy.baseline_seconds == pytest.approx(FIRST_SECONDS, rel=0.02)
    assert finished.result.cost.baseline_seconds == pytest.approx(FIRST_SECONDS, rel=0.02)


def test_checkpoints_are_gone_when_the_search_is_done(finished: Finished) -> None:
    assert finished.trainer.left
    assert not any(path.exists() for path in finished.trainer.left)
    assert not any(finished.checkpoints.iterdir()), "the folder was named by the user, and stays"
    with open_database(finished.url, create=False) as database:
        assert TrialStore(database).checkpoints(finished.result.policy.study) == []


def test_a_lost_checkpoint_costs_its_prefix_and_nothing_else(url: str, checkpoints: Path) -> None:
    careless = Watching(RECORDING, damages=True)
    assert search(url, checkpoints, RECORDING, trainer=careless).policy.switch_percent == 12.5
    assert all(trial.inherited_seconds == 0 for trial in completed(url))


@pytest.mark.parametrize("runs_before", [0, 2])
def test_an_interrupted_search_goes_on_as_if_nothing_had_been(
    url: str, checkpoints: Path, finished: Finished, runs_before: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        search(url, checkpoints, RECORDING, trainer=Watching(RECORDING, runs_before))
    assert len(completed(url)) == runs_before
    result = search(url, checkpoints, RECORDING)
    assert runs_of(url) == runs_of(finished.url)
    assert result.policy.confidence == finished.result.policy.confidence
    assert result.cost.paid_seconds == pytest.approx(finished.result.cost.paid_seconds)


def test_the_answer_outlasts_a_baseline_that_diverges_afterwards(
    url: str, checkpoints: Path, finished: Finished
) -> None:
    finished.copy(url)
    name = finished.result.policy.study
    with open_database(url, create=False) as database:
        study = SearchStudy(database, name, RULE)
        trial = optuna.load_study(study_name=name, storage=url).ask()
        trial.suggest_float("switch_percent", 100.0, 100.0)
        study.note_result(trial.number, True, 1.0)
        study.complete(trial.number, 0.1)
        spec = TrialSpec(RECORDING.identity, 100.0, 0, 1)
        store = TrialStore(database)
        store.begin(name, trial.number, spec, Owner.current())
        record = ReplayTrainer(RECORDING).train(spec)
        store.complete(name, trial.number, replace(record, diverged=True))
    assert search(url, checkpoints, RECORDING).policy == finished.result.policy


def test_a_known_target_needs_no_baseline(url: str, checkpoints: Path) -> None:
    strategy = AdaptiveStrategy(target_accuracy=TARGET)
    result = search(url, checkpoints, RECORDING, strategy)
    assert result.policy.switch_percent == 12.5
    assert result.cost.completed_runs == simulated(RECORDING, strategy).runs
    assert all(trial.switch_percent < 100 for trial in completed(url))


def test_without_a_baseline_a_later_switch_point_goes_on_from_an_earlier_one(
    url: str, checkpoints: Path
) -> None:
    search(url, checkpoints, step_recording(50.0), AdaptiveStrategy(target_accuracy=TARGET))
    by_id = {trial.trial_id: trial for trial in completed(url)}
    chained = [t for t in by_id.values() if t.fork_percent and t.fork_percent < t.switch_percent]
    assert chained
    for trial in chained:
        assert trial.parent_trial_id is not None
        parent = by_id[trial.parent_trial_id]
        assert parent.replicate == trial.replicate
        assert parent.switch_percent >= (trial.fork_percent or 0)
        assert trial.phases[0].protocol == "bsp"


@pytest.mark.parametrize("part", ["share_prefix", "early_stop"])
def test_each_part_can_be_switched_off(url: str, checkpoints: Path, part: str) -> None:
    strategy = replace(RULE, **{part: False})
    result = search(url, checkpoints, RECORDING, strategy)
    trials = completed(url)
    assert result.policy.switch_percent == 12.5
    assert any(t.parent_trial_id for t in trials) == (part != "share_prefix")
    assert any(t.stopped_early for t in trials) == (part != "early_stop")


def test_diverged_switch_points_are_rejected(url: str, checkpoints: Path) -> None:
    recording = step_recording(12.5, diverges_below_percent=10.0)
    assert search(url, checkpoints, recording).policy.switch_percent == 12.5


def test_a_budget_is_kept_and_still_answered(url: str, checkpoints: Path) -> None:
    result = search(url, checkpoints, RECORDING, AdaptiveStrategy(budget=1.2))
    assert result.cost.bsp_multiples is not None
    assert result.cost.bsp_multiples <= 1.25
    assert result.policy.confidence is not None


def test_too_small_a_budget_answers_only_what_was_measured(url: str, checkpoints: Path) -> None:
    result = search(url, checkpoints, RECORDING, AdaptiveStrategy(budget=0.3))
    assert result.policy.switch_percent == 100.0
