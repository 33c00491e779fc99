"""The published runs are those of the authors' logs and tables."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from reproduction.logs import read_released_runs, write_table
from reproduction.published import TABLES, PublishedRow
from syncswitch.searcher.strategies.early_stopping import StopRule
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.importing import import_runs, read_table
from syncswitch.trainers.replay.recording import RecordedRun, read_recording
from tests.reproduction.published import INTERVAL, RUNS, Run, SwitchPoint
from tests.reproduction.recordings import PAPER, needs_paper

STOP = StopRule(precision=0.005)


def run_of(recorded: RecordedRun) -> Run | None:
    if recorded.diverged:
        return None
    known = STOP.known_at(recorded.evaluations, recorded.switch_worker_step)
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
        percent: [run_of(one) for one in recording.at(percent)]
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
