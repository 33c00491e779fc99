"""Files that stay as they are while they are read."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from syncswitch.storage.errors import WorkloadError

Paths = str | Path | Iterable[str | Path]
"""A path or pattern such as `data/train-*.tfrecord`, or several of them."""


def found_files(paths: Paths) -> tuple[str, ...]:
    """The files that are meant: patterns in the order of their names.

    Raises:
        WorkloadError: There is none.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    found: list[str] = []
    for one in map(str, given):
        matching = sorted(glob.glob(one)) if glob.has_magic(one) else [one]
        if not matching:
            raise WorkloadError(
                f"data: no file is called {one!r}; give a path or a pattern such as"
                " 'train-*.tfrecord'"
            )
        found += matching
    if not found:
        raise WorkloadError("data: no files are given; give paths, or a pattern")
    return tuple(os.path.abspath(one) for one in found)


@dataclass(eq=False)
class FileSet:
    """Files by their numbers, which are not to change until the training ends.

    Attributes:
        paths: Of them.
        sizes: In bytes.
    """

    paths: tuple[str, ...]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        # No field, which would be sent: on another machine each is a copy, with its own time.
        self._times: dict[int, int] = {}

    @classmethod
    def of(cls, paths: Paths) -> FileSet:
        """The files that are meant, see `found_files`, as they are now."""
        found = found_files(paths)
        return cls(found, tuple(_status(path).st_size for path in found))

    def __len__(self) -> int:
        return len(self.paths)

    def check(self) -> None:
        """Looks whether all of them are here, and as long as they were."""
        for number in range(len(self.paths)):
            self._check(number, _status(self.paths[number]))

    @contextmanager
    def opened(self, number: int) -> Iterator[int]:
        """A file descriptor, for reading."""
        path = self.paths[number]
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise _unreadable(path, error) from error
        try:
            self._check(number, os.fstat(descriptor))
            yield descriptor
        finally:
            os.close(descriptor)

    def _check(self, number: int, status: os.stat_result) -> None:
        is_same_time = self._times.setdefault(number, status.st_mtime_ns) == status.st_mtime_ns
        if status.st_size != self.sizes[number] or not is_same_time:
            raise changed(self.paths[number])


def changed(path: str) -> WorkloadError:
    """The error of a file that is not what it was."""
    return WorkloadError(
        f"data: {path} has changed since the training looked at it first; leave the files alone,"
        " and train again"
    )


def _status(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: OSError) -> WorkloadError:
    return WorkloadError(
        f"data: {path} cannot be read here ({error.strerror}); each machine with a worker needs it"
        " at this path"
    )
