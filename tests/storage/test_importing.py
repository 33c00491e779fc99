"""Runs made elsewhere: what a table may say, that each run goes in once, and what it becomes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner

from syncswitch.cli.search.main import main
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.importing import ImportedRun, import_runs, read_table
from syncswitch.storage.records.trial import PhaseRecord
from syncswitch.storage.trials.store import TrialStore
from tests.failing import fails
from tests.run_tables import lost, rows, write_table
from tests.storage.conftest import AtOnce, both_databases
from tests.wording import Said


def read(path: Path, *runs: list[dict[str, Any]]) -> list[ImportedRun]:
    return read_table(write_table(path / "runs.csv", *runs))


def only(path: Path, *run: dict[str, Any]) -> ImportedRun:
    (found,) = read(path, list(run))
    return found


def phase(protocol: str, start: int, end: int, seconds: float) -> PhaseRecord:
    return PhaseRecord(protocol, start, end, seconds, None, None)


class TestTable:
    def test_a_run_with_a_switch(self, tmp_path: Path) -> None:
        run = only(tmp_path, *rows("r32", "b50", candidate_percent=40, model="ResNet-32"))
        assert (run.source, run.candidate_percent, run.switch_percent) == ("r32/b50", 40.0, 50.0)
        assert (run.identity.name, run.identity.workers, run.identity.pair) == ("r32", 8, "bsp,asp")
        assert (run.identity.recipe.model, run.identity.recipe.data_set) == ("ResNet-32", None)
        assert len(run.evaluations) == 19
        assert run.evaluations[1].accuracy == 0.9 * 0.75
        assert run.final_accuracy == run.evaluations[-1].accuracy
        assert (run.worker_steps, run.training_seconds) == (8000, 2000.0)
        assert (run.converged, run.stopped_early) == (True, False)
        assert run.switch_overhead_seconds == 100.0
        assert run.ended_at - run.started_at == timedelta(seconds=2000)
        assert run.phases == (phase("bsp", 0, 4000, 1000.0), phase("asp", 4000, 8000, 1000.0))

    def test_what_is_known_goes_before_what_the_tests_say(self, tmp_path: Path) -> None:
        known = {"worker_steps": 8100, "training_seconds": 2025.5, "first_phase_seconds": 990.25}
        start = "2026-01-31T12:00:00.000001+00:00"
        found = only(tmp_path, *rows("r32", "b50", **known, started_at=start))
        assert (found.worker_steps, found.training_seconds) == (8100, 2025.5)
        assert [phase.seconds for phase in found.phases] == [990.25, 1035.25]
        assert found.started_at == datetime(2026, 1, 31, 12, 0, 0, 1, timezone.utc)

    def test_phases_are_those_of_the_protocols_that_ran(self, tmp_path: Path) -> None:
        alone, second, between, short = read(
            tmp_path,
            rows("r32", "bsp", 100),
            rows("r32", "asp", 0),
            rows("r32", "no test is at the switch", 25, first_phase_seconds=""),
            rows("r32", "ends before its switch")[:2],
        )
        assert alone.phases == (phase("bsp", 0, 8000, 2000.0),)
        assert second.phases == (phase("asp", 0, 8000, 2000.0),)
        assert [one.seconds for one in between.phases] == [500.0, 1500.0]
        assert short.phases == (phase("bsp", 0, 2000, 500.0),)
        assert short.stopped_early

    def test_diverged_runs_have_the_tests_before(self, tmp_path: Path) -> None:
        whole = rows("r32", "blown up", diverged="yes")
        for row in whole[7:]:
            row["accuracy"] = "nan"
        whole[0]["training_loss"], whole[1]["training_loss"] = "inf", ""
        blown_up, nothing = read(tmp_path, whole, lost("r32", "by hearsay", 0))
        losses = [one.training_loss for one in blown_up.evaluations]
        assert losses == pytest.approx(
            [math.nan, math.nan, *(2 / n for n in range(3, 8))], nan_ok=True
        )
        assert (blown_up.diverged, blown_up.converged) == (True, False)
        assert (nothing.diverged, nothing.final_accuracy, nothing.phases) == (True, None, ())

    def test_counts_for_its_switch_point_unless_the_column_says_otherwise(
        self, tmp_path: Path
    ) -> None:
        usual = only(tmp_path, *rows("r32", "a"))
        for_none, other = read(
            tmp_path,
            rows("r32", "a", candidate_percent=""),
            rows("r32", "b", candidate_percent="37.5"),
        )
        found = [run.candidate_percent for run in (usual, for_none, other)]
        assert found == [50.0, None, 37.5]

    def test_parquet_says_the_same(self, tmp_path: Path) -> None:
        start = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
        runs = [rows("r32", "a", started_at=start, candidate_percent=None)]
        runs.append(rows("r32", "b", 100, started_at=start))
        frame = pd.DataFrame([row for run in runs for row in run])
        frame.to_parquet(tmp_path / "runs.parquet")
        assert read_table(tmp_path / "runs.parquet") == read(tmp_path, *runs)

    @pytest.mark.parametrize("line", [1, 3, -1])
    def test_a_row_with_more_fields_than_the_header_is_refused(
        self, tmp_path: Path, line: int
    ) -> None:
        """In every row as well: else pandas takes the first column for names of the rows."""
        path = write_table(tmp_path / "runs.csv", rows("r32", "a"))
        lines = path.read_text().splitlines()
        for number in range(1, len(lines)) if line < 0 else [line]:
            lines[number] = f"extra,{lines[number]}"
        path.write_text("\n".join(lines))
        with fails("recording-invalid"):
            read_table(path)

    def test_what_cannot_be_is_one_line(self, tmp_path: Path, said: Said) -> None:
        for line, change in (
            (3, {"accuracy": "high"}),
            (3, {"accuracy": 1.5}),
            (3, {"accuracy": ""}),
            (3, {"worker_step": 0.5}),
            (3, {"worker_step": 0}),
            (3, {"elapsed_seconds": -1}),
            (4, {"elapsed_seconds": 1}),
            (3, {"workers": 9}),
            (2, {"workers": "x"}),
            (0, {"workers": "x"}),
            (0, {"workers": 0}),
            (0, {"workload": ""}),
            (0, {"switch_percent": 101}),
            (0, {"started_at": "today"}),
            (0, {"diverged": "perhaps"}),
            (0, {"first_protocol": "ASP"}),
            (0, {"total_worker_steps": 7000}),
            (0, {"training_seconds": 0}),
            (0, {"training_seconds": 1e308}),
            (0, {"training_seconds": 1}),
            (0, {"worker_steps": 7990}),
            (0, {"started_at": "2026-01-31T12:00Z", "ended_at": "1900-01-01T00:00Z"}),
            (0, {"switch_overhead_seconds": 1e300}),
        ):
            run = rows("r32", "a")
            for row in run if not line else run[line - 2 : line - 1]:
                row.update(change)
            said.refusal("recording-invalid", read, tmp_path, run)

    def test_another_file_is_one_line(self, tmp_path: Path) -> None:
        path = tmp_path / "runs.csv"
        for text, message in (
            ("", "is not a table"),
            ("workload,run\n", "lacks the columns first_protocol, second_protocol"),
            ("\x00\xff", "is not a table"),
            ('a\n"b', "is not a table"),
        ):
            path.write_bytes(text.encode("latin-1"))
            with fails("recording-invalid", message):
                read_table(path)
            with fails("recording-invalid"):
                read_table(path.rename(tmp_path / "runs.parquet"))


class TestDatabase:
    @pytest.fixture
    def runs(self, tmp_path: Path) -> list[ImportedRun]:
        *usual, for_none = read(
            tmp_path,
            rows("r32", "b50"),
            rows("r32", "b100-1", 100, 0.83),
            rows("r32", "b100-2", 100, 0.81),
            lost("r32", "lost", 100),
            rows("r32", "for none", 100, 0.5),
        )
        return [*usual, replace(for_none, candidate_percent=None)]

    @both_databases
    def test_a_run_has_everything_that_was_measured(
        self, database: Database, runs: list[ImportedRun]
    ) -> None:
        report = import_runs(database, runs[:1])
        assert (report.imported_runs, report.present_runs) == (1, 0)
        assert report.imported_evaluations == 19
        (trial,) = TrialStore(database).trials()
        (run,) = runs[:1]
        assert (trial.origin.source, trial.origin.study, trial.origin.kind) == (
            "r32/b50",
            None,
            "import",
        )
        assert (trial.job.workload, trial.job.fingerprint) == ("r32", run.identity.fingerprint)
        assert (trial.state, trial.result.diverged, trial.result.converged) == (
            "complete",
            False,
            True,
        )
        assert trial.result.converged_accuracy == trial.result.final_accuracy == run.final_accuracy
        assert (trial.result.converged_evaluations, trial.times.inherited_seconds) == (1, 0.0)
        assert trial.phases == run.phases
        (curve,) = TrialStore(database).curves(trial.job.fingerprint).values()
        assert curve == run.evaluations
        assert trial.target.accuracy is None  # nobody made a run of the first protocol alone

    @both_databases
    def test_the_target_is_the_mean_of_the_first_protocol_alone(
        self, database: Database, runs: list[ImportedRun]
    ) -> None:
        import_runs(database, runs)
        trials = {trial.origin.source: trial for trial in TrialStore(database).trials()}
        finals = [run.final_accuracy for run in runs[1:3]]
        assert {trial.target.accuracy for trial in trials.values()} == {sum(finals) / 2}
        assert trials["r32/lost"].target.seconds is None
        before = TrialStore(database).trials()
        report = import_runs(database, runs)
        assert (report.imported_runs, report.present_runs) == (0, 5)
        assert TrialStore(database).trials() == before

    def test_what_is_there_with_other_values_is_told_and_left_alone(
        self, database: Database, runs: list[ImportedRun], tmp_path: Path
    ) -> None:
        import_runs(database, runs)
        before = TrialStore(database).trials()
        fewer = rows("r32", "b50")
        del fewer[3]
        for changed, message in (
            (rows("r32", "b50", switch_percent=41), "candidate_percent is 41.0, was 50.0"),
            (rows("r32", "b50", replicate=3), "replicate is 3, was 1"),
            (rows("r32", "b50", diverged="yes"), "diverged is True, was False"),
            (rows("r32", "b50", training_seconds=3000), "training_seconds is 3000.0, was 2000.0"),
            (rows("r32", "b50", worker_steps=8001), "worker_steps is 8001, was 8000"),
            (rows("r32", "b50", workers=16), "its workload differs"),
            (fewer, "evaluations is 18, was 19"),
        ):
            said = f"r32/b50 is not what was imported under this name: {message}"
            with fails("recording-invalid", said):
                import_runs(database, read(tmp_path, rows("r32", "new"), changed))
            assert TrialStore(database).trials() == before

    @both_databases
    def test_importers_side_by_side_add_a_run_once(
        self, url: str, database: Database, runs: list[ImportedRun], at_once: AtOnce
    ) -> None:
        many = [replace(runs[0], source=f"r32/{number}") for number in range(20)]

        def work(_: int) -> int:
            with open_database(url, create=False) as mine:
                return import_runs(mine, many).imported_runs

        assert sum(at_once(work, 3)) == 20
        assert len(TrialStore(database).trials()) == 20


def test_the_command_says_what_went_in(tmp_path: Path) -> None:
    table = write_table(tmp_path / "runs.csv", rows("r32", "a"), rows("r32", "b", 100))
    words = ["import", str(table), "--storage", f"sqlite:///{tmp_path}/syncswitch.db"]
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "runs: 2 imported (24 evaluations), 0 already there",
        "workload r32, 8 workers, bsp,asp",
    ]
    again = json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)
    (workload,) = again.pop("workloads")
    assert len(workload["fingerprint"]) == 64
    named = ("workload", "workers", "first_protocol", "second_protocol")
    assert [workload[name] for name in named] == ["r32", 8, "bsp", "asp"]
    assert again == {"imported_runs": 0, "already_there_runs": 2, "imported_evaluations": 0}
