"""What the tests of the command line share."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from click import Command, Context, Group
from click.testing import CliRunner, Result

from syncswitch.cli.search.main import main


class Invoke:
    """Runs a program in this process; all its commands `begin` with these words."""

    def __init__(self, *begin: str, program: Command = main, **environment: str) -> None:
        self._begin, self._program = begin, program
        self._runner = CliRunner(env=environment)

    def __call__(self, *words: str) -> Result:
        name = "syncswitch-search" if self._program is main else "syncswitch-run"
        return self._runner.invoke(self._program, [*self._begin, *words], prog_name=name)

    def succeeds(self, *words: str) -> Result:
        """Of a command that has to."""
        result = self(*words)
        assert result.exit_code == 0, result.stderr
        return result

    def answer(self, *words: str) -> Any:
        """What such a command says to a script."""
        return json.loads(self.succeeds(*words, "--json").stdout)


def commands(command: Command, *path: str) -> Iterator[tuple[tuple[str, ...], Command]]:
    """A command, and all those in it, each with its words."""
    yield path, command
    if isinstance(command, Group):
        context = Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, *path, name)


QUICK = ["--strategy", "paper", "--halvings", "3", "--runs", "2"]
OTHER = ["--strategy", "paper", "--halvings", "2", "--runs", "1"]
LEAST = ["--strategy", "paper", "--halvings", "1", "--runs", "1"]  # 2 runs


def error_line(result: Result) -> str:
    """The one line on standard error; on standard output is at most the same as JSON."""
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert "Traceback" not in line
    if result.stdout:
        assert f"error: {json.loads(result.stdout)['error']['message']}" == line
    return line


def database_file(url: str) -> Path:
    """The file of a SQLite URL."""
    return Path(url.removeprefix("sqlite:///"))


def copy_database(written: Path, copy: Path) -> None:
    """Leaves none of the files that stay open beside one that was written."""
    with closing(sqlite3.connect(written)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


def export(invoke: Invoke, path: Path, *arguments: str, version: str = "current") -> Path:
    """Exports a policy of the generated workload into a file."""
    policy = f"generated@{version}"
    invoke.succeeds("policy", "export", policy, "-o", str(path), *arguments)
    return path


def elsewhere(folder: Path) -> str:
    """URL of another database, which does not exist yet."""
    return f"sqlite:///{folder}/elsewhere.db"
