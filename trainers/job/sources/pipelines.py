"""Examples out of `tf.data` pipelines: all at once, and in pieces."""

from __future__ import annotations

import logging
import math
import threading
import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
from typing_extensions import override

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.sources.nested import Leaf, together
from syncswitch.trainers.job.sources.source import Array, Form, Rows, Source

_PASSING = ("_lock", "_held", "_reader")


class BlockSource(Source):
    """Reads blocks as a whole; keeps two windows of them: the one in use, and the next one.

    Args:
        sizes: Examples of each block.
        blocks_in_window: See `Source.blocks_in_window`.
    """

    def __init__(self, sizes: Sequence[int], blocks_in_window: int) -> None:
        if blocks_in_window < 1:
            raise WorkloadError(f"data: blocks_in_window is {blocks_in_window}; give 1 or more")
        self._sizes = tuple(sizes)
        self._ends = np.cumsum(self._sizes)
        self._in_window = min(blocks_in_window, len(self._sizes))
        self._begin()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _PASSING}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    @property
    @override
    def examples(self) -> int:
        return int(self._ends[-1])

    @property
    @override
    def blocks(self) -> Sequence[int]:
        return self._sizes

    @property
    @override
    def blocks_in_window(self) -> int:
        return self._in_window

    @override
    def read(self, numbers: Array) -> Rows:
        numbers = np.asarray(numbers)
        blocks = np.searchsorted(self._ends, numbers, "right")
        columns: list[Array] = []
        for block in np.unique(blocks):
            places = np.flatnonzero(blocks == block)
            held = self._requested(int(block)).result()
            first = int(self._ends[block]) - self._sizes[block]
            if not columns:
                columns = [np.empty((len(numbers), *one.shape[1:]), one.dtype) for one in held]
            for column, one in zip(columns, held, strict=True):
                column[places] = one[numbers[places] - first]
        return tuple(columns)

    @override
    def prepare(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self._requested(block)

    @abstractmethod
    def _read_block(self, block: int) -> Rows:
        """Reads a whole block."""

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[int, Future[Rows]] = OrderedDict()
        self._reader = ThreadPoolExecutor(1, "block-reader")

    def _requested(self, block: int) -> Future[Rows]:
        """A block that is there or under way; forgets those that were wanted longest ago."""
        with self._lock:
            found = self._held.get(block)
            if found is None or (found.done() and found.exception() is not None):
                found = self._held[block] = self._reader.submit(self._checked, block)
            self._held.move_to_end(block)
            while len(self._held) > 2 * self._in_window:
                self._held.popitem(last=False)
        return found

    def _checked(self, block: int) -> Rows:
        rows = self._read_block(block)
        for one in rows:
            if len(one) != self._sizes[block]:
                raise WorkloadError(
                    f"data: block {block} had {self._sizes[block]:,} examples, and has"
                    f" {len(one):,} now; it has to be the same whenever it is read"
                )
        return rows


_LOG = logging.getLogger(__name__)
_PATIENCE_SECONDS = 10.0
_COUNTED_AT_ONCE = 1_000
_ENDLESS, _UNKNOWN = -1, -2  # as tf.data says it in place of a number of examples

Pipeline = Callable[[Any], Any]
"""Takes the number of a piece, an int64 tensor; gives its `tf.data.Dataset` of examples."""


_EXAMPLE = (2, 3)  # input, label, and perhaps weight


class PipelinePieces(BlockSource):
    """Examples that a `tf.data` pipeline yields for each of many pieces, such as files.

    A pipeline cannot go to its hundredth example without the 99 before it. So the data come in
    pieces, each a pipeline of its own, that a worker reads as a whole when the first example of it
    is wanted. Each has to yield the same examples in the same order whenever it is read: no
    `repeat`, and no `shuffle` or random numbers without a seed. The order of pieces and of examples
    is shuffled afterwards; random augmentation belongs into the data's `transform`.

    Args:
        pieces: Number of pieces.
        pipeline: Makes the pipeline of a piece, with TensorFlow's operations alone where workers
            are processes: it is traced once, and sent to them.
        sizes: Examples of each piece, or one number for all; None to read all once and count.
        blocks_in_window: So many pieces are mixed with each other, and fit into memory twice.
    """

    def __init__(
        self,
        pieces: int,
        pipeline: Pipeline,
        sizes: int | Sequence[int] | None = None,
        blocks_in_window: int = 4,
    ) -> None:
        if pieces < 1:
            raise WorkloadError(f"data: pieces is {pieces}; give 1 or more")
        self.pipeline = pipeline
        if sizes is None:
            _LOG.warning(
                "data: counting the examples of %d pieces; give sizes to avoid that", pieces
            )
            sizes = [self._count(piece) for piece in range(pieces)]
        given = [sizes] * pieces if isinstance(sizes, int) else list(sizes)
        if len(given) != pieces or min(given) < 0 or not sum(given):
            raise WorkloadError(
                f"data: sizes are {sizes} for {pieces} pieces; give a number of examples for each"
            )
        super().__init__(given, blocks_in_window)

    @cached_property
    @override
    def form(self) -> Form | None:
        spec = self._dataset(0).element_spec
        return _form(spec) if isinstance(spec, tuple) and len(spec) in _EXAMPLE else None

    @override
    def _read_block(self, block: int) -> Rows:
        size = self._sizes[block]
        # One more, so that a piece that has become longer is noticed.
        read = self._dataset(block).batch(size + 1, num_parallel_calls=1).take(1)
        for found in read.as_numpy_iterator():
            rows = tuple(_leaves(found))
            for one in rows:
                if one.dtype == object and isinstance(one.flat[0], np.ndarray):
                    raise WorkloadError(
                        f"data: the pipeline of piece {block} yields ragged tensors; pad them in it"
                        " with to_tensor(shape=...)"
                    )
            return rows
        raise WorkloadError(
            f"data: the pipeline of piece {block} yields nothing, not {size:,} examples"
        )

    def _count(self, piece: int) -> int:
        dataset, called = self._dataset(piece), f"pipeline of piece {piece}"
        _check_end(dataset, called)
        numbers = dataset.map(lambda *_: 0).batch(_COUNTED_AT_ONCE).as_numpy_iterator()
        return sum(map(len, _heard_of(numbers, called, len)))

    def _dataset(self, piece: int) -> Any:
        import tensorflow as tf

        return self.pipeline(tf.constant(piece, tf.int64))


def read_pipeline(dataset: Any, part: str) -> tuple[Any, ...]:
    """All inputs, labels and perhaps weights of a `tf.data` pipeline of single examples.

    Args:
        dataset: The pipeline.
        part: Name of the part of the data, for errors.

    Raises:
        WorkloadError: It is endless, or yields something else.
    """
    called = f"{part} pipeline"
    _check_end(dataset, called)
    spec = dataset.element_spec
    if not isinstance(spec, tuple) or len(spec) not in _EXAMPLE:
        raise _no_examples(part)
    for one in _leaves(spec):
        if type(one).__name__ == "SparseTensorSpec":
            raise WorkloadError(
                f"data: the {part} pipeline yields sparse tensors; give Data a sparse matrix, or"
                " make them dense with map(tf.sparse.to_dense)"
            )
    read = _heard_of(dataset.as_numpy_iterator(), called, lambda _: 1)
    examples = [_leaves(one) for one in read]
    if not examples:
        raise _no_examples(part)
    columns = iter(
        _column(one, found, part)
        for one, found in zip(_leaves(spec), zip(*examples, strict=True), strict=True)
    )
    found: tuple[Any, ...] = together(_form(spec), columns)
    return found


def _heard_of(read: Iterator[Any], called: str, examples_of: Callable[[Any], int]) -> Iterator[Any]:
    """Passes on what is read, and says after a while that it is still being read."""
    tell_at, count = time.monotonic() + _PATIENCE_SECONDS, 0
    for one in read:
        count += examples_of(one)
        yield one
        # What a generator yields may have no end, and nobody can know.
        if time.monotonic() >= tell_at:
            tell_at = math.inf
            _LOG.warning(
                "data: still reading the %s, %s examples so far; where it is endless, add"
                " take(EXAMPLES), as this never ends",
                called,
                f"{count:,}",
            )


def _check_end(dataset: Any, called: str) -> None:
    """Refuses what repeats for ever, and warns of what seems to."""
    if int(dataset.cardinality()) == _ENDLESS:
        raise WorkloadError(
            f"data: the {called} is endless; leave out repeat(), syncswitch counts epochs"
        )
    if _seems_endless(dataset):
        _LOG.warning(
            "data: the %s takes from one that is endless, and may never end itself; leave out"
            " repeat(), syncswitch counts epochs, or add take(EXAMPLES)",
            called,
        )


def _seems_endless(dataset: Any) -> bool:
    """Whether something endless reaches the end of a pipeline, past filters and the like.

    A `take` ends it, a `take_while` may, and a `zip` ends with the first of its parts.
    """
    if int(dataset.cardinality()) != _UNKNOWN:
        return int(dataset.cardinality()) == _ENDLESS
    kind = type(dataset).__name__
    if "Take" in kind:
        return False
    # TensorFlow has no other way to ask what a pipeline is made of.
    parts = list(map(_seems_endless, dataset._inputs()))
    return all(parts) if "Zip" in kind else any(parts)


def _column(spec: Any, found: Sequence[Any], part: str) -> Any:
    """The array of what all examples have in one place."""
    if type(spec).__name__ == "RaggedTensorSpec":
        import tensorflow as tf

        lengths = [len(one) for one in found]
        return tf.RaggedTensor.from_row_lengths(np.concatenate(found), lengths)
    try:
        return np.stack(found)
    except ValueError as error:
        raise WorkloadError(
            f"data: the examples of the {part} pipeline differ in shape ({error}); leave out"
            " batch(), or bring them to one shape"
        ) from error


def _form(spec: Any) -> Form:
    if isinstance(spec, dict):
        return {name: _form(spec[name]) for name in sorted(spec)}
    return tuple(map(_form, spec)) if isinstance(spec, tuple) else Leaf()


def _leaves(nested: Any) -> list[Any]:
    """The parts of nested dicts and tuples, in the order of `_form`."""
    import tensorflow as tf

    found: list[Any] = tf.nest.flatten(nested)
    return found


def _no_examples(part: str) -> WorkloadError:
    return WorkloadError(
        f"data: the {part} pipeline must yield (input, label) or (input, label, weight), one"
        " example at a time"
    )
