"""Parses Markdown pages: blocks with their marks, links, inline code.

A mark is a comment right before a block, which readers of the page do not see:

- `<!-- file: NAME -->`: the block is a file; it is written before what follows runs.
- `<!-- not run: REASON -->`: the block cannot run in the tests.
- `<!-- status: N -->`: its last command ends with this exit status.
- `<!-- exact -->`: the output shown is the exact output.

At the top of a page, `<!-- after: PAGE -->` says that it continues another page.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]

_MARK = re.compile(r"<!--\s*(file|not run|status|exact|after)(?::\s*(.*?))?\s*-->", re.DOTALL)
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_OPERATORS = set("();<>|&")


@dataclass(frozen=True)
class Command:
    """A `$ ` line of a console, and the output that the page shows."""

    text: str
    shown: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """The words as a shell would split them; operators are separate words."""
        lexer = shlex.shlex(self.text.replace("\\\n", " "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        return list(lexer)

    @property
    def needs_shell(self) -> bool:
        """Whether it is more than a program and its arguments."""
        words = self.words
        return "=" in words[0] or any(set(word) <= _OPERATORS for word in words if word)


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        language: The first word after the fence; empty if there is none.
        text: The content.
        line: The line of the fence, counted from 1.
        marks: The value of each mark, by its name.
    """

    language: str
    text: str
    line: int
    marks: Mapping[str, str] = field(default_factory=dict)


class Page:
    """A page in Markdown."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tokens = _MARKDOWN.parse(path.read_text())

    def __repr__(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def after(self) -> Path | None:
        """The page that must be played before this one."""
        first = self._tokens[0]
        name = _marks(first).get("after")
        return None if name is None else (self.path.parent / name).resolve()

    @property
    def blocks(self) -> list[Block]:
        """The fenced blocks, in order."""
        before = [None, *self._tokens]
        return [
            Block(
                token.info.split()[0] if token.info else "",
                token.content,
                (token.map or [0])[0] + 1,
                _marks(previous),
            )
            for previous, token in zip(before, self._tokens, strict=False)
            if token.type == "fence"
        ]

    @property
    def links(self) -> list[str]:
        """The targets of links and pictures."""
        attributes = {"link_open": "href", "image": "src"}
        return [
            str(token.attrs[attributes[token.type]])
            for token in self._inline()
            if token.type in attributes
        ]

    @property
    def code(self) -> list[str]:
        """The inline code."""
        return [token.content for token in self._inline() if token.type == "code_inline"]

    def _inline(self) -> Iterator[Token]:
        for token in self._tokens:
            yield from token.children or ()


def commands(block: Block) -> list[Command]:
    """The commands of a console; a backslash at the end of a line continues it."""
    found: list[tuple[list[str], list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append(([line[2:]], []))
        elif not found:
            raise ValueError(f"a console begins with a command, not with {line!r}")
        elif found[-1][0][-1].endswith("\\"):
            found[-1][0].append(line)
        else:
            found[-1][1].append(line)
    return [Command("\n".join(typed), tuple(shown)) for typed, shown in found]


def _marks(token: Token | None) -> dict[str, str]:
    if token is None or token.type != "html_block":
        return {}
    return {name: value or "" for name, value in _MARK.findall(token.content)}
