"""Plays a page: writes its files, and runs its commands and programs, in one folder."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import traceback
from contextlib import closing, redirect_stdout, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType

from tests import program, warm_program
from tests.documentation.pages import Block, Command, Page, commands

_PATIENCE_SECONDS = 240
# A forecast plays 20 for each answer, half a minute; how exact it is, its own tests say.
_FEW_SEARCHES = "from syncswitch.searcher import forecast; forecast._SEARCHES = 2"


def play(page: Page, folder: Path) -> None:
    """Plays a page from beginning to end.

    Raises:
        AssertionError: A block does not work; the message has its line.
    """
    with Player(folder) as player:
        for block in page.blocks:
            try:
                player.play(block)
            except AssertionError as error:
                raise AssertionError(f"{page}, line {block.line}: {error}") from error


class Player:
    """Plays blocks in a folder, and the Python of a page in one process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._python: _Python | None = None

    def __enter__(self) -> Player:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._python is not None:
            self._python.close()

    def play(self, block: Block) -> None:
        """Plays a block."""
        if "not run" in block.marks:
            return
        if "file" in block.marks:
            (self._folder / block.marks["file"]).write_text(block.text)
        elif block.language == "console":
            self._type(block)
        elif block.language == "python":
            self._python = self._python or _Python(self._folder)
            self._python.run(block.text)
        elif block.language == "sql":
            with closing(sqlite3.connect(self._folder / "syncswitch.db")) as database:
                assert database.execute(block.text).fetchall(), "the question has no answer"
        elif block.language == "json":
            json.loads(block.text)

    def _type(self, block: Block) -> None:
        typed = commands(block)
        for command in typed:
            done = self._run(command)
            expected = int(block.marks.get("status", 0)) if command is typed[-1] else 0
            assert done.returncode == expected, (
                f"{command.text} ended with status {done.returncode}:\n{done.stdout}{done.stderr}"
            )
            _check_shown(command, done.stdout, is_exact="exact" in block.marks)

    def _run(self, command: Command) -> subprocess.CompletedProcess[str]:
        words = command.words
        if words[0] in program.PROGRAMS and not command.needs_shell:
            code = f"{_FEW_SEARCHES}; {program.code(words[0])}"
            return warm_program.run_code(code, *words[1:], folder=self._folder)
        programs = self._folder / ".bin"
        if not programs.exists():
            (program.for_shells(programs) / "python").symlink_to(sys.executable)
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command.text],
            cwd=self._folder,
            env={**program.environment(), "PATH": f"{programs}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
        )


def _check_shown(command: Command, output: str, *, is_exact: bool) -> None:
    """Checks that the tables on the page have the printed columns; figures may differ."""
    if is_exact:
        assert [*command.shown] == output.rstrip().splitlines(), output
    printed = {tuple(line.split()) for line in output.splitlines()}
    for head, rule in zip(command.shown, command.shown[1:], strict=False):
        if rule and set(rule) == {"─"}:
            assert tuple(head.split()) in printed, f"no such table: {head}\n{output}"


class _Python:
    """Runs programs one after the other in one namespace, in a fork of the warm server."""

    def __init__(self, folder: Path) -> None:
        self._connection, other = multiprocessing.Pipe()
        self._process = warm_program.server().Process(target=_serve, args=(folder, other))
        self._process.start()
        other.close()

    def run(self, code: str) -> None:
        self._connection.send(code)
        assert self._connection.poll(_PATIENCE_SECONDS), f"takes too long:\n{code}"
        problem = self._connection.recv()
        assert problem is None, problem

    def close(self) -> None:
        self._connection.close()
        self._process.join(_PATIENCE_SECONDS)


def _serve(folder: Path, connection: Connection) -> None:
    os.chdir(folder)
    os.environ.pop("SYNCSWITCH_STORAGE", None)
    sys.path.insert(0, "")
    warm_program.fork_first_server()
    namespace: dict[str, object] = {"__name__": "__main__"}
    with redirect_stdout(io.StringIO()), suppress(EOFError):
        while True:
            connection.send(_problem(connection.recv(), namespace))


def _problem(code: str, namespace: dict[str, object]) -> str | None:
    try:
        exec(compile(code, "the page", "exec"), namespace)
    except BaseException:
        return traceback.format_exc()
    return None
