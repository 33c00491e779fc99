"""Searches in one process: what they find, record and publish, and failures."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import optuna
import optuna.cli
import pytest
from generated_trainer import ASP_SECONDS, BSP_SECONDS, GeneratedTrainer, identity
from searches import SHORT, outcome, search, states_of, the_study, trials_of

from syncswitch.searcher.search.plan import SearchPlan, replicate_seed, study_name
from syncswitch.searcher.search.study import SearchStudy
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.database.inspection import driver_url
from syncswitch.storage.errors import FatalError, RetryableError
from syncswitch.storage.queries.search_costs import study_costs
from syncswitch.storage.queries.summaries import switch_point_statistics
from syncswitch.storage.records.flat import flat
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.trainers.trainer import Observer
from tests.failing import fails

pytestmark = pytest.mark.usefixtures("our_tables")


def test_finds_the_knee_and_says_what_it_cost(url: str) -> None:
    trainer = GeneratedTrainer()
    result = search(url, trainer)
    assert trainer.runs == [(p, r) for p in (100.0, 50.0, 25.0, 12.5) for r in (0, 1)]
    assert trainer.closed == 1
    # Replicates share their seeds over all switch points.
    seeds = {(row.replicate, row.seed) for row in trials_of(url)}
    assert seeds == {(n, replicate_seed(0, n)) for n in (0, 1)}
    assert replicate_seed(0, 0) != replicate_seed(1, 0)

    policy = result.policy
    assert (policy.switch_percent, policy.version, policy.strategy) == (12.5, 1, "paper")
    assert policy.target_accuracy == pytest.approx(0.95, abs=0.003)
    assert policy.measured.mean_accuracy == pytest.approx(0.95, abs=0.003)
    assert policy.measured.baseline_seconds == pytest.approx(BSP_SECONDS)
    seconds = {p: BSP_SECONDS * p / 100 + ASP_SECONDS * (1 - p / 100) for p in (100, 50, 25, 12.5)}
    assert policy.measured.training_seconds == pytest.approx(seconds[12.5])
    assert [e.replicate for e in policy.evidence] == [0, 1] * 4
    assert {"python", "optuna"} <= set(policy.software)

    assert result.cost.bsp_multiples == pytest.approx(2 * sum(seconds.values()) / BSP_SECONDS)
    assert not result.cost.baseline_is_estimated
    assert (result.cost.completed_runs, result.cost.failed_runs) == (8, 0)
    assert [s.accepted for s, _ in result.switch_points] == [True] * 4
    assert result.switch_points[1][1] == pytest.approx(seconds[50])


def test_the_same_command_answers_at_once_and_another_plan_is_the_next_version(url: str) -> None:
    first = search(url, None, SHORT)
    idle = GeneratedTrainer()
    assert search(url, idle, SHORT) == first
    assert idle.runs == []
    other = SearchPlan(PaperStrategy(halvings=1, runs=1))
    assert search(url, None, other).policy.version == 2
    names = {study_name(identity(), SHORT), study_name(identity(), other)}
    assert set(optuna.get_all_study_names(url)) == names


def test_a_given_target_needs_no_baseline_and_its_cost_is_estimated(url: str) -> None:
    trainer = GeneratedTrainer()
    result = search(url, trainer, SearchPlan(PaperStrategy(2, 1, target_accuracy=0.95)))
    assert trainer.runs == [(50.0, 0), (25.0, 0)]
    assert result.cost.baseline_is_estimated
    assert result.cost.baseline_seconds == pytest.approx(BSP_SECONDS)
    assert result.policy.measured.baseline_seconds is None
    assert result.policy.band == Band(0.95, 0.01)


def test_an_impossible_target_ends_with_the_first_protocol_alone(url: str) -> None:
    policy = search(url, None, SearchPlan(PaperStrategy(2, 1, target_accuracy=0.999))).policy
    found = (policy.switch_percent, policy.measured.mean_accuracy, policy.measured.training_seconds)
    assert found == (100, None, None)


def test_a_diverged_candidate_is_rejected_after_one_run(url: str) -> None:
    trainer = GeneratedTrainer(diverges_below_percent=30)
    result = search(url, trainer)
    assert trainer.runs.count((25.0, 0)) == 1
    assert (25.0, 1) not in trainer.runs
    assert result.policy.switch_percent == 37.5
    assert states_of(url) == {"COMPLETE": 7}
    assert [e.diverged for e in result.policy.evidence].count(True) == 1


def test_a_diverged_baseline_is_a_user_error_also_the_next_time(url: str) -> None:
    # One may be bad luck.
    for expected_runs in (2, 0):
        trainer = GeneratedTrainer(diverges_below_percent=101)
        with fails("baseline-diverged"):
            search(url, trainer)
        assert len(trainer.runs) == expected_runs


def test_passing_failures_are_run_again(url: str) -> None:
    trainer = GeneratedTrainer(failures=2)
    result = search(url, trainer, SHORT)
    assert trainer.runs[:3] == [(100.0, 0)] * 3
    assert trainer.closed == 3  # a new trainer after each failure
    assert (result.cost.completed_runs, result.cost.failed_runs) == (4, 2)
    assert states_of(url) == {"COMPLETE": 4, "FAIL": 2}
    undisturbed = search(f"{url}-other", None, SHORT)
    assert [e.converged_accuracy for e in result.policy.evidence] == [
        e.converged_accuracy for e in undisturbed.policy.evidence
    ]


def test_gives_up_after_three_failures_in_a_row(url: str) -> None:
    with pytest.raises(RetryableError, match=r"3 failures in a row.*the generated server was lost"):
        search(url, GeneratedTrainer(failures=100))
    assert states_of(url) == {"FAIL": 3}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), FatalError("broken"), ValueError("bug")])
def test_an_interruption_gives_the_run_back(url: str, error: BaseException) -> None:
    trainer = GeneratedTrainer(error=error)
    with pytest.raises(type(error)):
        search(url, trainer, SHORT)
    assert trainer.closed == 1
    assert states_of(url) == {"FAIL": 1}
    assert [(row.switch_percent, row.state) for row in trials_of(url)] == [(100.0, "failed")]
    assert search(url, None, SHORT).cost.completed_runs == 4


def test_what_is_no_accuracy_is_fatal_before_it_is_stored(url: str) -> None:
    class Negative(GeneratedTrainer):
        def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
            record = super().train(spec, observer)
            first, *others = record.evaluations
            return replace(record, evaluations=(replace(first, accuracy=-0.25), *others))

    for trainer, said in (
        (Negative(), r"accuracy is -0\.25, which is not from 0 to 1"),
        (GeneratedTrainer(plateau=float("nan")), "check the metric"),
    ):
        with fails("result-invalid", said):
            search(url, trainer)


@pytest.mark.parametrize(
    ("method", "locked"),
    [("claim", {1, 3, 5, 7, 9}), ("note_result", {1, 2}), ("complete", {1, 2})],
)
def test_a_database_that_is_locked_now_and_then_costs_neither_trainer_nor_training(
    url: str, monkeypatch: pytest.MonkeyPatch, method: str, locked: set[int]
) -> None:
    """Failures with steps between them are not in a row."""
    real, calls = getattr(SearchStudy, method), itertools.count(1)

    def call(*args: Any, **options: Any) -> Any:
        if next(calls) in locked:
            raise RetryableError("database is locked")
        return real(*args, **options)

    monkeypatch.setattr(SearchStudy, method, call)
    trainer = GeneratedTrainer(diverges_below_percent=30)
    result = search(url, trainer)
    assert len(trainer.runs) == len(set(trainer.runs)) == result.cost.completed_runs == 7
    assert (result.cost.failed_runs, states_of(url)) == (0, {"COMPLETE": 7})
    assert method != "claim" or trainer.closed == 1


def test_a_diverged_run_that_was_not_told_stays_diverged(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    plan = SearchPlan(PaperStrategy(3, 2, target_accuracy=0.95))
    with monkeypatch.context() as patch:
        patch.setattr("syncswitch.searcher.search.study.SearchStudy.note_result", killed)
        with pytest.raises(KeyboardInterrupt):
            search(url, GeneratedTrainer(diverges_below_percent=60), plan)
    trainer = GeneratedTrainer(diverges_below_percent=60)
    search(url, trainer, plan)
    assert (50.0, 1) not in trainer.runs
    told = the_study(url).get_trials()[0]
    assert (told.state.name, told.user_attrs["diverged"]) == ("COMPLETE", True)


def test_orphans_are_failed_after_a_while(url: str) -> None:
    name = study_name(identity(), SHORT)
    study = optuna.create_study(storage=url, study_name=name, direction="maximize")
    study.ask()
    assert search(url, None, SHORT).cost.completed_runs == 4
    assert states_of(url) == {"COMPLETE": 4, "FAIL": 1}


@pytest.mark.parametrize("percent", [30.0, 100.0])
def test_a_trial_that_somebody_enqueued_is_made_only_where_the_search_wants_it(
    url: str, percent: float
) -> None:
    name = study_name(identity(), SHORT)
    study = optuna.create_study(storage=url, study_name=name, direction="maximize")
    study.enqueue_trial({"switch_percent": percent})
    trainer = GeneratedTrainer()
    search(url, trainer, SHORT)
    assert trainer.runs == [(100.0, 0), (100.0, 1), (50.0, 0), (50.0, 1)]
    runs, _ = outcome(url)
    assert [(percent, replicate) for percent, replicate, *_ in runs] == sorted(trainer.runs)
    first = the_study(url).get_trials()[0]
    assert first.state.name == ("COMPLETE" if percent == 100 else "FAIL")


def test_optunas_command_line_lists_the_search_and_its_trials(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # The last switch point diverges, so that its repeat is not made; the first run is made again.
    policy = search(url, GeneratedTrainer(failures=1, diverges_below_percent=20)).policy

    def optuna_says(command: str, *arguments: str) -> Any:
        words = ["optuna", command, *arguments, "--storage", driver_url(url), "--format", "json"]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", words)
            assert optuna.cli.main() == 0
        return json.loads(capsys.readouterr().out)

    (study,) = optuna_says("studies")
    assert (study["name"], study["n_trials"]) == (policy.study, 8)
    assert study["direction"] == ["MAXIMIZE"]
    assert study["user_attrs"] == {
        "workload": "generated",
        "workers": 4,
        "protocols": "bsp,asp",
        "strategy": "paper",
        "policy_switch_percent": policy.switch_percent,
    }
    trials = optuna_says("trials", "--study-name", policy.study)
    assert [trial["state"] for trial in trials] == ["FAIL", *["COMPLETE"] * 7]
    names = ("replicate", "seed", "diverged", "training_seconds")
    for trial, row in zip(trials[1:], trials_of(url)[1:], strict=True):
        assert trial["params"]["switch_percent"] == row.switch_percent
        assert trial["value"]["converged_accuracy"] == row.result.converged_accuracy
        assert [trial["user_attrs"][name] for name in names] == [flat(row)[n] for n in names]


def test_a_policy_says_what_its_strategy_promised(url: str) -> None:
    strategy = AdaptiveStrategy(halvings=3, share_prefix=False, early_stop=False)
    policy = search(url, None, SearchPlan(strategy)).policy
    with open_database(url, create=False) as database:
        decided = SearchStudy(database, policy.study, strategy).read().plan
    assert (policy.switch_percent, policy.promise) == (decided.switch_percent, decided.promise)
    assert None not in flat(replace(policy.promise, reason="")).values()
    assert (policy.guarded, policy.min_kept_share) == (True, None)
    assert policy.measured.speed_up_low <= policy.measured.speed_up <= policy.measured.speed_up_high


def test_the_first_protocol_alone_has_a_reason_and_no_speed_up_to_be_sure_of(url: str) -> None:
    strategy = AdaptiveStrategy(halvings=3, share_prefix=False, early_stop=False)
    policy = search(url, GeneratedTrainer(knee_percent=100.0), SearchPlan(strategy)).policy
    assert (policy.switch_percent, policy.promise.reason is not None) == (100, True)
    gain = policy.measured
    assert (gain.speed_up, gain.speed_up_low, gain.speed_up_high) == (1, 1, 1)


@pytest.fixture
def database(url: str, our_tables: None) -> Iterator[Database]:
    with open_database(url, create=False) as opened:
        yield opened


@pytest.mark.parametrize(
    ("diverges_below_percent", "target_accuracy"), [(0.0, None), (30.0, None), (0.0, 0.95)]
)
def test_the_cost_is_that_of_the_search(
    database: Database, diverges_below_percent: float, target_accuracy: float | None
) -> None:
    trainer = GeneratedTrainer(
        failures=2, delay_seconds=0.01, diverges_below_percent=diverges_below_percent
    )
    strategy = PaperStrategy(3, 2, target_accuracy=target_accuracy)
    result = search(database.url, trainer, SearchPlan(strategy))
    (found,) = study_costs(database, study=result.policy.study)
    cost = found.cost
    assert result.cost == cost
    assert (cost.failed_runs, cost.running_runs) == (2, 0)
    assert cost.baseline_is_estimated == (target_accuracy is not None)
    assert cost.baseline_seconds == pytest.approx(100)
    assert cost.wall_seconds > 0
    assert (found.policy_version, found.strategy) == (result.policy.version, "paper")


def test_the_switch_points_are_those_of_the_closing_table(database: Database) -> None:
    result = search(database.url)
    settings = switch_point_statistics(database, study=result.policy.study)
    assert len(settings) == len(result.switch_points) == 4
    for one, (shown, seconds) in zip(settings, result.switch_points, strict=True):
        assert one.candidate_percent == shown.switch_percent
        assert (one.runs, one.diverged_runs) == (shown.runs, shown.diverged_runs)
        assert one.mean_accuracy == pytest.approx(shown.mean_accuracy, rel=1e-12)
        assert one.sd_accuracy == pytest.approx(shown.standard_deviation, rel=1e-9)
        assert one.mean_training_seconds == pytest.approx(seconds, rel=1e-12)
        assert one.target_accuracy == result.policy.target_accuracy
    chosen = [one for one in settings if one.candidate_percent == result.policy.switch_percent]
    assert chosen[0].speed_up == pytest.approx(result.policy.measured.speed_up, rel=1e-12)
