"""What a report reads: the right job, search and runs, and what follows from their numbers."""

from __future__ import annotations

import math
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from generated_trainer import identity
from stored import (
    BASELINE_SECONDS,
    FINISHED,
    STUDY,
    Made,
    add_imported,
    add_search,
    add_use,
    publish,
    search_info,
)

from syncswitch.cli.search.main import main
from syncswitch.cli.words import OPTION_WORDS
from syncswitch.searcher.report.data import load_report
from syncswitch.searcher.report.page import (
    accuracy_sentence,
    headline,
    job_facts,
    key_figures,
    path_sentence,
    sections_of,
    time_sentence,
    version_rows,
)
from syncswitch.searcher.speed_up import SpeedUp
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.records.guard import FailedSwitch, GuardOutcome
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.trials.values import Owner
from syncswitch.storage.trials.workloads import register_workload
from tests.failing import fails
from tests.wording import Said

Row = Mapping[str, Any]
DEAD = Owner(socket.gethostname(), 1, 0.0)


def test_a_finished_search_is_read_with_its_numbers(any_url: str, our_tables: None) -> None:
    with open_database(any_url, create=False) as database:
        publish(database, add_search(database))
    data = load_report(any_url, "generated")
    assert data.is_found_here
    assert data.trouble is None
    assert data.acceptance.goal.least_accuracy == pytest.approx(0.94)
    # 2 times 100 s of BSP alone, 2 times 70 s, and 55 s until the last one blew up; 30 s saved.
    assert data.cost.paid_seconds == pytest.approx(395)
    assert data.recurrences_to_pay_back == pytest.approx(395 / 30)
    assert [one.percent for one in data.switch_points] == [100, 50, 25]
    assert [run.trial.end for run in data.runs] == ["whole"] * 4 + ["diverged"]
    assert data.software == {"syncswitch": "0"}
    said = CliRunner().invoke(main, ["policy", "lookup", "generated", "--storage", any_url])
    assert headline(data, OPTION_WORDS) == said.stdout.splitlines()[0]


def test_the_path_says_what_was_known_after_each_run(database: Database) -> None:
    info = add_search(database)
    data = load_report(database, "generated")
    assert [
        (step.run.switch_percent, step.accepted, step.lower_percent, step.upper_percent)
        for step in data.path
    ] == [
        (100, None, 0, 100),
        (100, True, 0, 100),
        (50, None, 0, 100),
        (50, True, 0, 50),
        (25, False, 25, 50),
    ]
    assert all(step.is_needed for step in data.path)
    assert "could still lie above 25 % and at most 50 %." in path_sentence(data)
    publish(database, info)
    said = path_sentence(load_report(database, "generated"))
    assert said.endswith("The answer was above 25 % and at most 50 %.")


def test_runs_in_advance_come_last(database: Database) -> None:
    in_vain = (Made(12.5, 0.9, speculative=True), Made(37.5, end="cancelled", reached=0.5))
    publish(database, add_search(database, (*FINISHED, *in_vain), halvings=1))
    data = load_report(database, "generated")
    assert [step.run.trial_number for step in data.path if not step.is_needed] == [4, 5]
    assert path_sentence(data).startswith("The search asked for 4 runs, and for 2 speculative runs")


@pytest.mark.parametrize(
    ("runs", "owner", "words"),
    [
        (FINISHED[:3], None, "is under way (1 running): after 3 runs"),
        (FINISHED[:3], DEAD, "was stopped and can be continued: after 3 runs"),
        ((), None, "is under way (1 running); no run of it is complete yet"),
    ],
)
def test_an_unfinished_search_says_how_far_it_is(
    database: Database, runs: Sequence[Made], owner: Owner | None, words: str
) -> None:
    add_search(database, (*runs, Made(50.0, end="running")), owner=owner)
    data = load_report(database, "generated")
    assert (data.policy, data.recurrences_to_pay_back) == (None, None)
    assert len(data.compared) == len(runs)
    assert words in headline(data, OPTION_WORDS)


@pytest.mark.parametrize(
    ("runs", "target", "stated", "seconds", "is_estimated"),
    [
        (FINISHED, None, BASELINE_SECONDS, BASELINE_SECONDS, False),
        (FINISHED, None, 80.0, 80.0, False),
        (FINISHED[2:], 0.95, None, BASELINE_SECONDS, True),
    ],
    ids=["the runs'", "the policy's", "without first protocol alone"],
)
def test_the_whole_page_has_one_baseline(
    database: Database, runs: Any, target: Any, stated: Any, seconds: float, is_estimated: bool
) -> None:
    info = add_search(database, runs, target_accuracy=target)
    publish(database, info, baseline_seconds=stated)
    data = load_report(database, "generated")
    assert data.baseline_seconds == pytest.approx(seconds)
    assert data.baseline_is_estimated == is_estimated
    assert data.speed_up == SpeedUp(pytest.approx(seconds / 70))
    about = "about " if is_estimated else ""
    expected = f"BSP alone takes {about}{seconds:.1f} s, a training with the policy 70.0 s."
    assert time_sentence(data) == expected


def test_a_baseline_that_diverged_is_the_trouble(database: Database) -> None:
    add_search(database, (Made(100.0, 0.1, diverged=True),) * 3)
    data = load_report(database, "generated")
    assert data.trouble is not None
    assert "lower the learning rate" in str(data.trouble)
    assert len(data.path) == 3


BARE = {"kept_share": 0.93, "baseline_kept_share": 0.954, "confidence": 0.8, "min_kept_share": 0.95}
GUARDED = {"kept_share": 0.86, "delivered_share": 0.961, "baseline_kept_share": 0.92}


@pytest.mark.parametrize(
    "policy",
    [
        {**BARE, "speed_up_low": 1.31, "speed_up_high": 1.55},
        {**GUARDED, "guarded": True, "expected_time": 0.412, "confidence": 0.97},
        {"training_seconds": 99.99},
    ],
    ids=["bare", "guarded", "saves next to nothing"],
)
def test_a_policy_says_what_later_runs_may_expect(
    database: Database, policy: Row, said: Said
) -> None:
    publish(database, add_search(database), **policy)
    data = load_report(database, "generated")
    figures = key_figures(data)
    assert len(figures) == 3
    said(*(f"{one.value} | {one.meaning} | {one.detail}" for one in figures))
    said(dict(job_facts(data))["policy"], accuracy_sentence(data))
    assert (data.recurrences_to_pay_back == math.inf) == ("training_seconds" in policy)


def test_nobody_is_sure_of_a_gain_that_was_not_measured(database: Database) -> None:
    slower = {"guarded": True, "confidence": 0.97, "training_seconds": 110.0}
    publish(database, add_search(database), **slower)
    figures = key_figures(load_report(database, "generated"))
    assert [one.value for one in figures] == ["about 0.91", "0.9510", "4.0"]
    assert not [one for one in figures if "saving time" in one.detail]


def test_versions_are_compared_where_there_are_several(database: Database) -> None:
    info = add_search(database)
    policy = publish(database, info, created_at="2026-11-28T00:00:00+00:00")
    assert version_rows(load_report(database, "generated")) == []
    for seed, accuracy in enumerate((0.95, 0.90)):
        add_use(database, policy, seed, Made(50.0, accuracy))
    publish(database, replace(info, study="again"), created_at="2026-11-29T00:00:00+00:00")
    newest, first = version_rows(load_report(database, "generated"))
    assert newest["version"] == "2, current"
    assert newest["later runs"] == "-"
    assert first == {
        "version": "1",
        "switch at": "50 %",
        "accuracy": "0.9510",
        "times as fast": "1.43",
        "later runs": "1 of 2 kept",
        "created": "2026-11-28",
    }


def test_an_evaluation_is_no_search_to_show(database: Database) -> None:
    add_search(database, strategy="sweep", study="evaluation-1")
    data = load_report(database, "generated")
    assert (data.search, len(data.compared)) == (None, len(FINISHED))
    with fails("nothing-recorded"):
        load_report(database, "generated", study="evaluation-1")


def test_imported_runs_are_compared_with_their_baseline_alone(
    database: Database, tmp_path: Path
) -> None:
    data = load_report(database, add_imported(database, tmp_path))
    assert (data.search, data.path, data.cost) == (None, (), None)
    assert {run.trial.candidate_percent for run in data.compared} == {37.5, 0.0}
    assert "no search for its policy yet" in headline(data, OPTION_WORDS)


def test_a_job_that_is_learnt_from_its_runs_is_compared_by_them(database: Database) -> None:
    job = identity()
    register_workload(database, job.job, job.name)
    policy = publish(database, search_info(job, study="learning-1"), evidence=(), guarded=True)
    failed = FailedSwitch(25.0, "below the band", 1000, 40.0, 20.0, 0.5)
    for seed, percent in enumerate((100.0, 50.0, 50.0, 25.0)):
        guard = GuardOutcome(50.0, (failed,)) if percent == 25.0 else None
        add_use(database, policy, seed, Made(percent, 0.95 - seed / 1000), guard=guard)
    data = load_report(database, "generated")
    assert {one.percent: len(one.runs) for one in data.switch_points} == {100: 1, 50: 3}
    times = {one.percent: one.seconds for one in data.switch_points}
    assert times[50.0].value == pytest.approx(70), "not of the run in which a switch failed"
    sections = {section.name: section for section in sections_of(data)[0]}
    assert "search" not in sections
    assert [name for name, section in sections.items() if not section.figure] == ["why"]
    assert sections["uses"].words.endswith(
        "to a later switch or to the end, or in another second phase."
    )


def test_a_search_under_conditions_is_compared_under_them(database: Database) -> None:
    elastic = RunConditions(online="elastic")
    add_search(database, [replace(made, conditions=elastic) for made in FINISHED])
    data = load_report(database, "generated")
    assert (data.conditions, len(data.compared)) == (elastic, len(FINISHED))


def test_a_named_search_is_shown_with_what_it_found(database: Database) -> None:
    publish(database, add_search(database))
    add_search(database, FINISHED[:1], study="generated-2")
    shown, named = (load_report(database, "generated", study=s) for s in (None, "generated-2"))
    assert shown.search.study == STUDY
    assert (named.policy, len(named.path)) == (None, 1)


def test_several_jobs_of_one_name_have_to_be_told_apart(database: Database) -> None:
    add_search(database)
    add_search(database, job=identity(workers=8), study="generated-8")
    with fails("ambiguous"):
        load_report(database, "generated")
    assert load_report(database, "generated", workers=8).identity.workers == 8
