"""Messages that quote what a user gave, however long it is."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import get_args

import pytest

import syncswitch
from syncswitch.storage.errors import (
    Command,
    CommandHint,
    DatabaseAwayError,
    DatabaseError,
    ErrorCode,
    FatalError,
    OptionHint,
    PolicyError,
    RetryableError,
    SyncSwitchError,
    UserError,
    shortened,
)

LONG = {
    "a word": "x" * 6000,
    "words": "one two " * 1000,
    "quotes": 'it\'s "so" ' * 1000,
    "a line end": "a\n" * 4000,
    "a path": "/tmp/" + "folder/" * 1000,
}


@pytest.mark.parametrize("kind", LONG)
def test_a_long_value_is_cut_wherever_it_is_quoted(kind: str) -> None:
    value = LONG[kind]
    for error in (
        UserError("is odd", parameter="name", value=value),
        UserError("are odd", parameter="names", value=[value, value]),
        UserError(f"there is no {value!r}; known: a, b"),
        PolicyError([f"the file {value!r} ", UserError(f"has {value!r}")], remedy="drop it"),
        UserError("odd", remedy=f"give another than {value!r}"),
    ):
        text = str(error)
        assert len(text) < 700, text
        assert "characters)" in text
    assert str(UserError(f"there is no {value!r}; known: a, b")).endswith("); known: a, b")


def test_a_value_that_is_not_quoted_keeps_what_follows_it() -> None:
    assert shortened(f"cannot read {Path('y' * 4000)}: File name too long") == (
        f"cannot read {'y' * 100}... (4,000 characters): File name too long"
    )
    text = str(UserError(f"cannot read {'a b ' * 2000}: File name too long", remedy="try another"))
    assert len(text) < 2100
    assert text.endswith(": File name too long; try another")


def test_what_is_as_long_as_messages_are_stays_whole() -> None:
    text = "the run's way, the workers' momenta, " * 20 + f"in '{'z' * 280}', isn't told"
    assert shortened(text) == text
    # What is there to be pasted.
    command = "train.py " + "--option value " * 100
    run = CommandHint(Command.TRAIN, ("job", OptionHint("command", command)))
    assert command in str(UserError("is wrong", remedy=run))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("is odd"), "input-invalid"),
        (UserError("is odd", parameter="seed"), "parameter-invalid"),
        (UserError("are odd", parameter=("seed", "runs")), "parameters-conflict"),
        (UserError("is odd", parameter="seed", code="file-unusable"), "file-unusable"),
        (PolicyError("is odd", parameter="policy"), "policy-damaged"),
        # An error that quotes one of its kind is about the same.
        (RetryableError(("gave up: ", DatabaseAwayError("busy"))), "database-away"),
        (UserError(("odd: ", DatabaseError("odd", code="newer-version"))), "newer-version"),
        (UserError(("it waits: ", DatabaseAwayError("busy"))), "input-invalid"),
        (FatalError(("odd: ", UserError("odd"))), "failed"),
    ],
)
def test_an_error_has_a_code(error: SyncSwitchError, code: ErrorCode) -> None:
    assert error.code == code
    assert pickle.loads(pickle.dumps(error)).code == code


def test_each_code_is_used_and_explained() -> None:
    (package,) = syncswitch.__path__
    sources = "".join(file.read_text() for file in Path(package).rglob("*.py"))
    codes = get_args(ErrorCode)
    assert list(codes) == sorted(codes)
    for code in codes:
        assert sources.count(f'"{code}"') > 1, f"{code} is never used"
    page = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    table = page.partition("\n## Error codes\n")[2].partition("\n## ")[0]
    assert tuple(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)) == codes
