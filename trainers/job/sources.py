"""Sources of examples, which training reads when it wants them; NumPy and TFRecord files."""

from __future__ import annotations

import glob
import mmap
import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from syncswitch.storage.errors import WorkloadError

Array = npt.NDArray[Any]
Rows = tuple[Array, ...]
"""Some examples: arrays with a row for each of them, such as inputs and labels."""
TreeSpec = Any
"""Dicts, tuples and lists as the user gave them, with a leaf for each array; see `pipelines`."""


class Source(ABC):
    """Examples that are read by their indices.

    Each worker reads from its own copy, possibly from several threads at once. The result must
    depend on the indices alone, because a step may be repeated, even by another worker.

    A worker in another process receives the name of the class and its attributes, or the result of
    its `__getstate__`: numbers, strings, bytes, arrays, and lists and dicts of these. Tuples arrive
    as lists.
    """

    @property
    @abstractmethod
    def examples(self) -> int:
        """Number of examples; their indices start at 0."""

    @abstractmethod
    def read(self, numbers: Array) -> Rows:
        """Reads examples.

        Args:
            numbers: Indices of the wanted examples, in the wanted order.

        Raises:
            WorkloadError: They cannot be read, or have changed.
        """

    @property
    def form(self) -> TreeSpec | None:
        """How the arrays nest in inputs, labels and possibly weights.

        None if they are one array of inputs and one of labels, or if the data have a `parse`.
        """
        return None

    @property
    def blocks(self) -> Sequence[int]:
        """Sizes of the blocks that are each read as a whole, in the order of the indices.

        A single block means that examples are read one by one.
        """
        return (self.examples,)

    @property
    def blocks_in_window(self) -> int:
        """Number of blocks that are mixed with each other; twice as many must fit into memory."""
        return 1

    def check(self) -> None:  # noqa: B027  (there may be nothing to check)
        """Checks that this process can read; called on each worker before it trains.

        Raises:
            WorkloadError: It cannot.
        """

    def prepare(self, blocks: Sequence[int]) -> None:  # noqa: B027  (or to prepare)
        """Is told which blocks will be wanted soon."""


@dataclass(frozen=True)
class ArraySource(Source):
    """Examples in memory."""

    rows: Rows
    form: TreeSpec | None = None

    @property
    @override
    def examples(self) -> int:
        return len(self.rows[0])

    @override
    def read(self, numbers: Array) -> Rows:
        return tuple(np.asarray(one[numbers]) for one in self.rows)


_LENGTH = struct.Struct("<Q")
# Bytes around a TFRecord: its length and a checksum before it, another checksum after it.
_BEFORE, _AFTER = 12, 4
_GZIP = b"\x1f\x8b"

Paths = str | Path | Iterable[str | Path]
"""A path or pattern such as `data/train-*.tfrecord`, or several of them."""


@dataclass(eq=False)
class FileSet:
    """Files that must not change until the training ends: absolute paths, and sizes in bytes."""

    paths: tuple[str, ...]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        # Not a field, so that it is not sent: on another machine each file has its own time.
        self._times: dict[int, int] = {}

    @classmethod
    def of(cls, paths: Paths) -> FileSet:
        """Finds the files of these paths and patterns, those of a pattern sorted.

        Raises WorkloadError if there are none, or one cannot be read.
        """
        files: list[str] = []
        for path in map(str, [paths] if isinstance(paths, str | Path) else paths):
            matching = sorted(glob.glob(path)) if glob.has_magic(path) else [path]
            if not matching:
                raise WorkloadError(
                    f"data: no file is called {path!r}; give a path or a pattern such as"
                    " 'train-*.tfrecord'"
                )
            files += map(os.path.abspath, matching)
        if not files:
            raise WorkloadError("data: no files are given; give paths, or a pattern")
        return cls(tuple(files), tuple(_status(path).st_size for path in files))

    def __len__(self) -> int:
        return len(self.paths)

    def check(self) -> None:
        """Raises WorkloadError if one cannot be read here, or has changed."""
        for number, path in enumerate(self.paths):
            self._check(number, _status(path))

    @contextmanager
    def opened(self, number: int) -> Iterator[int]:
        """Opens a file for reading and yields its descriptor."""
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
    """Makes the error for a file that has changed."""
    return WorkloadError(
        f"data: {path} has changed since the training first looked at it; leave the files alone,"
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


class NumpyFiles(Source):
    """Rows of arrays in `.npy` files, one array in each, such as inputs and labels.

    Args:
        paths: Files of the arrays, which have the same number of rows.
    """

    def __init__(self, *paths: str | Path) -> None:
        self._files = FileSet.of(paths)
        arrays = [_opened(path) for path in self._files.paths]
        lengths = [len(array) for array in arrays]
        if len(set(lengths)) > 1:
            said = ", ".join(map(str, lengths))
            raise WorkloadError(f"data: {self._files.paths[0]} and the others hold {said} rows")
        self._examples = lengths[0]
        # So that readers parse no header: Python 3.11 may fail where several threads parse at once.
        self._layouts: list[Any] = [
            (array.dtype.str, array.offset, array.shape, "C" if array.flags.c_contiguous else "F")
            for array in arrays
        ]

    @property
    @override
    def examples(self) -> int:
        return self._examples

    @override
    def check(self) -> None:
        self._files.check()

    @override
    def read(self, numbers: Array) -> Rows:
        return tuple(np.array(self._mapped(one)[numbers]) for one in range(len(self._files)))

    def _mapped(self, number: int) -> Array:
        dtype, offset, shape, order = self._layouts[number]
        with (
            self._files.opened(number) as descriptor,
            open(descriptor, "rb", closefd=False) as file,
        ):
            return np.memmap(file, np.dtype(dtype), "r", offset, tuple(shape), order)


def _opened(path: str) -> np.memmap[Any, Any]:
    try:
        array: np.memmap[Any, Any] = np.load(path, mmap_mode="r")
    except (OSError, ValueError) as error:
        raise WorkloadError(
            f"data: {path} is not an array that can be read in place ({error}); write an"
            " array of numbers with np.save"
        ) from error
    if not array.ndim:
        raise WorkloadError(f"data: {path} holds a single value; give an array of examples")
    return array


class TFRecordFiles(Source):
    """The records of uncompressed TFRecord files, as bytes for `tf.io.parse_example`.

    The files are read through once to find the records. Only their offsets and lengths stay in
    memory, 16 bytes for each.

    Args:
        paths: Files or patterns, in the order of the examples.
    """

    def __init__(self, paths: Paths) -> None:
        self._files = FileSet.of(paths)
        spans = [self._spans(path) for path in self._files.paths]
        self._starts, self._lengths = np.ascontiguousarray(np.concatenate(spans, axis=1))
        self._ends = np.cumsum([one.shape[1] for one in spans])
        if not len(self._starts):
            raise WorkloadError(f"data: {self._files.paths[0]} holds no record")

    @property
    @override
    def examples(self) -> int:
        return len(self._starts)

    @override
    def check(self) -> None:
        self._files.check()

    @override
    def read(self, numbers: Array) -> Rows:
        numbers = np.asarray(numbers)
        records = np.empty(len(numbers), object)
        files = np.searchsorted(self._ends, numbers, "right")
        for file in np.unique(files):
            places = np.flatnonzero(files == file)
            # In the order in which they lie in the file.
            places = places[np.argsort(numbers[places])]
            with self._files.opened(int(file)) as descriptor:
                for place in places:
                    records[place] = self._record(int(file), descriptor, numbers[place])
        return (records,)

    def _record(self, file: int, descriptor: int, number: int) -> bytes:
        length = int(self._lengths[number])
        record = os.pread(descriptor, length, int(self._starts[number]))
        if len(record) != length:
            raise changed(self._files.paths[file])
        return record

    def _spans(self, path: str) -> Array:
        """Offsets and lengths of the records in a file, in bytes."""
        spans: list[tuple[int, int]] = []
        if not os.path.getsize(path):
            return np.zeros((2, 0), np.int64)
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
            if held[:2] == _GZIP:
                raise WorkloadError(
                    f"data: {path} is compressed, so that nothing in it can be found by its offset;"
                    " unpack it, or read it by a pipeline for each file (PipelinePieces)"
                )
            offset, size = 0, len(held)
            while offset < size:
                length = _LENGTH.unpack_from(held, offset)[0] if offset + _BEFORE <= size else size
                if offset + _BEFORE + length + _AFTER > size:
                    raise WorkloadError(
                        f"data: {path} is not a TFRecord file, or ends within the record at byte"
                        f" {offset:,}"
                    )
                spans.append((offset + _BEFORE, length))
                offset += _BEFORE + length + _AFTER
        return np.array(spans, np.int64).T
