"""Searches in one process: what they find, record and publish, and failures."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import optuna
import pytest
from generated_trainer import ASP_SECONDS, BSP_SECONDS, GeneratedTrainer, identity
from searches import QUICK, SHORT, outcome, search, states_of, the_study

from syncswitch.searcher.search.plan import SearchPlan, replicate_seed, study_name
from syncswitch.searcher.search.search import Claim, Search, SearchStudy
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import FatalError, RetryableError, UserError
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.storage.trials.store import TrialStore
from syncswitch.trainers.trainer import Observer

pytestmark = pytest.mark.usefixtures("our_tables")


def rows_of(url: str) -> list[tuple[float, int, str]]:
    with open_database(url, create=False) as database:
        return [
            (row.switch_percent, row.replicate, row.state) for row in TrialStore(database).trials()
        ]


def lock_out(method: str, times: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lets the first calls of a method of the study fail; returns the failures to come."""
    left = list(range(times))
    real = getattr(SearchStudy, method)

    def call(*args: Any, **kwargs: Any) -> Any:
        if left:
            left.pop()
            raise RetryableError("database is locked")
        return real(*args, **kwargs)

    monkeypatch.setattr(SearchStudy, method, call)
    return left


def test_finds_the_knee_and_says_what_it_cost(url: str) -> None:
    trainer = GeneratedTrainer()
    result = search(url, trainer)
    assert trainer.runs == [(p, r) for p in (100.0, 50.0, 25.0, 12.5) for r in (0, 1)]
    assert trainer.closed == 1

    policy = result.policy
    assert (policy.switch_percent, policy.version, policy.strategy) == (12.5, 1, "paper")
    assert policy.target_accuracy == pytest.approx(0.95, abs=0.003)
    assert policy.mean_accuracy == pytest.approx(0.95, abs=0.003)
    assert policy.baseline_seconds == pytest.approx(BSP_SECONDS)
    seconds = {p: BSP_SECONDS * p / 100 + ASP_SECONDS * (1 - p / 100) for p in (100, 50, 25, 12.5)}
    assert policy.training_seconds == pytest.approx(seconds[12.5])
    assert [e.replicate for e in policy.evidence] == [0, 1] * 4
    assert {"python", "optuna"} <= set(policy.software)

    assert result.cost.bsp_multiples == pytest.approx(2 * sum(seconds.values()) / BSP_SECONDS)
    assert not result.cost.baseline_is_estimated
    assert (result.cost.completed_runs, result.cost.failed_runs) == (8, 0)
    assert [s.summary.accepted for s in result.switch_points] == [True] * 4
    assert result.switch_points[1].training_seconds == pytest.approx(seconds[50])


def test_the_same_command_answers_at_once(url: str) -> None:
    first = search(url, None, SHORT)
    idle = GeneratedTrainer()
    assert search(url, idle, SHORT) == first
    assert idle.runs == []
    # The name is only for people: it is no part of what the job is, but of the study's name.
    assert first.policy.study.startswith("generated-")


def test_another_plan_is_another_study_and_the_next_version(url: str) -> None:
    search(url, None, SHORT)
    other = SearchPlan(PaperStrategy(settings=1, runs=1))
    assert search(url, None, other).policy.version == 2
    names = {study_name(identity(), SHORT), study_name(identity(), other)}
    assert set(optuna.get_all_study_names(url)) == names


def test_replicates_share_their_seeds_over_all_switch_points(url: str) -> None:
    search(url, None, SHORT)
    with open_database(url, create=False) as database:
        rows = TrialStore(database).trials()
    assert {(row.replicate, row.seed) for row in rows} == {
        (0, replicate_seed(0, 0)),
        (1, replicate_seed(0, 1)),
    }
    assert replicate_seed(0, 0) != replicate_seed(1, 0)


def test_a_given_target_needs_no_baseline_and_its_cost_is_estimated(url: str) -> None:
    trainer = GeneratedTrainer()
    result = search(url, trainer, SearchPlan(PaperStrategy(2, 1, target_accuracy=0.95)))
    assert trainer.runs == [(50.0, 0), (25.0, 0)]
    assert result.cost.baseline_is_estimated
    assert result.cost.baseline_seconds == pytest.approx(BSP_SECONDS)
    assert result.policy.baseline_seconds is None
    assert result.policy.target_accuracy == 0.95


def test_an_impossible_target_ends_with_the_first_protocol_alone(url: str) -> None:
    result = search(url, None, SearchPlan(PaperStrategy(2, 1, target_accuracy=0.999)))
    assert result.policy.switch_percent == 100
    assert result.policy.mean_accuracy is None
    assert result.policy.training_seconds is None


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
        with pytest.raises(UserError, match="learning rate is too high"):
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
    assert rows_of(url) == [(100.0, 0, "failed")]
    assert search(url, None, SHORT).cost.completed_runs == 4


def test_an_accuracy_that_is_none_is_fatal(url: str) -> None:
    with pytest.raises(FatalError, match="check the metric"):
        search(url, GeneratedTrainer(plateau=float("nan")))


def test_a_test_that_is_no_accuracy_is_fatal_before_it_is_stored(url: str) -> None:
    class Negative(GeneratedTrainer):
        def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
            record = super().train(spec, observer)
            first, *others = record.evaluations
            return replace(record, evaluations=(replace(first, accuracy=-0.25), *others))

    with pytest.raises(FatalError, match=r"accuracy -0\.25, which is not from 0 to 1"):
        search(url, Negative())


@pytest.mark.parametrize("write", ["note_result", "complete"])
def test_a_locked_database_throws_no_finished_training_away(
    url: str, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    locked = lock_out(write, 2, monkeypatch)
    trainer = GeneratedTrainer(diverges_below_percent=30)
    result = search(url, trainer)
    assert locked == []
    assert len(trainer.runs) == len(set(trainer.runs)) == result.cost.completed_runs == 7
    assert result.cost.failed_runs == 0
    assert states_of(url) == {"COMPLETE": 7}


def test_a_locked_database_costs_no_trainer(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lock_out("claim", 2, monkeypatch)
    trainer = GeneratedTrainer()
    opened: list[int] = []

    def open_trainer() -> GeneratedTrainer:
        opened.append(1)
        return trainer

    with open_database(url, create=True) as database:
        Search(database, identity(), SHORT, open_trainer, patience=QUICK).run()
    assert (len(opened), trainer.closed) == (1, 1)


def test_failures_with_steps_between_them_are_not_in_a_row(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = SearchStudy.claim
    claims = itertools.count()

    def claim(*args: Any, **options: Any) -> Claim | None:
        if next(claims) % 2:
            raise RetryableError("database is locked")
        return None if next(idle) < 4 else real(*args, **options)

    idle = itertools.count()
    monkeypatch.setattr(SearchStudy, "claim", claim)
    assert search(url, None, SHORT).cost.completed_runs == 4


def test_a_diverged_run_that_was_not_told_stays_diverged(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    plan = SearchPlan(PaperStrategy(3, 2, target_accuracy=0.95))
    with monkeypatch.context() as patch:
        patch.setattr("syncswitch.searcher.search.search.SearchStudy.note_result", killed)
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


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        (PaperStrategy(settings=0), "--settings is 0"),
        (PaperStrategy(runs=0), "--runs is 0"),
        (PaperStrategy(threshold=0.0), "--threshold is 0.0"),
        (PaperStrategy(threshold=float("nan")), "--threshold is nan"),
        (PaperStrategy(target_accuracy=1.5), "--target-accuracy is 1.5"),
    ],
)
def test_impossible_plans_are_refused_before_anything_is_written(
    strategy: PaperStrategy, said: str
) -> None:
    with pytest.raises(UserError, match=said):
        SearchPlan(strategy).check()
    with pytest.raises(UserError, match="--seed is -1"):
        SearchPlan(base_seed=-1).check()
