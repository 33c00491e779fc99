"""Replayed searches: the paper's tables from its own logs, and laws on generated runs."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner
from generated_trainer import GeneratedTrainer, identity
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.searcher.cli import main
from syncswitch.searcher.cost import (
    RecordedRun,
    deepest_settings,
    forecast,
    reference,
    simulate,
    summarize,
)
from syncswitch.searcher.plan import SearchPlan
from syncswitch.searcher.rules.paper import PaperRule
from syncswitch.searcher.search import Search
from syncswitch.storage.engine import open_database
from syncswitch.storage.errors import UserError
from syncswitch.storage.importing.manifest import read_manifest
from syncswitch.storage.importing.run_import import import_manifest
from tests.recordings import PAPER, needs_paper

SETUPS = {"IV": "resnet32-cifar10-8", "VI": "resnet32-cifar10-16"}
# Published 1.67; its own neighbours say 3 x 0.534 = 1.60.
MISPRINTED = ("VI", True, 0, 3)

RECORDED = [
    *(RecordedRun(100.0, accuracy, 100.0) for accuracy in (0.90, 0.91, 0.92)),
    *(RecordedRun(50.0, accuracy, 60.0) for accuracy in (0.90, 0.91, 0.92)),
    *(RecordedRun(25.0, accuracy, 40.0) for accuracy in (0.80, 0.81, 0.82)),
]
RULE = PaperRule(settings=2, runs=2)


@pytest.fixture(scope="module")
def paper_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('paper')}/paper.db"
    with open_database(url, create=True) as database:
        import_manifest(database, read_manifest(PAPER / "manifest.csv"), PAPER / "logs")
    return url


def published() -> dict[tuple[str, bool, int, int], dict[str, float]]:
    with (PAPER / "tables.csv").open() as file:
        return {
            (
                row["table"],
                row["recurring"] == "yes",
                int(row["bsp_runs"]),
                int(row["candidate_runs"]),
            ): {name: float(row[name]) for name in list(row)[5:]}
            for row in csv.DictReader(file)
        }


def ask(url: str, *arguments: str) -> object:
    done = CliRunner().invoke(main, ["cost", *arguments, "--json", "--storage", url])
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@needs_paper
@pytest.mark.parametrize("table", list(SETUPS))
def test_the_published_tables_come_out_of_the_published_logs(paper_url: str, table: str) -> None:
    rows = ask(paper_url, SETUPS[table], "--table", "--simulations", "400", "--seed", "1")
    assert isinstance(rows, list)
    known = published()
    compared = 0
    for row in rows:
        key = (table, row["recurring"], row["baseline_runs"], row["runs"])
        if max(key[2:]) < 2 or key == MISPRINTED:
            continue
        compared += 1
        assert row["search_cost"] == pytest.approx(known[key]["search_cost"], rel=0.03)
        assert row["success_percent"] == pytest.approx(known[key]["success_percent"], abs=6)
        for name in ("amortized_recurrences", "effective_training"):
            assert row[name] == pytest.approx(known[key][name], rel=0.035)
    assert compared >= 11


@needs_paper
def test_one_row_is_what_the_table_says(paper_url: str) -> None:
    alone = ask(paper_url, SETUPS["IV"], "--runs", "3", "--recurring", "--simulations", "50")
    rows = ask(paper_url, SETUPS["IV"], "--table", "--simulations", "50")
    assert isinstance(rows, list)
    assert alone in rows


def test_a_setting_is_drawn_without_replacement() -> None:
    all_drawn = simulate(PaperRule(settings=2, runs=3), RECORDED, 20)
    assert {(search.switch_percent, search.seconds) for search in all_drawn} == {(50.0, 600.0)}


def test_a_used_up_setting_is_shuffled_again() -> None:
    (search,) = simulate(PaperRule(settings=2, runs=7), RECORDED, 1)
    assert search.seconds == 7 * 200.0


def test_a_seed_fixes_the_draws() -> None:
    assert simulate(RULE, RECORDED, 20, seed=3) == simulate(RULE, RECORDED, 20, seed=3)
    narrow = PaperRule(settings=1, runs=1, threshold=0.005)
    assert simulate(narrow, RECORDED, 20, seed=3) != simulate(narrow, RECORDED, 20, seed=4)


def test_the_measures_of_a_search_without_luck() -> None:
    rule = PaperRule(settings=2, runs=3)
    summary = summarize(simulate(rule, RECORDED, 10), RECORDED, reference(rule, RECORDED))
    assert summary.reference_percent == 50.0
    assert summary.search_cost.value == pytest.approx(6.0)
    assert summary.search_cost.low == summary.search_cost.high == pytest.approx(6.0)
    assert summary.amortized_recurrences.value == pytest.approx(6.0 / 0.4)
    assert summary.effective_training.value == pytest.approx(6 / 6.0)
    assert summary.success_percent.value == 100.0
    assert 69 < summary.success_percent.low < 75  # Wilson: 10 of 10


def test_the_deepest_search_stops_at_the_first_setting_that_nobody_recorded() -> None:
    assert deepest_settings(PaperRule(), RECORDED) == 2
    assert deepest_settings(PaperRule(), RECORDED[:3]) == 0


def test_a_search_that_luck_leads_astray_ends_there() -> None:
    unlucky = [*RECORDED[:3], RecordedRun(50.0, 0.85, 60.0), RecordedRun(50.0, 0.99, 60.0)]
    rule = PaperRule(settings=2, runs=1)
    answers = {search.switch_percent for search in simulate(rule, unlucky, 50)}
    assert answers == {50.0, 100.0}


def test_a_diverged_setting_is_rejected_by_its_first_run() -> None:
    runs = [*RECORDED[:6], *(RecordedRun(25.0, 0.0, 0.0, diverged=True) for _ in range(3))]
    (search,) = simulate(PaperRule(settings=2, runs=3), runs, 1)
    assert (search.switch_percent, search.seconds) == (50.0, 480.0)


def test_the_reference_needs_every_setting() -> None:
    with pytest.raises(UserError, match=r"runs at 37.5 %, and none is recorded.*100, 50, 25"):
        reference(PaperRule(settings=3), RECORDED)


@given(
    settings=st.integers(1, 6),
    runs=st.integers(1, 5),
    first=st.floats(1, 1e5),
    share=st.floats(0.05, 1),
    recurring=st.booleans(),
)
def test_a_forecast_knows_every_answer(
    settings: int, runs: int, first: float, share: float, recurring: bool
) -> None:
    rule = PaperRule(settings, runs, target_accuracy=0.9 if recurring else None)
    foreseen = forecast(rule, first, share * first)
    assert [answer.switch_percent for answer in foreseen] == [
        100 / 2**halvings for halvings in range(settings + 1)
    ]
    for answer in foreseen:
        assert answer.runs == rule.most_runs
        assert share * answer.runs <= answer.search_cost * (1 + 1e-9)
        assert answer.search_cost <= answer.runs * (1 + 1e-9)
        assert answer.speed_up * (1 + 1e-9) >= 1
        assert answer.amortized_recurrences >= answer.search_cost
    assert math.isinf(foreseen[0].amortized_recurrences)


def test_the_forecast_of_the_papers_first_setup() -> None:
    """From its BSP and ASP times alone, against the replayed 12.7."""
    answers = {answer.switch_percent: answer for answer in forecast(PaperRule(), 10604, 1607)}
    assert answers[6.25].search_cost == pytest.approx(12.7, rel=0.05)


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_forecast_needs_a_time(seconds: float) -> None:
    with pytest.raises(UserError, match="give seconds"):
        forecast(PaperRule(), seconds, 1.0)


@needs_paper
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "no complete runs of 'nothing'"),
        ([SETUPS["IV"], "--workers", "16"], "no complete runs"),
        ([SETUPS["IV"], "--settings", "6"], "none is recorded"),
        ([SETUPS["IV"], "--protocols", "asp,bsp"], "no complete runs"),
        ([SETUPS["IV"], "--threshold", "nan"], "--threshold is nan"),
        ([SETUPS["IV"], "--table", "--runs", "2"], "--table and --runs exclude each other"),
        ([SETUPS["IV"], "--recurring", "--baseline-runs", "2"], "exclude each other"),
    ],
)
def test_what_cannot_be_replayed_is_one_line(
    paper_url: str, arguments: list[str], words: str
) -> None:
    done = CliRunner().invoke(main, ["cost", *arguments, "--storage", paper_url])
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert words in line


def recorded_url(folder: Path, *rows: str) -> str:
    """A database with imported runs: `run_dir,percent,diverged`, of 200 s and accuracy 0.9."""
    header = "setup,run_dir,first_protocol,second_protocol,switch_percent,replicate,workers"
    lines = [f"{header},total_worker_steps,diverged"]
    for number, row in enumerate(rows):
        run, percent, diverged = row.split(",")
        lines.append(f"job,{run},bsp,asp,{percent},{number},1,200,{diverged}")
        if run:
            (folder / run).mkdir()
            log = ["Wall time,Step,Value", *(f"{1e9 + s},{s},0.9" for s in range(0, 201, 20))]
            (folder / run / "acc.csv").write_text("\n".join(log))
    (folder / "runs.csv").write_text("\n".join(lines))
    url = f"sqlite:///{folder}/recorded.db"
    with open_database(url, create=True) as database:
        report = import_manifest(database, read_manifest(folder / "runs.csv"), folder)
    assert report.imported_runs == len(rows)
    return url


def test_a_search_that_saves_nothing_is_never_paid_back(folder: Path) -> None:
    url = recorded_url(folder, "whole,100,no", "half,50,no")
    answer = ask(url, "job", "--runs", "1", "--simulations", "10")
    assert isinstance(answer, dict)
    assert answer["search_cost"] == pytest.approx(2.0)
    assert answer["amortized_recurrences"] is None
    assert answer["amortized_recurrences_interval"] == [None, None]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["half,50,no"], "no run of the first protocol alone"),
        (["whole,100,no"], "no run at the first candidate, 50 %"),
        (["whole,100,no", ",100,yes", "half,50,no"], "first protocol alone diverged"),
    ],
)
@pytest.mark.parametrize("recurring", [[], ["--recurring"]])
def test_without_a_sound_baseline_there_is_no_unit(
    folder: Path, rows: list[str], words: str, recurring: list[str]
) -> None:
    url = recorded_url(folder, *rows)
    done = CliRunner().invoke(main, ["cost", "job", *recurring, "--storage", url])
    assert done.exit_code == 2
    assert words in done.stderr


def test_a_job_of_our_own_can_be_replayed(folder: Path) -> None:
    url = f"sqlite:///{folder}/own.db"
    with open_database(url, create=True) as database:
        trainer = GeneratedTrainer()
        Search(database, identity(), SearchPlan(PaperRule(3, 3)), lambda: trainer).run()
    answer = ask(url, "generated", "--runs", "2", "--simulations", "20")
    assert isinstance(answer, dict)
    assert answer["success_percent"] == 100.0
    assert answer["reference_percent"] == 12.5
