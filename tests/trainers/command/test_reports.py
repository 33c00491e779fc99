"""What a command reports: lines, the files they stand in, and the run that they make."""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.command.reports import (
    GrowingFile,
    Report,
    ReportLog,
    compile_pattern,
    last_lines,
    parse_json,
    parse_pattern,
    size_bytes,
)
from tests.identities import GENERATED
from tests.trainers.command.programs import says, trial

PATTERN = (
    r"step (?P<step>\S+) acc (?P<accuracy>\S+)"
    r"(?: after (?P<seconds>\S+) s)?(?: loss (?P<loss>\S+))?"
)


def test_a_line_is_a_report() -> None:
    line = '{"step": 100, "seconds": 12.5, "accuracy": 0.91, "loss": 0.25, "epoch": 3}'
    assert parse_json(line) == Report(100, 12.5, 0.91, 0.25)
    assert parse_json('{"step": 7}\r') is not None


@pytest.mark.parametrize("line", ["", "  ", '{"epoch": 3}', '{"loss": 0.3}'])
def test_a_line_about_something_else_says_nothing(line: str) -> None:
    assert parse_json(line) is None


@pytest.mark.parametrize(
    "line",
    [
        '{"diverged": true}',
        '{"step": 5, "diverged": true, "accuracy": 7}',
        '{"step": 5, "accuracy": NaN}',
        '{"step": 5, "accuracy": 0.5, "loss": Infinity}',
        '{"accuracy": NaN}',
    ],
)
def test_what_is_no_number_any_more_has_diverged(line: str) -> None:
    report = parse_json(line)
    assert report is not None
    assert report.diverged


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("step 5", "it is not valid JSON: 'step 5'; give lines such as"),
        ("[" * 100_000, "it is not valid JSON"),
        ("[1]", "it is not a JSON object"),
        ('{"accuracy": 0.5}', "step is None; give a whole number"),
        ('{"step": -1}', "step is -1"),
        ('{"step": 1.5}', "step is 1.5"),
        ('{"step": true}', "step is True"),
        ('{"step": 1, "accuracy": 91.2}', "accuracy is 91.2; give a number from 0 to 1"),
        ('{"step": 1, "accuracy": "high"}', "accuracy is 'high'; give a number"),
        (f'{{"step": 1, "accuracy": 1{"0" * 400}}}', "accuracy is too large a number"),
        ('{"step": 1, "seconds": -3}', "seconds is -3"),
        ('{"step": 1, "seconds": NaN}', "seconds is nan"),
        ('{"step": 1, "diverged": 1}', "diverged is 1; give true or false"),
    ],
)
def test_garbage_is_refused(line: str, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message.replace("[", r"\[")) as error:
        parse_json(line)
    assert len(str(error.value)) < 300


@given(st.text() | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_whatever_is_written_is_read_or_refused(line: str) -> None:
    with suppress(ValueError):
        report = parse_json(line)
        assert report is None or report.step is None or report.step >= 0


def test_output_is_read_with_a_pattern() -> None:
    parse = parse_pattern(compile_pattern(PATTERN))
    assert parse("[rank0] step 20 acc 0.5 after 3.5 s loss 1e-3") == Report(20, 3.5, 0.5, 1e-3)
    found = parse("step 20 acc 0.5")
    assert found is not None
    assert (found.seconds, math.isnan(found.loss)) == (None, True)
    assert parse("nothing of the kind") is None
    in_percent = parse_pattern(compile_pattern(r"(?P<step>\d+): (?P<percent>\S+) %"))
    assert in_percent("20: 50 %") == Report(20, accuracy=0.5)
    diverged = parse("step 20 acc nan")
    assert diverged is not None
    assert diverged.diverged
    for line, message in (
        ("step x acc 0.5", "step is 'x', which is not a number"),
        ("step 5 acc 97%", "accuracy is '97%', which is not a number"),
        ("step 5 acc 97", "accuracy is 97; give a number from 0 to 1"),
    ):
        with pytest.raises(ValueError, match=message):
            parse(line)


LOSS = Metric("val_loss", "min", None, None, None)


def test_of_a_loss_less_is_better() -> None:
    line = (
        '{"step": 100, "val_loss": 0.231, "loss": 0.25, "accuracy": 0.9, "note": "x", "on": true}'
    )
    assert parse_json(line, LOSS) == Report(100, None, -0.231, 0.25, further={"accuracy": 0.9})
    diverged = parse_json('{"step": 100, "val_loss": NaN}', LOSS)
    assert diverged is not None
    assert diverged.diverged
    own = Metric("loss", "min", None, None, None)
    assert parse_json('{"step": 1, "loss": 0.5}', own) == Report(1, None, -0.5, 0.5)


def test_a_loss_is_found_in_the_output() -> None:
    for group in ("val_loss", "value"):
        pattern = compile_pattern(rf"(?P<step>\d+): (?P<{group}>\S+) f1=(?P<f1>\S+)", LOSS)
        parse = parse_pattern(pattern, LOSS)
        assert parse("20: 1.25 f1=0.5") == Report(20, None, -1.25, further={"f1": 0.5})
    with pytest.raises(UserError, match="has no group named val_loss; give one such as 'step"):
        compile_pattern(r"(?P<step>\d+) (?P<accuracy>\S+)", LOSS)


def test_of_many_further_values_the_first_fifty_are_kept() -> None:
    line = json.dumps({"step": 1, "accuracy": 0.5, **{f"value {n}": n for n in range(60)}})
    report = parse_json(line)
    assert report is not None
    assert list(report.further) == [f"value {n}" for n in range(50)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(", "is not a regular expression"),
        (r"step (\d+)", "has no group named step and none named accuracy"),
        (r"(?P<step>\d+)", "has no group named accuracy"),
    ],
)
def test_a_pattern_that_finds_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        compile_pattern(text)


IDENTITY = replace(
    GENERATED,
    total_worker_steps=100,
    learning_rate_boundaries=None,
    workers=1,
    first_protocol="ddp",
    second_protocol="local-sgd",
)


def course(switch_percent: float = 50.0, **fields: Any) -> ReportLog:
    return ReportLog(TrialSpec(replace(IDENTITY, **fields), switch_percent, seed=1))


def followed(*reports: tuple[int, float | None, float | None]) -> ReportLog:
    """A run that said (step, seconds, accuracy); each line comes a second after the one before."""
    found = course()
    for now, (step, seconds, accuracy) in enumerate(reports, 1):
        found.add(Report(step, seconds, accuracy), float(now))
    return found


def test_times_are_those_that_the_command_says() -> None:
    result = followed((40, 4.0, 0.5), (50, 5.0, None), (100, 7.5, 0.75)).record()
    assert [e.elapsed_seconds for e in result.evaluations] == [4.0, 7.5]
    assert [(p.protocol, p.end_worker_step, p.seconds) for p in result.phases] == [
        ("ddp", 50, 5.0),
        ("local-sgd", 100, 2.5),
    ]
    assert (result.worker_steps, result.training_seconds) == (100, 7.5)


def test_times_between_reports_are_interpolated() -> None:
    result = followed((40, 4.0, 0.5), (60, 5.0, 0.6), (100, 9.0, 0.75)).record()
    assert [phase.seconds for phase in result.phases] == [4.5, 4.5]


def test_the_clock_on_the_wall_counts_where_the_command_has_none() -> None:
    result = followed((40, None, 0.5), (100, None, 0.75)).record()
    assert [e.elapsed_seconds for e in result.evaluations] == [1.0, 2.0]


def test_a_report_of_step_0_begins_the_training() -> None:
    result = followed((0, None, None), (40, None, 0.5), (100, None, 0.75)).record()
    assert [e.elapsed_seconds for e in result.evaluations] == [1.0, 2.0]
    assert result.training_seconds == 2.0


def test_what_is_reported_again_is_passed_over() -> None:
    """Each process of a training may report, and one may start again from a checkpoint."""
    found = followed((50, 5.0, 0.5), (50, 5.1, 0.4), (40, 6.0, 0.1), (100, 9.0, 0.7))
    assert [(e.worker_step, e.accuracy) for e in found.record().evaluations] == [
        (50, 0.5),
        (100, 0.7),
    ]


def test_a_last_report_before_the_end_is_continued_at_its_speed() -> None:
    found = followed((40, 4.0, 0.5), (80, 6.0, 0.6))
    found.check_whole()
    result = found.record()
    assert result.worker_steps == 100
    assert result.training_seconds == 7.0
    assert result.phases[-1].end_worker_step == 100


@pytest.mark.parametrize("steps", [(20, 40), (20, 40, 50), (50,)])
def test_a_command_that_ends_too_early_is_refused(steps: tuple[int, ...]) -> None:
    found = followed(*((step, step / 10, 0.5) for step in steps))
    with pytest.raises(UserError, match=rf"step {steps[-1]} of --total-steps 100; give the number"):
        found.check_whole()


def test_a_run_that_is_stopped_ends_with_its_last_report() -> None:
    result = followed((20, 2.0, 0.5), (40, 4.0, 0.5)).record(stopped_early=True)
    assert (result.worker_steps, result.training_seconds) == (40, 4.0)
    assert [phase.protocol for phase in result.phases] == ["ddp"]


@pytest.mark.parametrize(
    "last", [Report(60, 6.0, diverged=True), Report(None, diverged=True), Report(20, diverged=True)]
)
def test_a_diverged_run_ends_with_what_is_known(last: Report) -> None:
    found = followed((40, 4.0, 0.5))
    assert found.add(last, 7.0) is None
    result = found.record()
    assert result.diverged
    assert (result.worker_steps, result.training_seconds) in [(60, 6.0), (40, 4.0)]
    assert len(result.evaluations) == 1


def test_one_that_diverges_at_once_has_nothing() -> None:
    found = course()
    found.add(Report(None, diverged=True), 0.5)
    result = found.record()
    assert (result.worker_steps, result.phases, result.evaluations) == (0, (), ())


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (Report(101, 9.0, 0.5), "step is 101, beyond the 100 of --total-steps"),
        (Report(60, 3.0, 0.5), "seconds is 3 after 4"),
        (Report(60, None, 0.5), "some lines have seconds and others have none"),
    ],
)
def test_what_does_not_fit_is_refused(report: Report, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        followed((40, 4.0, 0.5)).add(report, 9.0)


@given(
    st.lists(st.integers(1, 100), min_size=1, unique=True).map(sorted),
    st.floats(0, 100),
    st.lists(st.floats(0, 10), min_size=100, max_size=100),
)
def test_phases_are_the_whole_run(steps: list[int], percent: float, lasts: list[float]) -> None:
    found, seconds = course(percent), 0.0
    for step, last in zip(steps, lasts, strict=False):
        seconds += last
        found.add(Report(step, seconds, 0.5), math.inf)
    result = found.record()
    assert result.worker_steps == 100
    assert result.training_seconds >= seconds
    assert sum(phase.seconds for phase in result.phases) == pytest.approx(result.training_seconds)
    assert result.phases[0].start_worker_step == 0
    assert result.phases[-1].end_worker_step == 100
    assert [e.worker_step for e in result.evaluations] == steps


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


def append(path: Path, text: str | bytes) -> None:
    with path.open("ab") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def test_a_half_written_line_is_waited_for(path: Path) -> None:
    growing = GrowingFile(path)
    assert list(growing.new_lines()) == []
    append(path, "one\ntw")
    assert list(growing.new_lines()) == [(1, "one")]
    assert list(growing.new_lines()) == []
    append(path, "o\nthree")
    assert list(growing.new_lines()) == [(2, "two")]
    assert list(growing.new_lines(is_over=True)) == [(3, "three")]
    assert list(growing.new_lines(is_over=True)) == []


def test_a_file_that_became_shorter_is_read_again(path: Path) -> None:
    growing = GrowingFile(path)
    append(path, "one\ntwo\nthr")
    assert len(list(growing.new_lines())) == 2
    path.write_text("one\n")
    assert list(growing.new_lines()) == [(1, "one")]


def test_a_progress_bar_ends_its_lines_otherwise(path: Path) -> None:
    growing = GrowingFile(path, rb"[\r\n]")
    append(path, "1 %\r2 %\r\n3 %")
    assert [line for _, line in growing.new_lines() if line] == ["1 %", "2 %"]


def test_what_is_no_text_is_read_all_the_same(path: Path) -> None:
    append(path, b"\xff\xfe\n")
    assert list(GrowingFile(path).new_lines()) == [(1, "\ufffd\ufffd")]


def test_a_line_without_end_does_not_fill_the_memory(path: Path) -> None:
    append(path, "x" * 3_000_000)
    growing = GrowingFile(path)
    found = [line for _ in range(3) for _, line in growing.new_lines()]
    assert sum(map(len, found)) > 2_000_000


def test_a_flood_is_read_in_parts_and_to_its_end_when_it_is_over(path: Path) -> None:
    append(path, "1234567\n" * 500_000)
    growing = GrowingFile(path)
    first = len(list(growing.new_lines()))
    assert 0 < first < 200_000
    assert first + len(list(growing.new_lines(is_over=True))) == 500_000


def test_what_is_no_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        list(GrowingFile(tmp_path).new_lines())
    assert last_lines(tmp_path / "gone", 3) == []


@given(st.lists(st.text("ab\n", max_size=5)))
def test_however_it_grows_the_lines_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str]
) -> None:
    path = tmp_path_factory.mktemp("growing") / "file"
    growing, found = GrowingFile(path), []
    for part in parts:
        append(path, part)
        found += growing.new_lines()
    found += growing.new_lines(is_over=True)
    lines = "".join(parts).split("\n")
    expected = lines if lines[-1] else lines[:-1]
    assert found == list(enumerate(expected, 1))


def test_only_the_end_is_shown(path: Path) -> None:
    append(path, "first\n" + "x" * 50_000 + "\n\n last \nend")
    assert last_lines(path, 2) == ["last", "end"]
    assert size_bytes(path) > 50_000
    assert size_bytes(path.with_name("none")) == 0


def test_a_pipe_in_the_place_of_the_file_is_refused(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(UserError, match="cannot be read: it is not a regular file"):
        list(GrowingFile(path).new_lines())
    assert last_lines(path, 3) == []


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
    expected = where and f"the command has not reported its accuracy so far{where}"
    assert log.no_accuracy(1e6, 0, is_heard=False) == expected


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
    found = log.no_accuracy(seconds, lines, is_heard=is_heard)
    assert (found is not None) == is_told
