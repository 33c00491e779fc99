from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from syncswitch.storage.errors import RecordingError
from syncswitch.storage.importing import imported_run
from syncswitch.storage.importing.imported_run import ImportedRun, Measurements, read_imported_run
from syncswitch.storage.importing.manifest import ManifestRow, read_manifest
from syncswitch.storage.importing.run_logs import LogRow, RecordedLog, read_run_log
from syncswitch.storage.records.trial import PhaseRecord
from tests.recordings import PAPER, STARTED, needs_paper, write_log, write_run


def row(**values: Any) -> ManifestRow:
    content = {
        "line": 2,
        "setup": "r32",
        "run_dir": "run",
        "first_protocol": "bsp",
        "second_protocol": "asp",
        "switch_percent": 50.0,
        "replicate": 1,
        "workers": 8,
        "total_worker_steps": 8000,
    }
    return ManifestRow.model_validate(content | values)


def read(logs: Path, **values: Any) -> ImportedRun:
    return read_imported_run(row(**values), logs)


def measured(logs: Path, **values: Any) -> Measurements:
    found = read(logs, **values).measured
    assert found is not None
    return found


def test_a_run_with_a_switch(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    run = read(tmp_path, stands_for_percent=40.0)
    found = run.measured
    assert found is not None
    assert (run.candidate_percent, run.switch_percent, run.replicate) == (40.0, 50.0, 1)
    assert (run.diverged, run.notes, found.stopped_early) == (False, (), False)
    assert found.worker_steps == 8000
    assert found.training_seconds == pytest.approx(2000.0)
    assert found.switch_overhead_seconds == pytest.approx(100.0)
    assert [(p.protocol, p.start_worker_step, p.end_worker_step) for p in found.phases] == [
        ("bsp", 0, 4000),
        ("asp", 4000, 8000),
    ]
    assert [phase.seconds for phase in found.phases] == pytest.approx([1000.0, 1000.0])
    assert {(p.mean_staleness, p.max_staleness) for p in found.phases} == {(None, None)}
    started = datetime.fromtimestamp(STARTED, timezone.utc)
    assert (found.started_at, found.ended_at) == (started, started + timedelta(seconds=2100))


def test_its_evaluations(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    found = measured(tmp_path).evaluations
    assert [e.worker_step for e in found] == [0, 2000, 4000, *range(4250, 8001, 250)]
    assert [e.elapsed_seconds for e in found[:5]] == pytest.approx([0, 500, 1000, 1062.5, 1125])
    assert found[1].accuracy == 0.9 * 0.75
    assert found[0].training_loss == 2.0
    assert found[1].training_loss == pytest.approx(sum(2 / (1 + n) for n in range(1, 6)) / 5)


def test_the_accuracy_is_that_of_the_last_evaluation(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    found = measured(tmp_path)
    assert found.final_accuracy == found.evaluations[-1].accuracy
    assert found.converged


def test_a_run_whose_accuracy_still_moves_has_not_converged(tmp_path: Path) -> None:
    write_run(tmp_path / "run", switch_step=1000, last_step=1000, pauses=())
    assert not measured(tmp_path, switch_percent=100.0).converged


@pytest.mark.parametrize(
    ("percent", "last_step", "protocol"), [(100.0, 1000, "bsp"), (0.0, 8000, "asp")]
)
def test_a_run_with_one_protocol_has_one_phase(
    tmp_path: Path, percent: float, last_step: int, protocol: str
) -> None:
    write_run(tmp_path / "run", switch_step=0, last_step=last_step, pauses=())
    found = measured(tmp_path, switch_percent=percent)
    seconds = last_step * 0.25
    assert found.phases == (PhaseRecord(protocol, 0, 8000, seconds, None, None),)
    assert found.switch_overhead_seconds == 0.0


def test_an_interruption_is_neither_training_nor_switch(tmp_path: Path) -> None:
    write_run(tmp_path / "run", switch_step=0, last_step=8000, pauses=[(3010, 500.0)])
    run = read(tmp_path, switch_percent=0.0)
    assert run.measured is not None
    assert run.measured.training_seconds == pytest.approx(2000.0)
    assert run.measured.switch_overhead_seconds == 0.0
    assert run.notes == ("interrupted for 500 s after step 3000, which are no training time",)


def test_the_time_that_a_processed_log_gives_is_taken(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    (tmp_path / "run/acc_proc.csv").write_text(
        "Wall time,Step,Time\n0,0,0\n1,250,480\n2,500,960\n3,4500,1960\n"
    )
    found = measured(tmp_path)
    assert found.training_seconds == 1960.0
    assert found.switch_overhead_seconds == pytest.approx(140.0)
    assert found.phases[0].seconds == 960.0
    assert found.evaluations[1].elapsed_seconds == 480.0


def test_a_processed_log_of_a_run_without_a_switch_tells_of_an_interruption(tmp_path: Path) -> None:
    write_run(tmp_path / "run", switch_step=0, last_step=8000, pauses=[(3010, 500.0)])
    (tmp_path / "run/acc_proc.csv").write_text("Wall time,Step,Time\n0,0,0\n1,8000,2000\n")
    run = read(tmp_path, switch_percent=0.0)
    assert run.measured is not None
    assert (run.measured.training_seconds, run.measured.switch_overhead_seconds) == (2000.0, 0.0)
    assert run.notes == ("interrupted for 500 s, which are no training time",)


def test_where_one_evaluation_is_left_the_loss_tells_the_time(tmp_path: Path) -> None:
    write_run(tmp_path / "run", switch_step=0, last_step=8000, pauses=())
    late = STARTED + 100_000
    write_log(tmp_path / "run/acc.csv", [LogRow(late, 8000, 0.9)])
    found = measured(tmp_path, switch_percent=0.0)
    assert found.training_seconds == 2000.0
    assert [e.elapsed_seconds for e in found.evaluations] == [2000.0]
    assert found.ended_at < datetime.fromtimestamp(late, timezone.utc)


def test_too_few_rows_to_measure_the_restart_are_noted(tmp_path: Path) -> None:
    write_log(
        tmp_path / "run/acc.csv",
        [LogRow(STARTED, 0, 0.1), LogRow(STARTED + 2100, 4500, 0.9)],
    )
    run = read(tmp_path)
    assert run.measured is not None
    assert run.measured.switch_overhead_seconds == 0.0
    assert run.measured.training_seconds == 2100.0
    assert run.notes == (
        "too few rows on both sides of the switch to tell its restart from training",
    )


def test_a_run_that_took_no_time_is_refused(tmp_path: Path) -> None:
    rows = [LogRow(STARTED, step, 0.5) for step in (0, 500, 1000)]
    write_log(tmp_path / "run/acc.csv", rows)
    with pytest.raises(RecordingError, match="say 0 s of training for steps 0 to 1000; correct"):
        read(tmp_path, switch_percent=100.0)


class TestLength:
    def test_a_run_that_says_more_than_its_job_has_another_label(self, tmp_path: Path) -> None:
        write_run(tmp_path / "run")
        with pytest.raises(RecordingError) as error:
            read(tmp_path, switch_percent=75.0)
        assert str(error.value) == (
            "its last step 4500 would be worker-step 9750 of 8000 with a switch at 75 %, but 8000"
            " with one at 50.0 %; correct the manifest"
        )

    def test_a_run_that_seems_short_but_switched_elsewhere_has_another_label(
        self, tmp_path: Path
    ) -> None:
        write_run(tmp_path / "run")
        with pytest.raises(RecordingError, match=r"but 8000 with one at 50\.0 %"):
            read(tmp_path, switch_percent=25.0)

    @pytest.mark.parametrize(("last_step", "is_early"), [(4350, False), (4300, True)])
    def test_a_run_that_ends_well_before_its_job_stopped_early(
        self, tmp_path: Path, last_step: int, is_early: bool
    ) -> None:
        write_run(tmp_path / "run", last_step=last_step)
        run = read(tmp_path)
        assert run.measured is not None
        assert run.measured.stopped_early is is_early
        assert run.measured.worker_steps == last_step + 3500
        expected = (f"stopped early: ends at worker-step {last_step + 3500} of 8000",)
        assert run.notes == (expected if is_early else ())

    def test_a_run_that_ends_before_its_switch_has_one_phase(self, tmp_path: Path) -> None:
        write_run(tmp_path / "run", last_step=400, pauses=())
        found = measured(tmp_path)
        assert found.phases == (PhaseRecord("bsp", 0, 3200, 500.0, None, None),)
        assert found.stopped_early

    def test_steps_in_flight_at_the_end_are_no_contradiction(self, tmp_path: Path) -> None:
        write_run(tmp_path / "run", last_step=4550)
        assert measured(tmp_path).worker_steps == 8050


class TestDivergence:
    def test_without_logs_it_is_all_that_is_known(self, tmp_path: Path) -> None:
        run = read(tmp_path, run_dir=None, diverged=True)
        assert run.diverged
        assert run.measured is None

    @pytest.mark.parametrize(
        ("loss", "diverged"), [(0.5, False), (math.nan, True), (math.inf, True)]
    )
    def test_the_last_loss_decides_where_nothing_is_declared(
        self, tmp_path: Path, loss: float, diverged: bool
    ) -> None:
        write_run(tmp_path / "run")
        with (tmp_path / "run/loss.csv").open("a") as file:
            file.write(f"{STARTED + 2100},4501,{loss}\n")
        assert read(tmp_path).diverged is diverged
        assert read(tmp_path, diverged=False).diverged is False

    def test_its_evaluations_end_where_the_accuracy_is_no_number(self, tmp_path: Path) -> None:
        write_run(tmp_path / "run")
        rows = read_run_log(tmp_path / "run").accuracy
        rows[7] = rows[7]._replace(value=math.nan)
        rows[:7] = [row._replace(value=0.5) for row in rows[:7]]
        write_log(tmp_path / "run/acc.csv", rows)
        run = read(tmp_path, diverged=True)
        assert run.measured is not None
        assert [e.accuracy for e in run.measured.evaluations] == [0.5] * 7
        assert (run.diverged, run.measured.final_accuracy) == (True, 0.5)
        assert not run.measured.converged
        # It went on and took its time all the same.
        assert run.measured.worker_steps == 8000
        assert run.measured.training_seconds == pytest.approx(2000.0)
        for diverged in (None, False):
            with pytest.raises(RecordingError, match="value nan"):
                read(tmp_path, diverged=diverged)

    def test_losses_that_are_no_numbers_are_left_out_of_means(self, tmp_path: Path) -> None:
        write_run(tmp_path / "run")
        rows = [LogRow(STARTED + 1, 100, math.nan), LogRow(STARTED + 2, 200, 0.5)]
        write_log(tmp_path / "run/loss.csv", rows)
        first, second, third, *_ = measured(tmp_path).evaluations
        assert math.isnan(first.training_loss)
        assert second.training_loss == 0.5
        assert math.isnan(third.training_loss)


def test_an_unknown_protocol_cannot_be_counted(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    with pytest.raises(RecordingError, match="'bps'"):
        read(tmp_path, first_protocol="bps")


def test_a_folder_with_an_impossible_name_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot read x"):
        read(tmp_path, run_dir="x" * 300)


@needs_paper
class TestPaper:
    def rows(self) -> tuple[ManifestRow, ...]:
        return read_manifest(PAPER / "manifest.csv").rows

    def read(self, name: str) -> ImportedRun:
        (row,) = [row for row in self.rows() if row.run_dir == f"cifar10_res32/{name}"]
        return read_imported_run(row, PAPER / "logs")

    @pytest.mark.parametrize(
        ("name", "percent"),
        [("switch_exp/a50-b50-run2", "75.0"), ("switch_exp/b15-a85-run4", "25.0")],
    )
    def test_the_two_runs_with_wrong_labels_are_found(self, name: str, percent: str) -> None:
        with pytest.raises(RecordingError, match=f"64000 with one at {percent} %"):
            self.read(name)

    def test_the_interrupted_run(self) -> None:
        run = self.read("baseline/bsp_1")
        assert run.measured is not None
        assert run.measured.training_seconds == 18523.0
        assert run.measured.switch_overhead_seconds == 0.0
        assert run.notes == ("interrupted for 2779 s, which are no training time",)

    def test_measured_restarts_are_near_those_that_the_authors_removed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The authors leave the first slow steps after a restart in the training time."""

        def without_clock(folder: Path, *, has_diverged: bool) -> RecordedLog:
            log = read_run_log(folder, has_diverged=has_diverged)
            return RecordedLog(log.accuracy, log.loss, None)

        def training_seconds() -> list[float]:
            found = []
            for row in self.rows():
                is_mislabelled = str(row.run_dir).endswith(("a50-b50-run2", "b15-a85-run4"))
                if row.run_dir and 0 < row.switch_percent < 100 and not is_mislabelled:
                    run = read_imported_run(row, PAPER / "logs").measured
                    assert run is not None
                    found.append(run.training_seconds)
            return found

        theirs = training_seconds()
        monkeypatch.setattr(imported_run, "read_run_log", without_clock)
        ours = training_seconds()
        deviations = [our / their - 1 for our, their in zip(ours, theirs, strict=True)]
        assert len(deviations) == 63
        assert abs(sum(deviations) / len(deviations)) < 0.012
        assert max(map(abs, deviations)) < 0.055
