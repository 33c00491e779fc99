"""The adaptive strategy in the real loop, with its forks and its stops, on recorded runs."""

from __future__ import annotations

import functools
import random
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from step_recording import FIRST_SECONDS, GRID, TARGET, step_recording

from syncswitch.searcher.loop.search import Search
from syncswitch.searcher.results.result import SearchResult
from syncswitch.searcher.simulation.simulator import (
    PlayedRun,
    SimulatedSearch,
    played_run,
    search_with,
)
from syncswitch.searcher.strategies.adaptive import AdaptiveStrategy
from syncswitch.searcher.strategies.early_stopping import StopRule
from syncswitch.searcher.study.plan import SearchPlan
from syncswitch.searcher.study.repair import Patience
from syncswitch.searcher.study.study import SearchStudy
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import RetryableError
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Owner, StoredTrial
from syncswitch.trainers.replay.recording import Recording
from syncswitch.trainers.replay.trainer import ReplayTrainer
from syncswitch.trainers.trainer import Observer

pytestmark = pytest.mark.usefixtures("our_tables")

QUICK = Patience(poll_seconds=0.01, retry_seconds=0.0, stale_seconds=0.5)
MeanStrategy = functools.partial(AdaptiveStrategy, criterion="mean")
RULE = MeanStrategy()


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


def simulated(recording: Recording, strategy: AdaptiveStrategy = RULE) -> SimulatedSearch:
    """The same search on the same draws, without a database."""
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


@pytest.mark.parametrize("knee_percent", GRID)
def test_it_finds_the_knee_as_the_simulation_says(
    url: str, checkpoints: Path, knee_percent: float
) -> None:
    recording = step_recording(knee_percent)
    result = search(url, checkpoints, recording)
    expected = simulated(recording)
    assert result.policy.switch_percent == expected.switch_percent == knee_percent
    assert result.policy.confidence == pytest.approx(expected.confidence, abs=1e-6)
    assert result.cost.trials == expected.runs
    assert result.cost.paid_seconds == pytest.approx(expected.seconds, rel=0.03)
    assert result.policy.strategy == "adaptive"


def test_a_known_target_needs_no_baseline(url: str, checkpoints: Path) -> None:
    recording = step_recording(12.5)
    strategy = MeanStrategy(target_accuracy=TARGET)
    result = search(url, checkpoints, recording, strategy)
    assert result.policy.switch_percent == 12.5
    assert result.cost.trials == simulated(recording, strategy).runs
    assert all(trial.switch_percent < 100 for trial in completed(url))


def test_candidates_pay_only_what_comes_after_their_fork(url: str, checkpoints: Path) -> None:
    search(url, checkpoints, step_recording(12.5))
    trials = completed(url)
    (baseline,) = [t for t in trials if t.switch_percent == 100 and t.replicate == 0]
    siblings = [t for t in trials if t.switch_percent < 100 and t.replicate == 0]
    assert siblings
    for trial in siblings:
        assert trial.parent_trial_id == baseline.trial_id
        assert trial.fork_percent == trial.switch_percent
        assert [phase.protocol for phase in trial.phases] == ["asp"]
        inherited = FIRST_SECONDS * trial.switch_percent / 100
        assert trial.inherited_seconds == pytest.approx(inherited, rel=0.05)


def test_a_fork_is_told_the_tests_that_it_inherits(url: str, checkpoints: Path) -> None:
    recording = step_recording(12.5)
    seen = []

    class Looking(ReplayTrainer):
        def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
            told = [evaluation.worker_step for evaluation in spec.inherited_evaluations]
            seen.append((spec.fork_from is not None, spec.switch_percent, told))
            return super().train(spec, observer)

    search(url, checkpoints, recording, trainer=Looking(recording))
    # The baselines test every 100 of 3,000 worker-steps.
    assert seen == [
        (is_fork, percent, list(range(100, int(30 * percent) + 1, 100)) if is_fork else [])
        for is_fork, percent, _ in seen
    ]
    assert any(is_fork and told for is_fork, _, told in seen)


def test_without_a_baseline_a_later_switch_point_goes_on_from_an_earlier_one(
    url: str, checkpoints: Path
) -> None:
    search(url, checkpoints, step_recording(50.0), MeanStrategy(target_accuracy=TARGET))
    by_id = {trial.trial_id: trial for trial in completed(url)}
    chained = [t for t in by_id.values() if t.fork_percent and t.fork_percent < t.switch_percent]
    assert chained
    for trial in chained:
        assert trial.parent_trial_id is not None
        parent = by_id[trial.parent_trial_id]
        assert parent.replicate == trial.replicate
        assert parent.switch_percent >= (trial.fork_percent or 0)
        assert trial.phases[0].protocol == "bsp"


def test_runs_end_when_their_accuracy_is_known(url: str, checkpoints: Path) -> None:
    result = search(url, checkpoints, step_recording(12.5))
    trials = completed(url)
    baseline = next(t for t in trials if t.switch_percent == 100)
    assert baseline.stopped_early
    assert baseline.worker_steps < 0.75 * baseline.total_worker_steps
    candidates = [t for t in trials if t.switch_percent < 100]
    assert not candidates[0].stopped_early, "the first shows what stopping changes"
    assert any(t.stopped_early for t in candidates[1:])
    # The policy speaks of whole trainings all the same.
    assert result.policy.baseline_seconds == pytest.approx(FIRST_SECONDS, rel=0.02)
    assert result.cost.baseline_seconds == pytest.approx(FIRST_SECONDS, rel=0.02)


@pytest.mark.parametrize("part", ["share_prefix", "early_stop"])
def test_each_part_can_be_switched_off(url: str, checkpoints: Path, part: str) -> None:
    strategy = replace(RULE, **{part: False})
    result = search(url, checkpoints, step_recording(12.5), strategy)
    trials = completed(url)
    assert result.policy.switch_percent == 12.5
    assert any(t.parent_trial_id for t in trials) == (part != "share_prefix")
    assert any(t.stopped_early for t in trials) == (part != "early_stop")


def test_diverged_switch_points_are_rejected(url: str, checkpoints: Path) -> None:
    recording = step_recording(12.5, diverges_below_percent=10.0)
    assert search(url, checkpoints, recording).policy.switch_percent == 12.5


def test_a_budget_is_kept_and_still_answered(url: str, checkpoints: Path) -> None:
    result = search(url, checkpoints, step_recording(12.5), MeanStrategy(budget=1.2))
    assert result.cost.bsp_multiples is not None
    assert result.cost.bsp_multiples <= 1.25
    assert result.policy.confidence is not None


def test_checkpoints_are_gone_when_the_search_is_done(url: str, checkpoints: Path) -> None:
    recording = step_recording(12.5)
    seen: set[Path] = set()

    class Looking(ReplayTrainer):
        def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
            record = super().train(spec, observer)
            seen.update(record.checkpoints.values())
            return record

    result = search(url, checkpoints, recording, trainer=Looking(recording))
    assert seen
    assert not any(path.exists() for path in seen)
    assert not any(checkpoints.iterdir()), "the folder was named by the user, and stays"
    with open_database(url, create=False) as database:
        assert TrialStore(database).checkpoints(result.policy.study) == []


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_lost_checkpoint_costs_its_prefix_and_nothing_else(
    url: str, checkpoints: Path, damage: str
) -> None:
    recording = step_recording(12.5)

    class Careless(ReplayTrainer):
        def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
            record = super().train(spec, observer)
            for path in record.checkpoints.values():
                path.unlink() if damage == "missing" else path.write_text("{")
            return record

    result = search(url, checkpoints, recording, trainer=Careless(recording))
    assert result.policy.switch_percent == 12.5
    assert all(trial.inherited_seconds == 0 for trial in completed(url))


@pytest.mark.parametrize("runs_before", [0, 2])
def test_an_interrupted_search_goes_on_as_if_nothing_had_been(
    url: str, checkpoints: Path, tmp_path: Path, runs_before: int
) -> None:
    recording = step_recording(12.5)

    class Interrupted(ReplayTrainer):
        left = runs_before

        def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            return super().train(spec, observer)

    with pytest.raises(KeyboardInterrupt):
        search(url, checkpoints, recording, trainer=Interrupted(recording))
    assert len(completed(url)) == runs_before
    whole = f"sqlite:///{tmp_path}/whole.db"
    undisturbed = search(whole, tmp_path / "other", recording)
    result = search(url, checkpoints, recording)
    assert runs_of(url) == runs_of(whole)
    assert result.policy.confidence == undisturbed.policy.confidence
    assert result.cost.paid_seconds == pytest.approx(undisturbed.cost.paid_seconds)


def test_a_run_that_could_not_be_told_is_told_with_all_that_it_measured(
    url: str, checkpoints: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = step_recording(12.5)
    lost = [True]
    real = SearchStudy.note_result

    def note_result(self: SearchStudy, *args: object) -> None:
        if lost:
            lost.pop()
            raise RetryableError("database is locked")
        real(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(SearchStudy, "note_result", note_result)
    search(url, checkpoints, recording)
    whole = f"sqlite:///{tmp_path}/whole.db"
    search(whole, tmp_path / "other", recording)
    assert not lost
    assert _attributes(url) == _attributes(whole)


def _attributes(url: str) -> list[dict[str, object]]:
    (name,) = optuna.get_all_study_names(url)
    trials = optuna.load_study(study_name=name, storage=url).get_trials()
    return [{k: v for k, v in t.user_attrs.items() if k != "owner"} for t in trials]


def test_a_warm_start_keeps_what_it_started_from(url: str, checkpoints: Path) -> None:
    recording = step_recording(6.25)
    search(url, checkpoints, recording)
    other = replace(recording.identity, learning_rate=0.2)
    related = replace(recording, identity=other)

    def warm() -> SearchResult:
        with open_database(url, create=True) as database:
            plan = SearchPlan(RULE, trainer="replay", warm_start=True)
            return Search(
                database,
                other,
                plan,
                lambda: ReplayTrainer(related),
                patience=QUICK,
                checkpoints=checkpoints,
            ).run()

    result = warm()
    assert result.policy.switch_percent == 6.25
    with open_database(url, create=False) as database:
        searches = {info.study: info for info in TrialStore(database).searches()}
    assert searches[result.policy.study].options["related"] == [6.25]
    # Now there are two related policies; the search goes on from what it began with.
    assert warm() == result


@pytest.mark.parametrize("lost", [0.015, 0.03, 0.06, 0.3])
@pytest.mark.parametrize("below_percent", [25.0, 100.0])
def test_a_loss_that_comes_in_one_step_is_not_explained_away(
    lost: float, below_percent: float
) -> None:
    def run_at(percent: float, replicate: int) -> PlayedRun:
        noise = random.Random(f"{percent} {replicate}").gauss(0, 0.002)
        accuracy = TARGET + noise - (lost if percent < below_percent else 0.0)
        return PlayedRun(accuracy, False, percent + 0.3 * (100 - percent), percent)

    assert search_with(RULE, run_at).switch_percent == below_percent


def test_the_answer_outlasts_a_baseline_that_diverges_afterwards(
    url: str, checkpoints: Path
) -> None:
    recording = step_recording(12.5)
    first = search(url, checkpoints, recording)
    with open_database(url, create=False) as database:
        study = SearchStudy.open(database.url, first.policy.study, RULE, 0)
        trial = optuna.load_study(study_name=first.policy.study, storage=url).ask()
        trial.suggest_float("switch_percent", 100.0, 100.0)
        study.note_result(trial.number, True, 1.0)
        study.complete(trial.number, 0.1)
        spec = TrialSpec(recording.identity, 100.0, 0, 1)
        store = TrialStore(database)
        store.begin(first.policy.study, trial.number, spec, Owner.current())
        run = recording.draw(100.0, 1)
        assert run is not None
        record = ReplayTrainer(recording).train(spec)
        store.complete(first.policy.study, trial.number, replace(record, diverged=True))
    assert search(url, checkpoints, recording).policy == first.policy


def test_too_small_a_budget_answers_only_what_was_measured(url: str, checkpoints: Path) -> None:
    result = search(url, checkpoints, step_recording(12.5), MeanStrategy(budget=0.3))
    assert result.policy.switch_percent == 100.0
