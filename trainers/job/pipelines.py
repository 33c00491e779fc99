"""Examples as `fit` gets them: nested inputs, labels and weights, and `tf.data` pipelines."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from typing_extensions import override

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.sources import Array, Rows, Source, TreeSpec


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array."""

    def unflatten(self, rows: Iterator[Any]) -> Any:
        return next(rows)


@dataclass(frozen=True, slots=True)
class RaggedLeaf(Leaf):
    """Examples of unequal lengths, as a padded array and an array of lengths."""

    @override
    def unflatten(self, rows: Iterator[Any]) -> Any:
        import tensorflow as tf

        values, lengths = next(rows), next(rows)
        return tf.RaggedTensor.from_tensor(values, lengths)


@dataclass(frozen=True, slots=True)
class SparseLeaf(Leaf):
    """A sparse matrix: the columns and values of its entries, padded, and their number by row."""

    width: int

    @override
    def unflatten(self, rows: Iterator[Any]) -> Any:
        import tensorflow as tf

        columns, values, counts = (tf.convert_to_tensor(next(rows)) for _ in range(3))
        places = tf.where(tf.sequence_mask(counts, tf.shape(columns)[1]))
        indices = tf.stack([places[:, 0], tf.gather_nd(columns, places)], axis=1)
        size = tf.stack([tf.shape(columns, tf.int64)[0], tf.constant(self.width, tf.int64)])
        return tf.SparseTensor(indices, tf.gather_nd(values, places), size)


def flatten(field: str, given: Any) -> tuple[Rows, TreeSpec]:
    """Takes inputs, labels or weights of `fit` apart into arrays and their tree spec.

    They are an array, or dicts, tuples and lists of several; each may be a `tf.RaggedTensor` with
    one ragged dimension, or a sparse matrix of SciPy or TensorFlow. Raises WorkloadError for
    anything else, and for arrays with different numbers of examples.
    """
    rows: list[Array] = []
    tree_spec = _flatten(f"data: {field}", given, rows)
    lengths = sorted({len(one) for one in rows})
    if len(lengths) > 1:
        raise WorkloadError(
            f"data: {field} holds arrays of {' and '.join(map(str, lengths))} examples; give a row"
            " for each example in all of them"
        )
    return tuple(rows), tree_spec


def unflatten(tree_spec: TreeSpec, rows: Iterator[Any]) -> Any:
    """Nests arrays, or the tensors of a batch, as those that `flatten` was given."""
    if isinstance(tree_spec, dict):
        return {name: unflatten(branch, rows) for name, branch in tree_spec.items()}
    if isinstance(tree_spec, tuple | list):
        branches = [unflatten(branch, rows) for branch in tree_spec]
        return tuple(branches) if isinstance(tree_spec, tuple) else branches
    return tree_spec.unflatten(rows)


def take_rows(given: Any, numbers: Array) -> Any:
    """Selects examples by their indices; takes and returns what `flatten` takes."""
    if isinstance(given, dict):
        return {name: take_rows(branch, numbers) for name, branch in given.items()}
    if isinstance(given, tuple | list) and all(map(_is_branch, given)):
        branches = [take_rows(branch, numbers) for branch in given]
        return tuple(branches) if isinstance(given, tuple) else branches
    if type(given).__name__.startswith("Ragged"):
        import tensorflow as tf

        return tf.gather(given, numbers)
    if type(given).__name__.startswith("SparseTensor"):
        given = _of_sparse_tensor("data", given)
    return given.tocsr()[numbers] if hasattr(given, "tocsr") else np.asarray(given)[numbers]


def _ragged_rows(examples: Sequence[Array]) -> Rows:
    lengths = np.array([len(example) for example in examples], np.int64)
    first = examples[0]
    padded = np.zeros((len(examples), max(1, lengths.max()), *first.shape[1:]), first.dtype)
    if first.dtype == object:
        padded[...] = b""
    for place, example in enumerate(examples):
        padded[place, : len(example)] = example
    return padded, lengths


def _sparse_rows(matrix: Any) -> Rows:
    matrix = matrix.tocsr()
    matrix.sum_duplicates()
    counts = np.diff(matrix.indptr).astype(np.int64)
    is_used = np.arange(max(1, counts.max())) < counts[:, None]
    columns = np.zeros(is_used.shape, np.int64)
    values = np.zeros(is_used.shape, matrix.dtype)
    columns[is_used], values[is_used] = matrix.indices, matrix.data
    return columns, values, counts


def _flatten(name: str, given: Any, rows: list[Array]) -> TreeSpec:
    if isinstance(given, dict):
        if not given:
            raise WorkloadError(f"{name} is an empty dict; give an array by each name")
        return {
            key: _flatten(f"{name}[{key!r}]", given[key], rows) for key in sorted(given, key=str)
        }
    if isinstance(given, tuple | list) and all(map(_is_branch, given)) and given:
        branches = [_flatten(f"{name}[{place}]", one, rows) for place, one in enumerate(given)]
        return tuple(branches) if isinstance(given, tuple) else branches
    kind = type(given).__name__
    if kind.startswith("Ragged"):
        if given.ragged_rank != 1:
            raise WorkloadError(
                f"{name} is ragged in {given.ragged_rank} dimensions; give a tensor that is ragged"
                " in one, and pad the others, such as with to_tensor()"
            )
        values, ends = np.asarray(given.values), np.asarray(given.row_splits)
        rows += _ragged_rows(np.split(values, ends[1:-1]) if len(ends) > 1 else [values])
        return RaggedLeaf()
    if kind.startswith("SparseTensor"):
        given = _of_sparse_tensor(name, given)
    if hasattr(given, "tocsr"):
        rows += _sparse_rows(given)
        return SparseLeaf(int(given.shape[1]))
    rows.append(_array(name, given))
    return Leaf()


def _is_branch(item: Any) -> bool:
    """Whether this is one of several inputs, as Keras takes them, rather than a row of numbers."""
    return isinstance(item, dict | tuple) or len(getattr(item, "shape", ())) > 0


def _of_sparse_tensor(name: str, given: Any) -> Any:
    from scipy.sparse import coo_array

    shape = tuple(map(int, given.dense_shape))
    if len(shape) != 2:
        raise WorkloadError(
            f"{name} is a sparse tensor of shape {shape}; give a matrix with a row for each"
            " example, or a dense array (tf.sparse.to_dense)"
        )
    rows, columns = np.asarray(given.indices).T
    return coo_array((np.asarray(given.values), (rows, columns)), shape)


def _array(name: str, given: Any) -> Array:
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise WorkloadError(
            f"{name} is a {type(given).__name__} of arrays of unequal shapes ({error}); bring them"
            " to one shape, such as with keras.utils.pad_sequences, or give a tf.RaggedTensor"
        ) from error
    if array.ndim == 0:
        raise WorkloadError(
            f"{name} is a {type(given).__name__}; give an array with a row for each example, or a"
            " dict or tuple of such"
        )
    first = array.flat[0] if array.dtype == object and array.size else None
    if isinstance(first, dict):
        raise WorkloadError(
            f"{name} holds a dict for each example; give a dict of arrays, such as"
            " {name: [one[name] for one in examples]}"
        )
    if isinstance(first, tuple | list | np.ndarray):
        raise WorkloadError(
            f"{name} holds a {type(first).__name__} for each example, and of unequal lengths; pad"
            " them, such as with keras.utils.pad_sequences, or give a tf.RaggedTensor"
            " (tf.ragged.constant)"
        )
    if array.dtype != object:
        return array
    # Numbers are made of objects; text stays, missing values and mixtures are refused.
    kinds = sorted({type(one).__name__ for one in array.flat})
    if set(kinds) <= {"str", "bytes", "str_", "bytes_"}:
        return array
    if set(kinds) <= {"int", "float", "bool"}:
        return array.astype(np.float32)
    raise WorkloadError(
        f"{name} mixes {', '.join(kinds)}; give numbers alone, such as with"
        " DataFrame.astype('float32'), or a dict with an array for each column"
    )


_LOG = logging.getLogger(__name__)
_PATIENCE_SECONDS = 10.0
_COUNTED_AT_ONCE = 1_000
_ENDLESS = -1  # the cardinality that tf.data reports
_EXAMPLE = (2, 3)  # input, label, and possibly a weight
_NOT_SENT = ("_lock", "_held", "_reader")


class PipelinePieces(Source):
    """Examples that a `tf.data` pipeline yields for each of many pieces, such as files.

    A pipeline cannot reach its hundredth example without the 99 before it. So the data come in
    pieces, each with its own pipeline, which a worker reads as a whole when it first needs an
    example from it; two windows of pieces stay in memory. Each piece must yield the same examples
    in the same order whenever it is read: no `repeat`, and no `shuffle` or random numbers without a
    seed. Pieces and examples are shuffled afterwards; random augmentation belongs in the data's
    `transform`.

    Args:
        pieces: Number of pieces.
        pipeline: Makes the pipeline of a piece from its index, an int64 tensor. Where workers are
            processes it may only use TensorFlow operations: it is traced once and sent to them.
        sizes: Number of examples in each piece, or one number for all; None to read all of them
            once and count.
        blocks_in_window: Number of pieces that are mixed with each other; twice as many must fit
            into memory.
    """

    def __init__(
        self,
        pieces: int,
        pipeline: Callable[[Any], Any],
        sizes: int | Sequence[int] | None = None,
        blocks_in_window: int = 4,
    ) -> None:
        if pieces < 1:
            raise WorkloadError(f"data: pieces is {pieces}; give 1 or more")
        if blocks_in_window < 1:
            raise WorkloadError(f"data: blocks_in_window is {blocks_in_window}; give 1 or more")
        self.pipeline = pipeline
        if sizes is None:
            _LOG.warning(
                "data: counting the examples of %d pieces; give sizes to avoid that", pieces
            )
            sizes = [self._count(piece) for piece in range(pieces)]
        given = [sizes] * pieces if isinstance(sizes, int) else list(sizes)
        if len(given) != pieces or min(given) < 0 or not sum(given):
            raise WorkloadError(
                f"data: sizes are {sizes} for {pieces} pieces; give the number of examples of each"
            )
        self._sizes = tuple(given)
        self._ends = np.cumsum(given)
        self._in_window = min(blocks_in_window, pieces)
        self._begin()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _NOT_SENT}

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

    @cached_property
    @override
    def form(self) -> TreeSpec | None:
        spec = self._dataset(0).element_spec
        return _tree_spec(spec) if isinstance(spec, tuple) and len(spec) in _EXAMPLE else None

    @override
    def read(self, numbers: Array) -> Rows:
        numbers = np.asarray(numbers)
        pieces = np.searchsorted(self._ends, numbers, "right")
        columns: list[Array] = []
        for piece in np.unique(pieces):
            places = np.flatnonzero(pieces == piece)
            held = self._requested(int(piece)).result()
            first = int(self._ends[piece]) - self._sizes[piece]
            if not columns:
                columns = [np.empty((len(numbers), *one.shape[1:]), one.dtype) for one in held]
            for column, one in zip(columns, held, strict=True):
                column[places] = one[numbers[places] - first]
        return tuple(columns)

    @override
    def prepare(self, blocks: Sequence[int]) -> None:
        for piece in blocks:
            self._requested(piece)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[int, Future[Rows]] = OrderedDict()
        self._reader = ThreadPoolExecutor(1, "piece-reader")

    def _requested(self, piece: int) -> Future[Rows]:
        """A piece that has been read or is being read; drops those unused for longest."""
        with self._lock:
            rows = self._held.get(piece)
            if rows is None or (rows.done() and rows.exception() is not None):
                rows = self._held[piece] = self._reader.submit(self._checked, piece)
            self._held.move_to_end(piece)
            while len(self._held) > 2 * self._in_window:
                self._held.popitem(last=False)
        return rows

    def _checked(self, piece: int) -> Rows:
        rows = self._read_piece(piece)
        for one in rows:
            if len(one) != self._sizes[piece]:
                raise WorkloadError(
                    f"data: piece {piece} had {self._sizes[piece]:,} examples, and has"
                    f" {len(one):,} now; it has to be the same whenever it is read"
                )
        return rows

    def _read_piece(self, piece: int) -> Rows:
        size = self._sizes[piece]
        # One more, so that a piece that has become longer is noticed.
        read = self._dataset(piece).batch(size + 1, num_parallel_calls=1).take(1)
        batch = next(read.as_numpy_iterator(), None)
        if batch is None:
            raise WorkloadError(
                f"data: the pipeline of piece {piece} yields nothing, not {size:,} examples"
            )
        rows = tuple(_leaves(batch))
        if any(one.dtype == object and isinstance(one.flat[0], np.ndarray) for one in rows):
            raise WorkloadError(
                f"data: the pipeline of piece {piece} yields ragged tensors; pad them in it"
                " with to_tensor(shape=...)"
            )
        return rows

    def _count(self, piece: int) -> int:
        dataset, name = self._dataset(piece), f"pipeline of piece {piece}"
        _check_end(dataset, name)
        numbers = dataset.map(lambda *_: 0).batch(_COUNTED_AT_ONCE).as_numpy_iterator()
        return sum(map(len, _watched(numbers, name, len)))

    def _dataset(self, piece: int) -> Any:
        import tensorflow as tf

        return self.pipeline(tf.constant(piece, tf.int64))


def read_pipeline(dataset: Any, split: str) -> tuple[Any, ...]:
    """Reads all inputs, labels and possibly weights of a `tf.data` pipeline of single examples.

    Raises WorkloadError if it is endless, or yields something else.
    """
    name = f"{split} pipeline"
    _check_end(dataset, name)
    spec = dataset.element_spec
    if not isinstance(spec, tuple) or len(spec) not in _EXAMPLE:
        raise _no_examples(split)
    specs = _leaves(spec)
    if any(type(one).__name__ == "SparseTensorSpec" for one in specs):
        raise WorkloadError(
            f"data: the {split} pipeline yields sparse tensors; give Data a sparse matrix, or"
            " make them dense with map(tf.sparse.to_dense)"
        )
    read = _watched(dataset.as_numpy_iterator(), name, lambda _: 1)
    examples = [_leaves(one) for one in read]
    if not examples:
        raise _no_examples(split)
    columns = (
        _column(*column, split) for column in zip(specs, zip(*examples, strict=True), strict=True)
    )
    return tuple(unflatten(_tree_spec(spec), columns))


def _check_end(dataset: Any, name: str) -> None:
    if int(dataset.cardinality()) == _ENDLESS:
        raise WorkloadError(
            f"data: the {name} is endless; leave out repeat(), syncswitch counts epochs"
        )


def _watched(read: Iterator[Any], name: str, examples_of: Callable[[Any], int]) -> Iterator[Any]:
    """Passes on what is read, and warns once if it goes on for long, perhaps for ever."""
    warn_at, count = time.monotonic() + _PATIENCE_SECONDS, 0
    for one in read:
        count += examples_of(one)
        yield one
        if time.monotonic() >= warn_at:
            warn_at = math.inf
            _LOG.warning(
                "data: still reading the %s, %s examples so far; if it is endless, leave out"
                " repeat() or add take(EXAMPLES)",
                name,
                f"{count:,}",
            )


def _column(spec: Any, values: Sequence[Any], split: str) -> Any:
    if type(spec).__name__ == "RaggedTensorSpec":
        import tensorflow as tf

        lengths = [len(one) for one in values]
        return tf.RaggedTensor.from_row_lengths(np.concatenate(values), lengths)
    try:
        return np.stack(values)
    except ValueError as error:
        raise WorkloadError(
            f"data: the examples of the {split} pipeline differ in shape ({error}); leave out"
            " batch(), or bring them to one shape"
        ) from error


def _tree_spec(spec: Any) -> TreeSpec:
    if isinstance(spec, dict):
        return {name: _tree_spec(spec[name]) for name in sorted(spec)}
    return tuple(map(_tree_spec, spec)) if isinstance(spec, tuple) else Leaf()


def _leaves(nested: Any) -> list[Any]:
    """The values in nested dicts and tuples, in the order of `_tree_spec`."""
    import tensorflow as tf

    return list(tf.nest.flatten(nested))


def _no_examples(split: str) -> WorkloadError:
    return WorkloadError(
        f"data: the {split} pipeline must yield (input, label) or (input, label, weight), one"
        " example at a time"
    )
