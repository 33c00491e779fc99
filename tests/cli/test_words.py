"""What the command line calls what messages from below it name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from syncswitch.cli.run.main import main as run
from syncswitch.cli.search.main import main as search
from syncswitch.cli.words import _COMMANDS, OPTION_WORDS
from syncswitch.storage.errors import Command, CommandHint, OptionHint, UserError, Words, leave_out
from tests.searcher.command_line import commands
from tests.wording import Said

ROOT = Path(__file__).parents[2]
BELOW = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for layer in ("storage", "trainers", "searcher")
    for path in (ROOT / layer).rglob("*.py")
}
PYTHON = "searcher/python_calls.py"  # speaks Python itself


ALL = {
    " ".join(path): command
    for path, command in (*commands(run, "syncswitch-run"), *commands(search, "syncswitch-search"))
}
OPTIONS = {
    name
    for command in ALL.values()
    for option in command.params
    for name in (*option.opts, *option.secondary_opts)
}


def named(tree: ast.Module) -> Iterator[str]:
    """The parameters that a module names in messages."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name) and node.func.id in ("OptionHint", "leave_out"):
                yield from texts(node.args[0])
            for keyword in node.keywords:
                if keyword.arg == "parameter":
                    yield from texts(keyword.value)


def texts(node: ast.expr) -> Iterator[str]:
    yield from (one.value for one in ast.walk(node) if isinstance(one, ast.Constant))


def test_every_parameter_that_a_message_names_has_an_option() -> None:
    for path in BELOW.keys() - {PYTHON}:
        for name in named(ast.parse(BELOW[path])):
            assert OPTION_WORDS.parameter(name) in OPTIONS, f"{path}: {name}"


@pytest.mark.parametrize("command", Command)
def test_every_command_is_there_in_both_languages(command: Command) -> None:
    path, _, option = _COMMANDS[command].partition(" --")
    assert path in ALL
    assert not option or f"--{option}" in OPTIONS
    name = command.value.rpartition(".")[2]
    assert any(f"def {name}(" in code for code in BELOW.values())


def test_an_error_is_said_in_both_languages(said: Said) -> None:
    for error in (
        UserError("all is lost"),
        UserError(parameter="cpus_per_ps", value=0.0, allowed="above 0", remedy="try 1"),
        UserError(
            "no room", parameter="storage", value="a b", remedy=("tidy up", OptionHint("seed"))
        ),
        UserError("needs it", parameter="guarded", value=False, remedy=leave_out("learn", True)),
        UserError(
            ["again: ", UserError("no", parameter=("seed", "switch_points"))],
            remedy=CommandHint(Command.TRAIN, ("my job", OptionHint("switch", "hot")), "run:"),
        ),
    ):
        said(OPTION_WORDS.say(error), error)
        assert Words().say(error) == str(error)
