"""Messages that quote what a user gave, however long it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncswitch.storage.errors import Command, PolicyError, Run, Set, UserError, shortened

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
    run = Run(Command.TRAIN, ("job", Set("command", command)))
    assert command in str(UserError("is wrong", remedy=run))
