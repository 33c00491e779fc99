"""The options of a command in the reference, under the panels that its help has."""

from __future__ import annotations

from typing import Any

import click
import cloup
from sphinx.application import Sphinx

__all__ = ["setup", "with_panels"]

_OPTION = ".. option::"


def with_panels(command: click.Command, lines: list[str]) -> list[str]:
    """The lines with a heading before the first option of each panel.

    Args:
        command: Its options come in the order of its panels.
        lines: What sphinx-click made of them, a directive for each.
    """
    if not isinstance(command, cloup.Command) or not command.option_groups:
        return lines
    shown = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    titles = {group[0]: group.title for group in command.option_groups}
    titles[next(one for one in shown if getattr(one, "group", None) is None)] = "Other options"
    options, made = iter(shown), list[str]()
    for line in lines:
        title = titles.get(next(options)) if line.startswith(_OPTION) else None
        made += [f".. rubric:: {title}", "", line] if title else [line]
    return made


def _process(app: Sphinx, context: click.Context, lines: list[str]) -> None:
    lines[:] = with_panels(context.command, lines)


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the extension; sphinx-click comes before it."""
    app.connect("sphinx-click-process-options", _process)
    return {"parallel_read_safe": True}
