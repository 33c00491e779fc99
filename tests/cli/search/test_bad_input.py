"""A value that an option cannot take: one line, exit status 2, what to do; of every command."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner
from command_line import error_line

from syncswitch.cli.run.main import main as run
from syncswitch.cli.search.main import main


def commands(program: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if not isinstance(program, click.Group):
        yield path
        return
    context = click.Context(program)
    for name in program.list_commands(context):
        found = program.get_command(context, name)
        assert found is not None
        yield from commands(found, (*path, name))


def command_at(path: tuple[str, ...]) -> click.Command:
    found: click.Command = main if path else run
    for name in path:
        assert isinstance(found, click.Group)
        child = found.get_command(click.Context(found), name)
        assert child is not None
        found = child
    return found


def refused(kind: click.ParamType) -> list[str]:
    """Values outside a type; none where only the command itself can tell."""
    if isinstance(kind, click.Choice):
        return ["luck", ""]
    if isinstance(kind, (click.IntRange, click.FloatRange)):
        wrong = ["many", "", "nan"]
        if kind.min is not None:
            wrong.append(str(kind.min if kind.min_open else kind.min - 1))
        if kind.max is not None:
            wrong += [str(kind.max + 1), "9" * 400]
        return wrong
    return ["many", ""] if kind in (click.INT, click.FLOAT) else []


@pytest.mark.parametrize("path", [(), *commands(main)], ids=lambda path: " ".join(path) or "run")
def test_every_option_refuses_what_it_cannot_take(path: tuple[str, ...]) -> None:
    command, program = command_at(path), main if path else run

    def line(*words: str) -> str:
        done = CliRunner().invoke(program, [*path, *words], prog_name="program")
        assert done.exit_code == 2, (words, done.output)
        return error_line(done)

    how = f"(see {' '.join(('program', *path))} --help)"
    assert line("--nonsense").startswith("error: No such option")
    for option in command.params:
        if not isinstance(option, click.Option) or option.is_flag:
            continue
        flag = max(option.opts, key=len)
        for value in refused(option.type):
            said = line(flag, value)
            assert "Invalid value for" in said, (flag, value)
            assert flag in said
            assert said.endswith(how)
