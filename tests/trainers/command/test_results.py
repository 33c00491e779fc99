from __future__ import annotations

import json
import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.metric import Metric
from syncswitch.trainers.command.results import (
    Report,
    compile_pattern,
    parse_json,
    parse_pattern,
)

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
        ("step 5", "it is no JSON: 'step 5'; give lines such as"),
        ("[" * 100_000, "it is no JSON"),
        ("[1]", "it is no JSON object"),
        ('{"accuracy": 0.5}', "step is None; give a whole number"),
        ('{"step": -1}', "step is -1"),
        ('{"step": 1.5}', "step is 1.5"),
        ('{"step": true}', "step is True"),
        ('{"step": 1, "accuracy": 91.2}', "accuracy is 91.2; give a number from 0 to 1"),
        ('{"step": 1, "accuracy": "high"}', "accuracy is 'high'; give a number"),
        (f'{{"step": 1, "accuracy": 1{"0" * 400}}}', "accuracy is beyond all numbers"),
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
    diverged = parse("step 20 acc nan")
    assert diverged is not None
    assert diverged.diverged
    for line, message in (
        ("step x acc 0.5", "step is 'x', which is no number"),
        ("step 5 acc 97%", "accuracy is '97%', which is no number"),
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
        ("(", "is no regular expression"),
        (r"step (\d+)", "has no group named step and none named accuracy"),
        (r"(?P<step>\d+)", "has no group named accuracy"),
    ],
)
def test_a_pattern_that_finds_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        compile_pattern(text)
