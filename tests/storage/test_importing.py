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
from click.testing import CliRunner, Result

from syncswitch.cli.search.main import main
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import RecordingError
from syncswitch.storage.importing import ImportedRun, import_runs, read_table
from syncswitch.storage.records.trial import PhaseRecord
from syncswitch.storage.trials.store import TrialStore
from tests.run_tables import lost, rows, write_table
from tests.storage.conftest import AtOnce, both_databases
from tests.storage.filled import content


def read(path: Path, *runs: list[dict[str, Any]]) -> list[ImportedRun]:
    return read_table(write_table(path / "runs.csv", *runs))


def only(path: Path, *run: dict[str, Any]) -> ImportedRun:
    (found,) = read(path, list(run))
    return found


class TestTable:
    def test_a_run_with_a_switch(self, tmp_path: Path) -> None:
        (run,) = read(tmp_path, rows("r32", "b50", candidate_percent=40, model="ResNet-32"))
        assert (run.source, run.candidate_percent, run.switch_percent) == ("r32/b50", 40.0, 50.0)
        assert (run.identity.name, run.identity.workers, run.identity.pair) == ("r32", 8, "bsp,asp")
        assert (run.identity.model, run.identity.data_set) == ("ResNet-32", None)
        found = run
        assert len(found.evaluations) == 19
        assert found.evaluations[1].accuracy == 0.9 * 0.75
        assert found.final_accuracy == found.evaluations[-1].accuracy
        assert (found.worker_steps, found.training_seconds) == (8000, 2000.0)
        assert (found.converged, found.stopped_early) == (True, False)
        assert found.switch_overhead_seconds == 100.0
        assert found.ended_at - found.started_at == timedelta(seconds=2000)
        assert found.phases == (
            PhaseRecord("bsp", 0, 4000, 1000.0, None, None),
            PhaseRecord("asp", 4000, 8000, 1000.0, None, None),
        )

    def test_what_is_known_goes_before_what_the_tests_say(self, tmp_path: Path) -> None:
        known = {"worker_steps": 8100, "training_seconds": 2025.5, "first_phase_seconds": 990.25}
        start = "2026-01-31T12:00:00.000001+00:00"
        found = only(tmp_path, *rows("r32", "b50", **known, started_at=start))
        assert (found.worker_steps, found.training_seconds) == (8100, 2025.5)
        assert [phase.seconds for phase in found.phases] == [990.25, 1035.25]
        assert found.started_at == datetime(2026, 1, 31, 12, 0, 0, 1, timezone.utc)

    @pytest.mark.parametrize(("percent", "protocol"), [(100, "bsp"), (0, "asp")])
    def test_one_protocol_alone_is_one_phase(
        self, tmp_path: Path, percent: float, protocol: str
    ) -> None:
        found = only(tmp_path, *rows("r32", "alone", percent))
        assert found.phases == (PhaseRecord(protocol, 0, 8000, 2000.0, None, None),)

    def test_where_no_test_is_at_the_switch_it_is_between_two(self, tmp_path: Path) -> None:
        found = only(tmp_path, *rows("r32", "b25", 25, first_phase_seconds=""))
        assert [phase.seconds for phase in found.phases] == [500.0, 1500.0]

    def test_a_run_that_ends_before_its_switch(self, tmp_path: Path) -> None:
        found = only(tmp_path, *rows("r32", "short")[:2])
        assert found.stopped_early
        assert found.phases == (PhaseRecord("bsp", 0, 2000, 500.0, None, None),)

    def test_diverged_runs_have_the_tests_before(self, tmp_path: Path) -> None:
        whole = rows("r32", "blown up", diverged="yes")
        for row in whole[7:]:
            row["accuracy"] = "nan"
        blown_up, nothing = read(tmp_path, whole, lost("r32", "by hearsay", 0))
        assert len(blown_up.evaluations) == 7
        assert (blown_up.diverged, blown_up.converged) == (True, False)
        assert (nothing.diverged, nothing.final_accuracy, nothing.phases) == (True, None, ())

    def test_counts_for_its_switch_point_unless_the_column_says_otherwise(
        self, tmp_path: Path
    ) -> None:
        (usual,) = read(tmp_path, rows("r32", "a"))
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
        csv = read(tmp_path, *runs)
        frame = pd.DataFrame([row for run in runs for row in run])
        frame.to_parquet(tmp_path / "runs.parquet")
        parquet = read_table(tmp_path / "runs.parquet")
        assert parquet == csv

    def test_losses_that_are_no_numbers_are_left_out(self, tmp_path: Path) -> None:
        run = rows("r32", "a")
        run[0]["training_loss"], run[1]["training_loss"] = "inf", ""
        first, second, third, *_ = only(tmp_path, *run).evaluations
        assert math.isnan(first.training_loss)
        assert math.isnan(second.training_loss)
        assert third.training_loss == 2 / 3

    @pytest.mark.parametrize(
        ("line", "change", "message"),
        [
            (3, {"accuracy": "high"}, "line 3: accuracy is 'high'; allowed: a valid number"),
            (3, {"accuracy": 1.5}, "line 3: accuracy is '1.5'; allowed: less than or equal to 1"),
            (3, {"accuracy": ""}, "line 3: run a of r32 has a test without a number"),
            (3, {"worker_step": 0.5}, "line 3: worker_step is '0.5'"),
            (3, {"worker_step": 0}, "line 3: run a of r32 is at worker-step 0 at 500 s, after 0"),
            (3, {"elapsed_seconds": -1}, "line 3: elapsed_seconds is '-1'"),
            (4, {"elapsed_seconds": 1}, "line 4: run a of r32 is at worker-step 4000 at 1 s"),
            (3, {"workers": 9}, "line 3: workers of r32/a is '9'; allowed: '8'"),
            (2, {"workers": "x"}, "workers of r32/a is '8'; allowed: 'x'"),
            (0, {"workers": "x"}, "line 2: workers is 'x'; allowed: a valid integer"),
            (0, {"workers": 0}, "line 2: workers is '0'; allowed: greater than or equal to 1"),
            (0, {"workload": ""}, "line 2: workload is empty"),
            (0, {"switch_percent": 101}, "line 2: switch_percent is '101'"),
            (0, {"started_at": "today"}, "line 2: started_at is 'today'"),
            (0, {"diverged": "perhaps"}, "line 2: diverged is 'perhaps'"),
            (0, {"first_protocol": "ASP"}, "both protocols are asp; allowed: two different ones"),
            (0, {"total_worker_steps": 7000}, "ends at worker-step 8000; allowed: 7000 and less"),
            (0, {"training_seconds": 0}, "line 2: training_seconds is '0'"),
        ],
    )
    def test_what_cannot_be_is_one_line(
        self, tmp_path: Path, line: int, change: dict[str, Any], message: str
    ) -> None:
        run = rows("r32", "a")
        for row in run if not line else run[line - 2 : line - 1]:
            row.update(change)
        with pytest.raises(RecordingError) as error:
            read(tmp_path, run)
        assert message in str(error.value)
        assert len(str(error.value).splitlines()) == 1

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "is not a table"),
            ("workload,run\n", "lacks the columns first_protocol, second_protocol"),
            ("\x00\xff", "is not a table"),
            ('a\n"b', "is not a table"),
        ],
    )
    def test_another_file_is_one_line(self, tmp_path: Path, text: str, message: str) -> None:
        path = tmp_path / "runs.csv"
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(RecordingError, match=message):
            read_table(path)
        with pytest.raises(RecordingError, match="is not a table"):
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
        assert (trial.source, trial.study, trial.kind) == ("r32/b50", None, "import")
        assert (trial.workload, trial.fingerprint) == ("r32", run.identity.fingerprint)
        assert (trial.state, trial.diverged, trial.converged) == ("complete", False, True)
        assert trial.converged_accuracy == trial.final_accuracy == run.final_accuracy
        assert (trial.converged_evaluations, trial.inherited_seconds) == (1, 0.0)
        assert trial.phases == run.phases
        (curve,) = TrialStore(database).curves(trial.fingerprint).values()
        assert curve == run.evaluations

    @both_databases
    def test_the_target_is_the_mean_of_the_first_protocol_alone(
        self, database: Database, runs: list[ImportedRun]
    ) -> None:
        import_runs(database, runs)
        trials = {trial.source: trial for trial in TrialStore(database).trials()}
        finals = [run.final_accuracy for run in runs[1:3]]
        assert {trial.target_accuracy for trial in trials.values()} == {sum(finals) / 2}
        assert trials["r32/lost"].time_to_accuracy_seconds is None
        before = content(database)
        report = import_runs(database, runs)
        assert (report.imported_runs, report.present_runs) == (0, 5)
        assert content(database) == before

    def test_without_such_runs_there_is_none(
        self, database: Database, runs: list[ImportedRun]
    ) -> None:
        import_runs(database, runs[:1])
        (trial,) = TrialStore(database).trials()
        assert trial.target_accuracy is None

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"switch_percent": 41}, "candidate_percent is 41.0, was 50.0"),
            ({"replicate": 3}, "replicate is 3, was 1"),
            ({"diverged": "yes"}, "diverged is True, was False"),
            ({"training_seconds": 3000}, "training_seconds is 3000.0, was 2000.0"),
            ({"worker_steps": 8001}, "worker_steps is 8001, was 8000"),
            ({"workers": 16}, "its workload differs"),
        ],
    )
    def test_what_is_there_with_other_values_is_told_and_left_alone(
        self,
        database: Database,
        runs: list[ImportedRun],
        tmp_path: Path,
        change: dict[str, Any],
        message: str,
    ) -> None:
        import_runs(database, runs)
        before = content(database)
        changed = read(tmp_path, rows("r32", "new"), rows("r32", "b50", **change))
        with pytest.raises(RecordingError, match="r32/b50 is not what was imported") as error:
            import_runs(database, changed)
        assert message in str(error.value)
        assert content(database) == before

    def test_a_run_with_other_tests_is_another_one(
        self, database: Database, runs: list[ImportedRun], tmp_path: Path
    ) -> None:
        import_runs(database, runs)
        fewer = rows("r32", "b50")
        del fewer[3]
        with pytest.raises(RecordingError, match="evaluations is 18, was 19"):
            import_runs(database, read(tmp_path, fewer))

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


class TestCommand:
    def invoke(self, folder: Path, *words: object) -> Result:
        storage = ("--storage", f"sqlite:///{folder}/syncswitch.db")
        return CliRunner().invoke(main, ["import", *map(str, words), *storage])

    def test_says_what_went_in(self, tmp_path: Path) -> None:
        table = write_table(tmp_path / "runs.csv", rows("r32", "a"), rows("r32", "b", 100))
        done = self.invoke(tmp_path, table)
        assert (done.exit_code, done.stderr) == (0, "")
        assert done.stdout.splitlines() == [
            "runs: 2 imported (24 evaluations), 0 already there",
            "workload r32, 8 workers, bsp,asp",
        ]
        again = json.loads(self.invoke(tmp_path, table, "--json").stdout)
        (workload,) = again.pop("workloads")
        assert len(workload.pop("fingerprint")) == 64
        assert workload == {
            "workload": "r32",
            "workers": 8,
            "first_protocol": "bsp",
            "second_protocol": "asp",
        }
        assert again == {"imported_runs": 0, "already_there_runs": 2, "imported_evaluations": 0}

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["no.csv"], "'no.csv' does not exist"),
            (["."], "'.' is a directory"),
            ([], "Missing argument 'TABLE'"),
            (["{folder}/bad.csv"], "lacks the columns workload"),
        ],
    )
    def test_a_wrong_argument_is_one_line_and_makes_no_database(
        self, tmp_path: Path, words: list[str], message: str
    ) -> None:
        (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
        done = self.invoke(tmp_path, *(word.format(folder=tmp_path) for word in words))
        assert (done.exit_code, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert message in line
        assert not (tmp_path / "syncswitch.db").exists()
