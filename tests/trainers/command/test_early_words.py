from __future__ import annotations

from pathlib import Path

import pytest

from syncswitch.trainers.command.report_log import ReportLog
from syncswitch.trainers.command.results import Report
from syncswitch.trainers.command.trainer import no_accuracy
from tests.trainers.command.programs import says, trial


@pytest.mark.parametrize(
    ("reports", "start_step", "where"),
    [
        ([Report(19)], 0, None),
        ([Report(20)], 0, ", at step 20 of 100"),
        ([Report(20, accuracy=0.5), Report(100)], 0, None),
        ([Report(20, diverged=True)], 0, None),
        ([], 50, None),
        ([Report(59)], 50, None),
        ([Report(60)], 50, ", at step 60 of 100"),
    ],
)
def test_steps_are_to_bring_an_accuracy_within_a_fifth_of_the_run(
    reports: list[Report], start_step: int, where: str | None, tmp_path: Path
) -> None:
    log = ReportLog(trial(says(tmp_path, "")), start_step)
    for report in reports:
        log.add(report, 1.0)
    expected = where and f"the command has said nothing of its accuracy so far{where}"
    assert no_accuracy(log, 100, 1e6, 0, is_heard=False) == expected


@pytest.mark.parametrize(
    ("seconds", "lines", "is_heard", "is_told"),
    [
        (60.0, 99, True, False),
        (60.1, 0, True, True),
        (0.0, 100, True, True),
        (60.1, 0, False, False),
    ],
)
def test_output_is_to_bring_a_step(
    seconds: float, lines: int, tmp_path: Path, *, is_heard: bool, is_told: bool
) -> None:
    log = ReportLog(trial(says(tmp_path, "")))
    found = no_accuracy(log, 100, seconds, lines, is_heard=is_heard)
    assert (found is not None) == is_told
