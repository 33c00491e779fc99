"""What a command reports: lines, the files they stand in, and the run that they make."""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.files import last_lines
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.command.reports import (
    GrowingFile,
    RepeatedOutput,
    Report,
    ReportLog,
    parse_json,
    pattern_reader,
    size_bytes,
)
from tests.failing import fails
from tests.identities import GENERATED
from tests.records import changed
from tests.wording import Said

LOSS = Metric("val_loss", "min", None, None, None)


@pytest.mark.parametrize(
    ("line", "report"),
    [
        (
            '{"step": 100, "seconds": 12.5, "accuracy": 0.91, "loss": 0.25, "epoch": 3}',
            Report(100, 12.5, 0.91, 0.25),
        ),
        *((line, None) for line in ("", "  ", '{"epoch": 3}', '{"loss": 0.3}')),
        # What is no number any more has diverged.
        ('{"diverged": true}', Report(None, diverged=True)),
        ('{"accuracy": NaN}', Report(None, diverged=True)),
        (
            '{"step": 5, "loss": 1, "diverged": true, "accuracy": 7}',
            Report(5, None, 7, 1, diverged=True),
        ),
        ('{"step": 5, "accuracy": 0.5, "loss": Infinity}', Report(5, None, 0.5, math.inf, True)),
    ],
)
def test_a_line_is_a_report_or_says_nothing(line: str, report: Report | None) -> None:
    assert parse_json(line) == report


def test_the_key_of_the_steps_may_have_another_name() -> None:
    line = '{"iter": 100, "step": 7, "accuracy": 0.5}'
    assert parse_json(line, step_name="iter") == Report(100, None, 0.5)
    with pytest.raises(ValueError, match="step is None"):
        parse_json(line, step_name="batch")


def test_of_a_loss_less_is_better() -> None:
    line = (
        '{"step": 100, "val_loss": 0.231, "loss": 0.25, "accuracy": 0.9, "note": "x", "on": true}'
    )
    assert parse_json(line, LOSS) == Report(100, None, -0.231, 0.25, further=(("accuracy", 0.9),))
    own = Metric("loss", "min", None, None, None)
    assert parse_json('{"step": 1, "loss": 0.5}', own) == Report(1, None, -0.5, 0.5)
    line = json.dumps({"step": 1, "loss": 0.5, **{f"value {n}": n for n in range(60)}})
    report = parse_json(line, own)
    assert [name for name, _ in report.further] == [f"value {n}" for n in range(50)]


def test_garbage_is_refused(said: Said) -> None:
    for line in (
        "step 5",
        "[" * 100_000,
        "[1]",
        '{"accuracy": 0.5}',
        '{"step": -1}',
        '{"step": 1.5}',
        '{"step": true}',
        '{"step": 1, "accuracy": 91.2}',
        '{"step": 1, "accuracy": "high"}',
        f'{{"step": 1, "accuracy": 1{"0" * 400}}}',
        '{"step": 1, "seconds": -3}',
        '{"step": 1, "seconds": 1e308}',
        '{"step": 1, "seconds": NaN}',
        '{"step": 1, "diverged": 1}',
    ):
        with pytest.raises(
            ValueError, match=r"(it|step|accuracy|seconds|diverged) (is|has) "
        ) as refused:
            parse_json(line)
        said(refused.value)


@given(st.text() | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_whatever_is_written_is_read_or_refused(line: str) -> None:
    with suppress(ValueError):
        report = parse_json(line)
        assert report is None or report.step is None or report.step >= 0


PATTERN = (
    r"step (?P<step>\S+) acc (?P<accuracy>\S+)"
    r"(?: after (?P<seconds>\S+) s)?(?: loss (?P<loss>\S+))?"
)


def test_output_is_read_with_a_pattern() -> None:
    parse = pattern_reader(PATTERN)
    assert parse("[rank0] step 20 acc 0.5 after 3.5 s loss 1e-3") == Report(20, 3.5, 0.5, 1e-3)
    found = parse("step 20 acc 0.5")
    assert (found.seconds, math.isnan(found.loss)) == (None, True)
    assert parse("nothing of the kind") is None
    diverged = parse("step 20 acc nan")
    assert diverged.diverged
    in_percent = pattern_reader(r"(?P<step>\d+): (?P<percent>\S+) %")
    assert in_percent("20: 50 %") == Report(20, accuracy=0.5)
    for group in ("val_loss", "value"):
        one = pattern_reader(rf"(?P<step>\d+): (?P<{group}>\S+) f1=(?P<f1>\S+)", LOSS)
        found = one("20: 1.25 f1=0.5")
        assert found == Report(20, None, -1.25, further=(("f1", 0.5),))
    for line, message in (
        ("step x acc 0.5", "step is 'x', which is not a number"),
        ("step 5 acc 97%", "accuracy is '97%', which is not a number"),
        ("step 5 acc 97", "accuracy is 97; give a number from 0 to 1"),
    ):
        with pytest.raises(ValueError, match=message):
            parse(line)


@pytest.mark.parametrize(
    ("text", "metric", "message"),
    [
        ("(", Metric(), "is not a regular expression"),
        (r"step (\d+)", Metric(), "has no group named step and none named accuracy"),
        (r"(?P<step>\d+)", Metric(), "has no group named accuracy"),
        (r"(?P<step>\d+) (?P<accuracy>\S+)", LOSS, "no group named val_loss; give one such as"),
    ],
)
def test_a_pattern_that_finds_nothing_is_refused(text: str, metric: Metric, message: str) -> None:
    with fails("parameter-invalid", message):
        pattern_reader(text, metric)


IDENTITY = changed(
    GENERATED,
    total_worker_steps=100,
    learning_rate_boundaries=None,
    workers=1,
    first_protocol="ddp",
    second_protocol="local-sgd",
)


def course(switch_percent: float = 50.0, **fields: Any) -> ReportLog:
    return ReportLog(TrialSpec(changed(IDENTITY, **fields), switch_percent, seed=1))


def followed(*reports: tuple[int, float | None, float | None]) -> ReportLog:
    """A run that said (step, seconds, accuracy); each line comes a second after the one before."""
    found = course()
    for now, (step, seconds, accuracy) in enumerate(reports, 1):
        found.add(Report(step, seconds, accuracy), float(now))
    return found


Reported = tuple[int, float | None, float | None]


@pytest.mark.parametrize(
    ("reports", "tests", "phases"),
    [
        # Times are those that the command says, and interpolated between reports.
        (((40, 4.0, 0.5), (50, 5.0, None), (100, 7.5, 0.75)), {40: 4.0, 100: 7.5}, (5.0, 2.5)),
        (((40, 4.0, 0.5), (60, 5.0, 0.6), (100, 9.0, 0.75)), {40: 4, 60: 5, 100: 9}, (4.5, 4.5)),
        # The clock on the wall counts where the command has none; step 0 starts it.
        (((50, None, 0.5), (100, None, 0.75)), {50: 1.0, 100: 2.0}, (1.0, 1.0)),
        (((0, None, None), (50, None, 0.5), (100, None, 0.75)), {50: 1.0, 100: 2.0}, (1.0, 1.0)),
        # Each process of a training may report, and one may start again from a checkpoint.
        (
            ((50, 5.0, 0.5), (50, 5.1, 0.4), (40, 6.0, 0.1), (100, 9.0, 0.7)),
            {50: 5.0, 100: 9.0},
            (5.0, 4.0),
        ),
        # A last report before the end is continued at its speed.
        (((40, 4.0, 0.5), (80, 6.0, 0.6)), {40: 4.0, 80: 6.0}, (4.5, 2.5)),
    ],
)
def test_reports_make_the_record(
    reports: tuple[Reported, ...], tests: dict[int, float], phases: tuple[float, float]
) -> None:
    found = followed(*reports)
    found.check_whole()
    result = found.record()
    known = [(one.worker_step, one.elapsed_seconds) for one in result.evaluations]
    assert known == list(tests.items())
    assert result.evaluations[0].accuracy == 0.5
    assert [(p.protocol, p.end_worker_step, p.seconds) for p in result.phases] == [
        ("ddp", 50, phases[0]),
        ("local-sgd", 100, phases[1]),
    ]
    assert (result.worker_steps, result.training_seconds) == (100, sum(phases))


TWO = "two processes report the same steps with different values: 'rank 0: 20 0.2' and 'rank 1: 20"


@pytest.mark.parametrize(
    ("said", "is_refused"),
    [
        # Side by side, and one behind the other.
        ("0:20 1:20 0:40 1:40 0:60 1:60", True),
        ("0:20 0:40 0:60 0:100 1:60 1:40 1:20", True),
        # All say the same, or one starts again, from a checkpoint or the start.
        ("0:20 0:20 0:40 0:40 0:60 0:60 0:100", False),
        ("0:20 1:20 0:40 1:40 0:60 0:80 0:100", False),
        ("0:20 0:40 0:60 1:20 1:40 1:60 1:80 1:100", False),
    ],
)
def test_two_processes_that_report_different_values_are_named(said: str, is_refused: bool) -> None:
    log, message = course(), None
    for now, one in enumerate(said.split(), 1):
        rank, step = map(int, one.split(":"))
        accuracy = step / 100 - 0.01 * rank
        try:
            log.add(Report(step, None, accuracy), now, f"rank {rank}: {step} {accuracy:g}")
        except ValueError as error:
            message = str(error)
    assert (message is not None) == is_refused
    if message is not None:
        step = said.split()[-1].split(":")[1]
        assert message.startswith(TWO.replace("20 0.2", f"{step} 0.{step[0]}").replace("20", step))
        assert message.endswith("have one of them report, such as rank 0")


@pytest.mark.parametrize(
    ("first", "rest", "tests", "seconds"),
    [
        # From a checkpoint at 40: its clock begins there, and what it repeats is replaced.
        (
            ((20, 2.0, 0.2), (40, 4.0, 0.4), (60, 6.0, 0.6)),
            ((60, 2.5, 0.7), (100, 6.0, 0.9)),
            {20: (2.0, 0.2), 40: (4.0, 0.4), 60: (6.5, 0.7), 100: (10.0, 0.9)},
            10.0,
        ),
        # It reports the step at which it begins, with or without a test.
        (
            ((20, 2.0, 0.2), (40, 4.0, 0.4), (60, 6.0, 0.6)),
            ((40, 0.0, 0.5), (100, 6.0, 0.9)),
            {20: (2.0, 0.2), 40: (4.0, 0.4), 100: (10.0, 0.9)},
            10.0,
        ),
        (
            ((20, None, 0.2), (40, None, 0.4), (60, None, 0.6)),
            ((40, None, None), (100, None, 0.9)),
            {20: (1.0, 0.2), 40: (2.0, 0.4), 100: (3.0, 0.9)},
            3.0,
        ),
        # It has left no checkpoint.
        (
            ((20, 2.0, 0.2), (40, 4.0, 0.4)),
            ((20, 2.5, 0.3), (100, 9.0, 0.9)),
            {20: (2.5, 0.3), 100: (9.0, 0.9)},
            9.0,
        ),
        ((), ((100, 9.0, 0.9),), {100: (9.0, 0.9)}, 9.0),
    ],
)
def test_an_attempt_goes_on_where_the_one_before_left_a_checkpoint(
    first: tuple[Reported, ...],
    rest: tuple[Reported, ...],
    tests: dict[int, tuple[float, float]],
    seconds: float,
) -> None:
    log = followed(*first)
    log.restart()
    for now, (step, told_seconds, accuracy) in enumerate(rest, 1):
        log.add(Report(step, told_seconds, accuracy), float(now))
    log.check_whole()
    record = log.record()
    known = {one.worker_step: (one.elapsed_seconds, one.accuracy) for one in record.evaluations}
    assert known == tests
    assert record.training_seconds == seconds


@pytest.mark.parametrize("steps", [(20, 40), (20, 40, 50), (50,)])
def test_a_command_that_ends_too_early_is_refused(steps: tuple[int, ...]) -> None:
    found = followed(*((step, step / 10, 0.5) for step in steps))
    with fails("result-invalid", rf"step {steps[-1]} of 100; give the number"):
        found.check_whole()
    # A loop that reports before each interval leaves out the last one.
    found = followed(*((step, step / 10, 0.5) for step in range(0, 100, 10)))
    found.check_whole()
    assert found.record().training_seconds == 10.0


def test_a_run_that_is_stopped_or_diverges_ends_with_what_is_known() -> None:
    result = followed((20, 2.0, 0.5), (40, 4.0, 0.5)).record(stopped_early=True)
    assert (result.worker_steps, result.training_seconds) == (40, 4.0)
    assert [phase.protocol for phase in result.phases] == ["ddp"]
    for last, end in (
        (Report(60, 6.0, diverged=True), (60, 6.0)),
        (Report(None, diverged=True), (40, 4.0)),
        (Report(20, diverged=True), (40, 4.0)),
    ):
        found = followed((40, 4.0, 0.5))
        assert found.add(last, 7.0) is None
        result = found.record()
        assert result.diverged
        assert (result.worker_steps, result.training_seconds) == end
        assert len(result.evaluations) == 1
    found = course()
    found.add(Report(None, diverged=True), 0.5)
    result = found.record()
    assert (result.worker_steps, result.phases, result.evaluations) == (0, (), ())


@pytest.mark.parametrize(
    ("report", "message"),
    [
        (Report(101, 9.0, 0.5), "step is 101, beyond the 100 of the training"),
        (Report(60, 3.0, 0.5), "seconds is 3 after 4"),
        (Report(60, None, 0.5), "some lines have seconds and others have none"),
    ],
)
def test_what_does_not_fit_is_refused(report: Report, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        followed((40, 4.0, 0.5)).add(report, 9.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


def append(path: Path, text: str | bytes) -> None:
    with path.open("ab") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def test_lines_are_whole_and_read_again_where_the_file_became_shorter(path: Path) -> None:
    growing = GrowingFile(path)
    assert list(growing.new_lines()) == []
    append(path, "one\ntw")
    assert list(growing.new_lines()) == [(1, "one")]
    assert list(growing.new_lines()) == []
    append(path, b"o\n\xff\nthree")  # not all of it is text
    assert list(growing.new_lines()) == [(2, "two"), (3, "\ufffd")]
    path.write_text("one\nend")
    assert list(growing.new_lines()) == [(1, "one")]
    assert list(growing.new_lines(is_over=True)) == [(2, "end")]
    assert list(growing.new_lines(is_over=True)) == []
    bar = GrowingFile(path, rb"[\r\n]")
    path.write_text("1 %\r2 %\r\n3 %")
    assert [line for _, line in bar.new_lines() if line] == ["1 %", "2 %"]
    path.write_text("one\ntwo\n", encoding="utf-8-sig")  # a mark of the byte order
    assert list(GrowingFile(path).new_lines()) == [(1, "one"), (2, "two")]


def test_the_same_output_is_quoted_once() -> None:
    def failed(attempt: int, output: str) -> str:
        return f"it failed (its output: /runs/{attempt}/output.log); it printed last: {output}"

    told = RepeatedOutput().told
    first = failed(1, "File /runs/1/train.py, line 3 | ValueError: at 0x7f3a")
    assert told("a server was lost") == told("a server was lost") == "a server was lost"
    assert told(first) == first
    same = failed(2, "File /runs/2/train.py, line 3 | ValueError: at 0x8b1c")
    assert told(same) == "it failed (its output: /runs/2/output.log); it printed the same as before"
    other = failed(3, "KeyError: 3")
    assert told(other) == other


def test_a_flood_is_read_in_parts_and_to_its_end_when_it_is_over(path: Path) -> None:
    append(path, "1234567\n" * 500_000)
    growing = GrowingFile(path)
    first = len(list(growing.new_lines()))
    assert 0 < first < 200_000
    assert first + len(list(growing.new_lines(is_over=True))) == 500_000
    path.write_text("x" * 3_000_000)  # a line without end does not fill the memory
    found = [line for _ in range(3) for _, line in growing.new_lines()]
    assert sum(map(len, found)) > 2_000_000


def test_what_is_no_file_is_refused_and_of_others_the_end_is_shown(path: Path) -> None:
    with fails("result-invalid", "cannot be read: Is a directory"):
        list(GrowingFile(path.parent).new_lines())
    assert (last_lines(path, 3), size_bytes(path)) == ([], 0)
    append(path, "first\n" + "x" * 50_000 + "\n\n last \nend")
    assert last_lines(path, 2) == ["last", "end"]
    assert size_bytes(path) > 50_000
    path.unlink()
    os.mkfifo(path)
    with fails("result-invalid", "cannot be read: it is not a regular file"):
        list(GrowingFile(path).new_lines())
    assert last_lines(path, 3) == []


AT_20, AT_60 = ", at step 20 of 100", ", at step 60 of 100"


@pytest.mark.parametrize(
    ("reports", "start_step", "output", "where"),
    [
        # Steps are to bring an accuracy within a fifth of the run.
        ([Report(19)], 0, (1e6, 0, False), None),
        ([Report(20)], 0, (1e6, 0, False), AT_20),
        ([Report(20, accuracy=0.5), Report(100)], 0, (1e6, 0, False), None),
        ([Report(20, diverged=True)], 0, (1e6, 0, False), None),
        ([Report(59)], 50, (1e6, 0, False), None),
        ([Report(60)], 50, (1e6, 0, False), AT_60),
        # Output is to bring a step within a minute or a hundred lines.
        ([], 0, (60.0, 99, True), None),
        ([], 0, (60.1, 0, True), ""),
        ([], 0, (0.0, 100, True), ""),
        ([], 50, (60.1, 0, False), None),
    ],
)
def test_a_run_that_reports_no_accuracy_is_told_early(
    reports: list[Report], start_step: int, output: tuple[float, int, bool], where: str | None
) -> None:
    log = ReportLog(TrialSpec(IDENTITY, 50.0, seed=1), start_step)
    for report in reports:
        log.add(report, 1.0)
    seconds, lines, is_heard = output
    assert log.lacks_accuracy(seconds, lines, is_heard=is_heard) == where
