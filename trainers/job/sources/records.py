"""Records in TFRecord files, each found by its offset."""

from __future__ import annotations

import mmap
import os
import struct

import numpy as np
from typing_extensions import override

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.sources.files import FileSet, Paths, changed
from syncswitch.trainers.job.sources.source import Array, Rows, Source

_LENGTH = struct.Struct("<Q")
# Of a TFRecord: its length and a checksum before it, another checksum behind it.
_BEFORE, _BEHIND = 12, 4
_GZIP = b"\x1f\x8b"

Spans = tuple[Array, Array]
"""Where records begin and how long they are, in bytes."""


class TFRecordFiles(Source):
    """The records of uncompressed TFRecord files, as bytes for `tf.io.parse_example`.

    Only their places are kept in memory, 16 bytes for each: the files are looked through once.

    Args:
        paths: Files or patterns, in the order of the examples.
    """

    def __init__(self, paths: Paths) -> None:
        self._files = FileSet.of(paths)
        found = [self._spans(path) for path in self._files.paths]
        self._starts, self._lengths = (np.concatenate(part) for part in zip(*found, strict=True))
        self._ends = np.cumsum([len(starts) for starts, _ in found])
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
        found = np.empty(len(numbers), object)
        files = np.searchsorted(self._ends, numbers, "right")
        for file in np.unique(files):
            places = np.flatnonzero(files == file)
            # In the order in which they lie.
            places = places[np.argsort(numbers[places])]
            with self._files.opened(int(file)) as descriptor:
                for place in places:
                    found[place] = self._record(int(file), descriptor, numbers[place])
        return (found,)

    def _record(self, file: int, descriptor: int, number: int) -> bytes:
        length = int(self._lengths[number])
        record = os.pread(descriptor, length, int(self._starts[number]))
        if len(record) != length:
            raise changed(self._files.paths[file])
        return record

    def _spans(self, path: str) -> Spans:
        if not os.path.getsize(path):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
            if held[:2] == _GZIP:
                raise WorkloadError(
                    f"data: {path} is compressed, so that nothing in it can be found by its place;"
                    " unpack it, or read it by a pipeline for each file (PipelinePieces)"
                )
            return self._found_in(held, path)

    def _found_in(self, held: mmap.mmap, path: str) -> Spans:
        starts, lengths = [], []
        place, size = 0, len(held)
        while place < size:
            length = _LENGTH.unpack_from(held, place)[0] if place + _BEFORE <= size else size
            if place + _BEFORE + length + _BEHIND > size:
                raise WorkloadError(
                    f"data: {path} is no TFRecord file, or ends within the record at byte {place:,}"
                )
            starts.append(place + _BEFORE)
            lengths.append(length)
            place += _BEFORE + length + _BEHIND
        return np.array(starts, np.int64), np.array(lengths, np.int64)
