"""Where `syncswitch-run` begins. Light at import, see `cli/program.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from syncswitch.cli.program import run_program

__all__ = ["main"]


def main(prog_name: str | None = None) -> NoReturn:
    """The program `syncswitch-run`."""

    def load() -> Callable[..., Any]:
        from syncswitch.cli.run.main import main as command

        return command

    run_program(load, prog_name)
