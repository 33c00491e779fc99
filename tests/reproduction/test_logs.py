"""The authors' folder names and logs are read as what was run and measured, and so published."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reproduction.logs import (
    SETUPS,
    Clock,
    LogRow,
    Pause,
    Phases,
    ReleasedRun,
    latest_attempt,
    pauses,
    read_log,
    read_released_runs,
    rows_of,
    switch_seconds,
    write_table,
)
from reproduction.published import TABLES, PublishedRow
from syncswitch.searcher.strategies.early_stopping import StopRule
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.importing import import_runs, read_table
from syncswitch.trainers.replay import RecordedRun, read_recording
from tests.failing import fails
from tests.reproduction.published import INTERVAL, RUNS, Run, SwitchPoint
from tests.reproduction.recordings import PAPER, STARTED, log_rows, needs_paper, walls, write_log


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("cifar10_res32/baseline/bsp_1", ("bsp", 100.0, 1, 8, 64_000, None)),
        ("cifar10_res32/baseline/bsp_6", ("bsp", 100.0, 6, 8, 64_000, 100.0)),
        ("cifar10_res32/baseline/asp_4", ("bsp", 0.0, 4, 8, 64_000, 0.0)),
        ("cifar10_res32/switch_exp/b50_a50_run5", ("bsp", 50.0, 5, 8, 64_000, 50.0)),
        ("cifar10_res32/switch_exp/b5-a95-run5", ("bsp", 5.0, 5, 8, 64_000, 6.25)),
        ("cifar10_res32/switch_exp/b5-a95-run6", ("bsp", 5.0, 6, 8, 64_000, None)),
        ("cifar10_res32/switch_exp/b15-a85-run4", ("bsp", 25.0, 4, 8, 64_000, None)),
        ("cifar10_res32/switch_exp/a25-b75-run3", ("asp", 25.0, 3, 8, 64_000, 25.0)),
        ("cifar10_res32/switch_exp/a50-b50-run2", ("asp", 75.0, 2, 8, 64_000, 75.0)),
        ("cifar100_res50/12_88_5", ("bsp", 12.5, 5, 8, 128_000, 12.5)),
        ("cifar100_res50/694_1", ("bsp", 6.25, 1, 8, 128_000, 6.25)),
        ("cluster_16/5050_run3", ("bsp", 50.0, 3, 16, 64_000, 50.0)),
    ],
)
def test_a_folder_says_what_was_run(
    tmp_path: Path, folder: str, expected: tuple[object, ...]
) -> None:
    (tmp_path / "data" / folder).mkdir(parents=True)
    run, *without_logs = read_released_runs(tmp_path).runs
    assert run.folder == folder
    setup = (run.setup.workers, run.setup.total_worker_steps)
    said = (run.protocols[0], run.switch_percent, run.number, *setup, run.stands_for_percent)
    assert said == expected
    assert set(run.protocols) == {"bsp", "asp"}
    lost = [(one.switch_percent, one.folder) for one in without_logs]
    assert lost == ([(25.0, "")] * 3 + [(0.0, "")] * 3 if run.setup.workers == 16 else [])


def test_what_a_name_does_not_say_is_left_out_and_named(tmp_path: Path) -> None:
    folders = ("bsp_10", "bsp_9", "b50-a40-run1", "notes")
    for name in folders:
        (tmp_path / "data/cifar10_res32/baseline" / name).mkdir(parents=True)
    found = read_released_runs(tmp_path)
    assert [run.folder[-6:] for run in found.runs] == ["/bsp_9", "bsp_10"]
    assert found.unread == tuple(f"cifar10_res32/baseline/{name}" for name in folders[2:])
    assert found.logs == tmp_path / "data"
    # Given the folder itself, it is the same.
    assert read_released_runs(tmp_path / "data") == found


def test_another_folder_is_refused_with_what_is_wanted(tmp_path: Path) -> None:
    with fails("recording-invalid"):
        read_released_runs(tmp_path)


def run_of(folder: str = "run", percent: float = 50.0, **changes: Any) -> ReleasedRun:
    small = replace(SETUPS[0], total_worker_steps=8000)
    return ReleasedRun(small, folder, ("bsp", "asp"), percent, 1, percent, **changes)


def write_run(folder: Path, *, last_step: int = 4500, **times: Any) -> None:
    """8 workers, the first half BSP: 500 steps of 2 s, then ASP: 4000 steps of 0.25 s."""
    times = {"switch_step": 500, "first_seconds": 2.0, "second_seconds": 0.25, **times}
    for name, interval in (("acc", 250), ("loss", 50)):
        steps = list(range(0, last_step + 1, interval))
        values = [0.9 / (1 + number) for number in range(len(steps))]
        write_log(folder / f"{name}.csv", log_rows(steps, walls(steps, **times), values))


def test_a_run_with_a_switch(tmp_path: Path) -> None:
    write_run(tmp_path / "run", pauses=[(500, 100.0)])
    rows = list(rows_of(run_of(), tmp_path))
    assert [row["worker_step"] for row in rows] == [0, 2000, 4000, *range(4250, 8001, 250)]
    seconds = [row["elapsed_seconds"] for row in rows[:5]]
    assert seconds == pytest.approx([0, 500, 1000, 1062.5, 1125])
    assert rows[0]["training_loss"] == 0.9
    mean = sum(0.9 / (1 + n) for n in range(1, 6)) / 5
    assert rows[1]["training_loss"] == pytest.approx(mean)
    first = rows[0]
    assert first["worker_steps"] == 8000
    assert first["training_seconds"] == pytest.approx(2000.0)
    assert first["first_phase_seconds"] == pytest.approx(1000.0)
    assert first["switch_overhead_seconds"] == pytest.approx(100.0)


def test_the_time_that_a_processed_log_gives_is_taken(tmp_path: Path) -> None:
    write_run(tmp_path / "run", pauses=[(500, 100.0)])
    (tmp_path / "run/acc_proc.csv").write_text(
        "Wall time,Step,Time\n0,0,0\n1,250,480\n2,500,960\n3,4500,1960\n"
    )
    first, second, *_ = rows_of(run_of(), tmp_path)
    assert first["training_seconds"] == 1960.0
    assert first["switch_overhead_seconds"] == pytest.approx(140.0)
    assert (first["first_phase_seconds"], second["elapsed_seconds"]) == (960.0, 480.0)


def test_without_a_switch_the_log_of_the_loss_may_tell_the_time(tmp_path: Path) -> None:
    without, whole = run_of(percent=0.0), {"switch_step": 0, "last_step": 8000}
    # An interruption is neither training nor switch.
    write_run(tmp_path / "run", **whole, pauses=[(3010, 500.0)])
    first, *_ = rows_of(without, tmp_path)
    assert first["training_seconds"] == pytest.approx(2000.0)
    assert first["switch_overhead_seconds"] == 0.0
    write_run(tmp_path / "run", **whole)
    write_log(tmp_path / "run/acc.csv", [LogRow(STARTED + 100_000, 8000, 0.9)])
    (row,) = rows_of(without, tmp_path)
    assert (row["training_seconds"], row["elapsed_seconds"]) == (2000.0, 2000.0)


def test_what_is_no_log_is_named(tmp_path: Path) -> None:
    with fails("recording-invalid"):
        read_log(tmp_path)
    (tmp_path / "acc.csv").write_text("Wall time,Step\n1,2\n")
    with fails("recording-invalid"):
        read_log(tmp_path)


def test_a_restarted_run_supersedes_what_it_had_written() -> None:
    rows = [LogRow(time, step, 0.0) for time, step in ((1, 0), (2, 100), (3, 200), (4, 100))]
    assert [(row.wall_time_seconds, row.step) for row in latest_attempt(rows)] == [(1, 0), (4, 100)]


def test_a_counter_that_runs_past_the_switch_hides_no_restart() -> None:
    steps = [*range(0, 16000, 100), 16011, 16014, *range(16100, 22000, 100)]
    speeds = {"switch_step": 16013, "first_seconds": 0.024, "second_seconds": 1.27}
    times = walls(steps, **speeds, pauses=[(16013, 300.0)])
    log = log_rows(steps, times, [0.5] * len(steps))
    (pause,) = pauses(log, Phases(16000, 1, 8, 16))
    assert pause.is_switch
    assert pause.seconds == pytest.approx(300.0, rel=0.02)


@pytest.mark.parametrize("seconds", [59.0, 350.0, 2779.0])
def test_what_is_short_or_merely_slow_is_no_interruption(seconds: float) -> None:
    steps = list(range(0, 8000, 100))
    times = walls(steps, pauses=[(5450, seconds)])
    found = pauses(log_rows(steps, times, [0.5] * 80), Phases(None, 8, 1, 16))
    long = [Pause(STARTED + 5400, seconds, 5400, is_switch=False)]
    assert found == (long if seconds > 400 else [])


def test_an_interval_is_shared_as_the_speeds_say() -> None:
    steps = [*range(0, 501, 50), *range(550, 4501, 50)]
    times = walls(steps, switch_step=500, first_seconds=2.0, second_seconds=0.25)
    log = log_rows(steps, times, [0.5] * len(steps))
    # Steps 400 to 500 take 200 s, 500 to 1700 take 300 s.
    clock = Clock([0, 400, 1700], [0.0, 800.0, 1300.0])
    assert switch_seconds(clock, Phases(500, 8, 1, 16), log) == 1000.0
    in_flight = Clock([0, 14000, 16013, 16263], [0.0, 340.0, 400.0, 700.0])
    assert switch_seconds(in_flight, Phases(16000, 1, 8, 16), []) == 400.0


@needs_paper
def test_all_released_runs_are_read(tmp_path: Path) -> None:
    found = write_table(PAPER, tmp_path / "runs.csv")
    assert (len(found.runs), found.unread) == (84, ())
    assert [run.folder[-12:] for run in found.runs if run.is_corrected] == [
        "a50-b50-run2",
        "b15-a85-run4",
    ]
    runs = {run.source: run for run in read_table(tmp_path / "runs.csv")}
    assert sum(run.final_accuracy is None for run in runs.values()) == 6
    interrupted = runs["resnet32-cifar10-8/cifar10_res32/baseline/bsp_1"]
    assert interrupted.training_seconds == 18523.0
    assert interrupted.switch_overhead_seconds == 0.0


STOP = StopRule(precision=0.005)


def recorded_run(recorded: RecordedRun) -> Run | None:
    if recorded.diverged:
        return None
    known = STOP.settled_after(recorded.evaluations, recorded.switch_worker_step)
    accuracy = STOP.plateau_accuracy(recorded.evaluations, recorded.switch_worker_step)
    step = None if known is None else recorded.evaluations[known - 1].worker_step
    return Run(
        round(recorded.accuracy, 4),
        round(recorded.training_seconds, 1),
        round(recorded.first_seconds, 1),
        None if step is None else INTERVAL * round(step / INTERVAL),
        round(accuracy or 0.0, 4),
    )


def runs(logs: Path, tmp_path: Path, workers: int) -> dict[float, list[Run | None]]:
    with open_database(f"sqlite:///{tmp_path}/runs.db", create=True) as database:
        write_table(logs, tmp_path / "runs.csv")
        import_runs(database, read_table(tmp_path / "runs.csv"))
        name, pair = f"resnet32-cifar10-{workers}", ("bsp", "asp")
        recording = read_recording(database, name, workers=workers, protocols=pair)
    return {
        percent: [recorded_run(one) for one in recording.at(percent)]
        for percent in recording.switch_points
    }


def written(workers: int) -> dict[float, list[Run | None]]:
    return {switch_point.percent: list(found) for switch_point, found in RUNS[workers].items()}


@pytest.mark.parametrize("workers", [8, 16])
def test_the_logs_that_are_made_say_what_is_written(
    workers: int, published: Path, tmp_path: Path
) -> None:
    assert runs(published, tmp_path, workers) == written(workers)


@needs_paper
@pytest.mark.parametrize("workers", [8, 16])
def test_it_is_what_the_logs_say(workers: int, tmp_path: Path) -> None:
    assert runs(PAPER, tmp_path, workers) == written(workers)
    run_at = {
        SwitchPoint(run.stands_for_percent, run.switch_percent)
        for run in read_released_runs(PAPER).runs
        if (run.setup.workers, run.protocols) == (workers, ("bsp", "asp"))
        if run.stands_for_percent is not None
    }
    assert run_at == set(RUNS[workers])


@needs_paper
def test_it_is_what_the_tables_say() -> None:
    with (PAPER.parent / "tables.csv").open() as file:
        found = tuple(
            PublishedRow(
                line["table"],
                line["recurring"] == "yes",
                int(line["bsp_runs"]),
                int(line["candidate_runs"]),
                *(float(line[name]) for name in PublishedRow._fields[4:]),
            )
            for line in csv.DictReader(file)
        )
    assert found == TABLES
