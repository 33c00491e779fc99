"""Examples in NumPy files, of which only those that are wanted are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from typing_extensions import override

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.sources.files import FileSet
from syncswitch.trainers.job.sources.source import Array, Rows, Source


class NumpyFiles(Source):
    """Rows of arrays in `.npy` files, such as inputs and labels; each file is one array.

    Args:
        paths: Of the arrays, all as long.
    """

    def __init__(self, *paths: str | Path) -> None:
        self._files = FileSet.of(paths)
        lengths = [len(self._mapped(number)) for number in range(len(self._files))]
        if len(set(lengths)) > 1:
            said = ", ".join(map(str, lengths))
            raise WorkloadError(f"data: {self._files.paths[0]} and the others hold {said} rows")
        self._examples = lengths[0]

    @property
    @override
    def examples(self) -> int:
        return self._examples

    @override
    def check(self) -> None:
        self._files.check()

    @override
    def read(self, numbers: Array) -> Rows:
        self._files.check()
        return tuple(np.array(self._mapped(one)[numbers]) for one in range(len(self._files)))

    def _mapped(self, number: int) -> Array:
        path = self._files.paths[number]
        try:
            found: Array = np.load(path, mmap_mode="r")
        except (OSError, ValueError) as error:
            raise WorkloadError(
                f"data: {path} is no array that can be read in place ({error}); write it with"
                " np.save, of numbers"
            ) from error
        if not found.ndim:
            raise WorkloadError(f"data: {path} holds a single value; give an array of examples")
        return found
