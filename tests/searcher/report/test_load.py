"""What a report reads: the right job, search and runs, and what follows from their numbers."""

from __future__ import annotations

import math
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

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
    publish,
    record_of,
    search_info,
)

from syncswitch.cli.search.main import main
from syncswitch.searcher.report import ReportData, load_report
from syncswitch.searcher.report.page import (
    accuracy_sentence,
    headline,
    key_figures,
    path_sentence,
    sections_of,
    time_sentence,
    use_table,
    version_table,
)
from syncswitch.searcher.speed_up import SpeedUp
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.guard import FailedSwitch, GuardOutcome
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.storage.records.use import whole_use
from syncswitch.storage.trials.values import Owner
from syncswitch.storage.trials.workloads import register_workload
from syncswitch.storage.uses.store import record_use

DEAD = Owner(socket.gethostname(), 1, 0.0)


def test_a_finished_search_is_read_with_its_numbers(any_url: str, our_tables: None) -> None:
    with open_database(any_url, create=False) as database:
        publish(database, add_search(database))
    data = load_report(any_url, "generated")
    assert data.answer is not None
    assert data.is_found_here
    assert data.trouble is None
    assert data.acceptance is not None
    assert data.acceptance.least_accuracy == pytest.approx(0.94)
    assert data.baseline_seconds == pytest.approx(BASELINE_SECONDS)
    assert not data.baseline_is_estimated
    assert data.speed_up == SpeedUp(pytest.approx(100 / 70))
    # 2 times 100 s of BSP alone, 2 times 70 s, and 55 s until the last one blew up; 30 s saved.
    assert data.cost is not None
    assert data.cost.paid_seconds == pytest.approx(395)
    assert data.recurrences_to_pay_back == pytest.approx(395 / 30)
    assert [one.percent for one in data.switch_points] == [100, 50, 25]
    assert [run.outcome for run in data.runs] == ["whole"] * 4 + ["diverged"]
    assert data.software == {"syncswitch": "0"}


def test_the_path_says_what_was_known_after_each_run(database: Database) -> None:
    add_search(database)
    path = load_report(database, "generated").path
    assert [(step.run.switch_percent, step.accepted) for step in path] == [
        (100, None),
        (100, True),
        (50, None),
        (50, True),
        (25, False),
    ]
    assert [(step.lower_percent, step.upper_percent) for step in path] == [
        (0, 100),
        (0, 100),
        (0, 100),
        (0, 50),
        (25, 50),
    ]
    assert all(step.is_needed for step in path)


def test_runs_in_advance_come_last(database: Database) -> None:
    in_vain = (Made(12.5, 0.9, speculative=True), Made(37.5, end="cancelled", reached=0.5))
    publish(database, add_search(database, (*FINISHED, *in_vain), settings=1))
    data = load_report(database, "generated")
    assert [step.run.trial_number for step in data.path if not step.is_needed] == [4, 5]
    assert path_sentence(data).startswith("The search asked for 4 runs, and for 2 speculative runs")


@pytest.mark.parametrize(
    ("runs", "owner", "outcome", "words"),
    [
        (FINISHED[:3], None, "running", "is under way (1 running): after 3 runs"),
        (FINISHED[:3], DEAD, "stale", "was stopped and can go on: after 3 runs"),
        ((), None, "running", "is under way (1 running); no run of it is complete yet"),
    ],
)
def test_an_unfinished_search_says_how_far_it_is(
    database: Database, runs: Sequence[Made], owner: Owner | None, outcome: str, words: str
) -> None:
    add_search(database, (*runs, Made(50.0, end="running")), owner=owner)
    data = load_report(database, "generated")
    assert (data.policy, data.recurrences_to_pay_back) == (None, None)
    assert (data.runs[-1].outcome, len(data.compared)) == (outcome, len(runs))
    assert words in headline(data)


def test_a_known_target_needs_no_first_protocol_alone(database: Database) -> None:
    info = add_search(database, FINISHED[2:], target_accuracy=0.95)
    publish(database, info, baseline_seconds=None)
    data = load_report(database, "generated")
    assert data.baseline_is_estimated
    assert data.baseline_seconds == pytest.approx(BASELINE_SECONDS)
    assert data.speed_up == SpeedUp(pytest.approx(100 / 70))


def test_a_baseline_that_diverged_is_the_trouble(database: Database) -> None:
    add_search(database, (Made(100.0, 0.1, diverged=True),) * 3)
    data = load_report(database, "generated")
    assert data.trouble is not None
    assert "the learning rate is too high" in data.trouble
    assert len(data.path) == 3


def test_the_policy_has_the_baseline_of_the_whole_page(database: Database) -> None:
    publish(database, add_search(database), baseline_seconds=80.0)
    data = load_report(database, "generated")
    assert data.baseline_seconds == pytest.approx(80)
    assert not data.baseline_is_estimated
    assert data.speed_up == SpeedUp(pytest.approx(80 / 70))
    assert time_sentence(data).startswith(
        "BSP alone takes 80.0 s, a training with the policy 70.0 s. The search trained for 395.0 s"
    )


def test_a_policy_says_what_later_runs_may_expect(database: Database) -> None:
    promise = {"kept_share": 0.93, "baseline_kept_share": 0.954, "confidence": 0.8, "keep": 0.95}
    gain = {"speed_up_low": 1.31, "speed_up_high": 1.55}
    publish(database, add_search(database), **promise, **gain)
    data = load_report(database, "generated")
    figures = dict(key_figures(data))
    assert figures["about 93"] == (
        "of 100 runs stay within 0.01 of BSP's mean accuracy (95 with BSP alone)"
    )
    assert figures["80 %"] == "sure that enough runs do"
    assert figures["1.43"] == "times as fast as BSP alone (1.31 to 1.55)"
    assert "Accepted is 0.9400 or more: the target 0.9500 less 0.01" in accuracy_sentence(data)
    assert version_cells(data, "found for", "kept") == (
        "the bare switch",
        "about 93 of 100 runs (95 with BSP alone)",
    )


def version_cells(data: ReportData, *names: str) -> tuple[str, ...]:
    table = version_table(data)
    cells = dict(zip(table.columns, table.rows[0], strict=True))
    return tuple(cells[name] for name in names)


def test_nobody_is_sure_of_a_gain_that_was_not_measured(database: Database) -> None:
    slower = {"guarded": True, "confidence": 0.97, "training_seconds": 110.0}
    publish(database, add_search(database), **slower)
    assert (
        "sure that it saves time"
        not in dict(key_figures(load_report(database, "generated"))).values()
    )


def test_a_guarded_policy_says_what_is_delivered_and_how_soon(database: Database) -> None:
    promise = {"kept_share": 0.86, "delivered_share": 0.961, "baseline_kept_share": 0.92}
    gain = {"guarded": True, "expected_time": 0.412, "confidence": 0.97}
    publish(database, add_search(database), **promise, **gain)
    data = load_report(database, "generated")
    figures = dict(key_figures(data))
    mean = "within 0.01 of BSP's mean accuracy"
    assert figures["about 96"] == f"of 100 guarded trainings deliver a model {mean}"
    assert figures["about 86"] == (
        f"of 100 runs with the bare switch stay {mean} (92 with BSP alone)"
    )
    assert (
        figures["0.41"] == "of the time of BSP alone: a guarded training, failed switches included"
    )
    assert figures["97 %"] == "sure that it saves time"
    assert version_cells(data, "found for") == ("guarded trainings",)


def test_a_finished_search_has_no_place_where_its_answer_could_lie(database: Database) -> None:
    info = add_search(database)
    assert "could still lie above 25 % and at most 50 %." in path_sentence(
        load_report(database, "generated")
    )
    publish(database, info)
    said = path_sentence(load_report(database, "generated"))
    assert said.endswith("The answer was above 25 % and at most 50 %.")


def test_an_evaluation_is_no_search_to_show(database: Database) -> None:
    add_search(database, strategy="comparison", study="evaluation-1")
    data = load_report(database, "generated")
    assert (data.search, len(data.compared)) == (None, len(FINISHED))
    with pytest.raises(UserError, match="no search 'evaluation-1' of this job; there is: none"):
        load_report(database, "generated", study="evaluation-1")


@pytest.mark.parametrize("training_seconds", [100.0, 99.99])
def test_a_policy_that_saves_next_to_nothing_is_never_paid_back(
    database: Database, training_seconds: float
) -> None:
    publish(database, add_search(database), training_seconds=training_seconds)
    data = load_report(database, "generated")
    assert data.recurrences_to_pay_back == math.inf
    assert ("never", "trainings until the search has paid off") in key_figures(data)


def test_imported_runs_are_compared_with_their_baseline_alone(
    database: Database, tmp_path: Path
) -> None:
    data = load_report(database, add_imported(database, tmp_path))
    assert data.search is None
    assert data.path == ()
    assert data.cost is None
    assert {run.trial.candidate_percent for run in data.compared} == {37.5, 0.0}
    assert "no search for its policy yet" in headline(data)


def test_a_job_that_is_learnt_from_its_runs_is_compared_by_them(database: Database) -> None:
    job = identity()
    register_workload(database, job, job.name)
    policy = publish(database, search_info(job, study="learning-1"), evidence=(), guarded=True)
    failed = FailedSwitch(25.0, "below the band", 1000, 40.0, 20.0, 0.5)
    for number, percent in enumerate((100.0, 50.0, 50.0, 25.0)):
        spec = TrialSpec(job, percent, seed=number)
        record = record_of(Made(percent, 0.95 - number / 1000), spec)
        if percent == 25.0:
            record = replace(record, guard=GuardOutcome(50.0, (failed,)))
        use = whole_use(policy, f"use-{number}", record)
        assert use is not None
        record_use(database, use)
    data = load_report(database, "generated")
    assert {one.percent: len(one.runs) for one in data.switch_points} == {100: 1, 50: 3}
    times = {one.percent: one.seconds for one in data.switch_points}
    assert times[50.0] is not None
    assert times[50.0].value == pytest.approx(70), "not of the run in which a switch failed"
    sections = {section.name: section for section in sections_of(data)}
    assert "search" not in sections
    assert all(section.figure for section in sections.values())
    assert sections["uses"].words.endswith("to a later switch or to the end.")
    table = use_table(data)
    assert [row[table.columns.index("switches")] for row in table.rows] == [
        "100 %",
        "50 %",
        "50 %",
        "25 % failed, 50 % held",
    ]


def test_disturbed_runs_are_in_no_figure(database: Database) -> None:
    disturbed = RunConditions(online="elastic", injections=("straggler:worker=3",))
    runs = (*FINISHED, Made(50.0, 0.5, conditions=disturbed))
    add_search(database, runs)
    data = load_report(database, "generated")
    assert len(data.compared) == len(FINISHED)
    assert [one.accuracy.value for one in data.switch_points[:2] if one.accuracy] == pytest.approx(
        [0.95, 0.951]
    )


def test_a_search_under_conditions_is_compared_under_them(database: Database) -> None:
    elastic = RunConditions(online="elastic")
    add_search(database, [replace(made, conditions=elastic) for made in FINISHED])
    data = load_report(database, "generated")
    assert data.conditions == elastic
    assert len(data.compared) == len(FINISHED)


def test_a_named_search_is_shown_with_what_it_found(database: Database) -> None:
    publish(database, add_search(database))
    add_search(database, FINISHED[:1], study="generated-2")
    shown, named = (load_report(database, "generated", study=s) for s in (None, "generated-2"))
    assert shown.search is not None
    assert shown.search.study == STUDY
    assert named.policy is None
    assert len(named.path) == 1
    with pytest.raises(UserError, match=r"no search 'x' of this job; there is: generated-1, gen"):
        load_report(database, "generated", study="x")


def test_several_jobs_of_one_name_have_to_be_told_apart(database: Database) -> None:
    add_search(database)
    add_search(database, job=identity(workers=8), study="generated-8")
    with pytest.raises(UserError, match=r"'generated' names 2 jobs: .*or the fingerprint$"):
        load_report(database, "generated")
    assert load_report(database, "generated", workers=8).identity.workers == 8
    with pytest.raises(UserError, match="no runs on such a cluster; there is: "):
        load_report(database, "generated", workers=5)
    with pytest.raises(UserError, match=r"no workload 'other' in .*; see: "):
        load_report(database, "other")


def test_the_headline_is_what_policy_lookup_says(database: Database) -> None:
    publish(database, add_search(database))
    command = ["policy", "lookup", "generated", "--storage", database.url]
    said = CliRunner().invoke(main, command).stdout.splitlines()[0]
    assert headline(load_report(database, "generated")) == said
