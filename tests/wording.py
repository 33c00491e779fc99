"""What users read, in a text file beside its test; `REWORD=1` writes it anew, for git to show.

Each section holds what is said to whatever its first line, after `== `, names.
"""

from __future__ import annotations

import difflib
import fcntl
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from syncswitch.storage.errors import ErrorCode, SyncSwitchError

# What Keras calls a thing that has no name: it goes by how many there were before.
_COUNTED = re.compile(r"\b(dense|sequential|keras_tensor|\w+_wrapper)(_\d+)+\b")
# It holds when the thing was made.
_CHECKSUM = re.compile(r"sha256:[0-9a-f]{64}")


def sections(path: Path) -> dict[str, list[str]]:
    """The lines under each name in such a file."""
    text = path.read_text() if path.exists() else ""
    _, *parts = re.split(r"^== (.*)\n", text, flags=re.MULTILINE)
    return {
        name: lines.strip("\n").splitlines()
        for name, lines in zip(parts[::2], parts[1::2], strict=True)
    }


class Said:
    """Texts that have to be those of a section, in this order.

    Args:
        path: The file.
        name: The section.
        places: Folders of this test alone.
    """

    def __init__(self, path: Path, name: str, places: Sequence[Path] = ()) -> None:
        self._path, self._name, self._places = path, name, places
        self._lines: list[str] = []

    def __call__(self, *texts: object) -> None:
        """Something is said."""
        for text in map(str, texts):
            for place in self._places:
                text = text.replace(str(place), "PLACE")
            text = _CHECKSUM.sub("sha256:...", _COUNTED.sub(r"\1", text.strip("\n")))
            self._lines += [line.rstrip() for line in text.splitlines()]
        if "REWORD" not in os.environ:
            self._compare(len(self._lines))

    def refusal(
        self, code: ErrorCode, call: Callable[..., object], *given: Any, **named: Any
    ) -> None:
        """An error is raised by a call, with this code, and says something."""
        with pytest.raises(SyncSwitchError) as caught:
            call(*given, **named)
        assert caught.value.code == code, caught.value
        self(caught.value)

    def end(self) -> None:
        """That was all."""
        if "REWORD" not in os.environ:
            self._compare(None)
            return
        with self._path.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            written = {**sections(self._path), self._name: self._lines}
            self._path.write_text(
                "\n".join("\n".join([f"== {name}", *said, ""]) for name, said in written.items())
            )

    def _compare(self, number: int | None) -> None:
        known = sections(self._path).get(self._name, [])
        said, written = self._lines, known[:number]
        if said != written:
            self._lines = known  # once is enough
            diff = difflib.unified_diff(written, said, str(self._path), self._name, lineterm="")
            raise AssertionError("\n".join(diff))
