"""What the benchmarks share on the command line: options by their defaults, and tables."""

from __future__ import annotations

import argparse
from typing import Any

from rich.table import Table


def parser(description: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """A parser with these options, each of the kind of its default.

    Args:
        description: Of the benchmark.
        defaults: `worker_steps=100` for `--worker-steps`; a list takes several, a type is the
            default of what need not be said, and `False` that of a flag.
    """
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        option = f"--{name.replace('_', '-')}"
        if default is False:
            made.add_argument(option, action="store_true")
        elif isinstance(default, list):
            made.add_argument(option, type=type(default[0]), nargs="+", default=default)
        elif isinstance(default, type):
            made.add_argument(option, type=default)
        else:
            made.add_argument(option, type=type(default), default=default)
    return made


def new_table(*columns: str, left: int = 1, **style: Any) -> Table:
    """A table whose first columns are texts, and the others figures."""
    made = Table(**style)
    for number, name in enumerate(columns):
        made.add_column(name, justify="left" if number < left else "right", no_wrap=True)
    return made
