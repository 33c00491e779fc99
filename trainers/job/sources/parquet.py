"""Examples in Parquet files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from syncswitch.storage.errors import WorkloadError, one_line
from syncswitch.trainers.job.sources.blocks import BlockSource
from syncswitch.trainers.job.sources.files import FileSet, Paths
from syncswitch.trainers.job.sources.source import Array, Rows


class ParquetFiles(BlockSource):
    """Rows of Parquet files, an array for each column; a block is a row group.

    Columns hold numbers, texts, bytes, or lists of numbers that are equally long in all rows.
    Needs pyarrow (`pip install 'syncswitch[parquet]'`), also where the workers are.

    Args:
        paths: Files or patterns, in the order of the examples.
        columns: Names.
        blocks_in_window: So many row groups are mixed with each other, and fit into memory twice.
    """

    def __init__(self, paths: Paths, columns: Sequence[str], blocks_in_window: int = 4) -> None:
        parquet = _pyarrow_parquet()
        self._files = FileSet(paths)
        self._columns = tuple(columns)
        sizes: list[int] = []
        # Of each block: the file, and its number there.
        self._places: list[tuple[int, int]] = []
        for number, path in enumerate(self._files.paths):
            try:
                metadata = parquet.read_metadata(path)
            except Exception as error:
                raise WorkloadError(
                    f"data: {path} is no Parquet file: {one_line(error)}"
                ) from error
            known = metadata.schema.to_arrow_schema().names
            for column in self._columns:
                if column not in known:
                    raise WorkloadError(
                        f"data: {path} has no column {column!r}; it has {', '.join(known)}"
                    )
            groups = range(metadata.num_row_groups)
            sizes += [metadata.row_group(group).num_rows for group in groups]
            self._places += [(number, group) for group in groups]
        if not sum(sizes):
            raise WorkloadError(f"data: {self._files.paths[0]} holds no rows")
        super().__init__(sizes, blocks_in_window)

    @override
    def check(self) -> None:
        _pyarrow_parquet()
        self._files.check()

    @override
    def _read_block(self, block: int) -> Rows:
        number, group = self._places[block]
        with (
            self._files.opened(number) as descriptor,
            open(descriptor, "rb", closefd=False) as file,
        ):
            opened = _pyarrow_parquet().ParquetFile(file)
            table = opened.read_row_group(group, columns=list(self._columns), use_threads=False)
        return tuple(self._array(table[column], column, number) for column in self._columns)

    def _array(self, column: Any, name: str, file: int) -> Array:
        if column.null_count:
            raise self._unusable(name, file, "has rows without a value")
        kind = str(column.type)
        if "list" not in kind:
            found: Array = column.to_numpy()
            if found.dtype == object:
                encoded = [one.encode() if isinstance(one, str) else one for one in found]
                found = np.array(encoded, object)
            return found
        rows, chunk = len(column), column.combine_chunks()
        values: Array = chunk.flatten().to_numpy(zero_copy_only=False)
        width, rest = divmod(len(values), rows)
        if rest or not all(len(one) == width for one in chunk):
            raise self._unusable(name, file, "has lists of unequal lengths")
        return values.reshape(rows, width)

    def _unusable(self, name: str, file: int, problem: str) -> WorkloadError:
        return WorkloadError(f"data: column {name!r} of {self._files.paths[file]} {problem}")


def _pyarrow_parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise WorkloadError(
            "data: Parquet needs pyarrow: pip install 'syncswitch[parquet]', on each machine with a"
            " worker"
        ) from error
    return parquet
