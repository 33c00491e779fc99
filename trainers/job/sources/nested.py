"""Turns nested inputs, labels and weights into plain arrays of examples, and back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from typing_extensions import override

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.sources.source import Array, Form, Rows


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array."""

    def together(self, rows: Iterator[Any]) -> Any:
        """Makes what the model is given from the next of the arrays."""
        return next(rows)


@dataclass(frozen=True, slots=True)
class RaggedLeaf(Leaf):
    """Examples of unequal lengths, as a padded array and an array of lengths."""

    @override
    def together(self, rows: Iterator[Any]) -> Any:
        import tensorflow as tf

        values, lengths = next(rows), next(rows)
        return tf.RaggedTensor.from_tensor(values, lengths)


@dataclass(frozen=True, slots=True)
class SparseLeaf(Leaf):
    """A sparse matrix: the columns and values of its entries, padded, and their number by row."""

    width: int

    @override
    def together(self, rows: Iterator[Any]) -> Any:
        import tensorflow as tf

        columns, values, counts = (tf.convert_to_tensor(next(rows)) for _ in range(3))
        places = tf.where(tf.sequence_mask(counts, tf.shape(columns)[1]))
        indices = tf.stack([places[:, 0], tf.gather_nd(columns, places)], axis=1)
        size = tf.stack([tf.shape(columns, tf.int64)[0], tf.constant(self.width, tf.int64)])
        return tf.SparseTensor(indices, tf.gather_nd(values, places), size)


def apart(field: str, given: Any) -> tuple[Rows, Form]:
    """Takes inputs, labels or weights, as `fit` would get them, apart into arrays and their form.

    They are an array, or dicts, tuples and lists of several; each may be a `tf.RaggedTensor` with
    one ragged dimension, or a sparse matrix of SciPy or TensorFlow.
    """
    rows: list[Array] = []
    form = _apart(f"data: {field}", given, rows)
    lengths = sorted({len(one) for one in rows})
    if len(lengths) > 1:
        raise WorkloadError(
            f"data: {field} holds arrays of {' and '.join(map(str, lengths))} examples; give a row"
            " for each example in all of them"
        )
    return tuple(rows), form


def together(form: Form, rows: Iterator[Any]) -> Any:
    """Puts arrays, or the tensors of a batch, together in the form that `apart` was given."""
    if isinstance(form, dict):
        return {name: together(part, rows) for name, part in form.items()}
    if isinstance(form, tuple | list):
        parts = [together(part, rows) for part in form]
        return tuple(parts) if isinstance(form, tuple) else parts
    return form.together(rows)


def taken(given: Any, numbers: Array) -> Any:
    """Selects examples by their indices from what `apart` takes; the result has the same form."""
    if isinstance(given, dict):
        return {name: taken(part, numbers) for name, part in given.items()}
    if isinstance(given, tuple | list) and all(map(_is_part, given)):
        parts = [taken(part, numbers) for part in given]
        return tuple(parts) if isinstance(given, tuple) else parts
    if type(given).__name__.startswith("Ragged"):
        import tensorflow as tf

        return tf.gather(given, numbers)
    if type(given).__name__.startswith("SparseTensor"):
        given = _of_sparse_tensor("data", given)
    return given.tocsr()[numbers] if hasattr(given, "tocsr") else np.asarray(given)[numbers]


def ragged_rows(found: Sequence[Array]) -> Rows:
    """Makes the arrays of a `RaggedLeaf` from one array for each example."""
    lengths = np.array([len(one) for one in found], np.int64)
    first = found[0]
    padded = np.zeros((len(found), max(1, lengths.max()), *first.shape[1:]), first.dtype)
    if first.dtype == object:
        padded[...] = b""
    for place, one in enumerate(found):
        padded[place, : len(one)] = one
    return padded, lengths


def sparse_rows(matrix: Any) -> Rows:
    """Makes the arrays of a `SparseLeaf` from a sparse matrix of SciPy."""
    matrix = matrix.tocsr()
    matrix.sum_duplicates()
    counts = np.diff(matrix.indptr).astype(np.int64)
    is_used = np.arange(max(1, counts.max())) < counts[:, None]
    columns = np.zeros(is_used.shape, np.int64)
    values = np.zeros(is_used.shape, matrix.dtype)
    columns[is_used], values[is_used] = matrix.indices, matrix.data
    return columns, values, counts


def _apart(name: str, given: Any, rows: list[Array]) -> Form:
    if isinstance(given, dict):
        if not given:
            raise WorkloadError(f"{name} is an empty dict; give an array by each name")
        return {key: _apart(f"{name}[{key!r}]", given[key], rows) for key in sorted(given, key=str)}
    if isinstance(given, tuple | list) and all(map(_is_part, given)) and given:
        parts = [_apart(f"{name}[{place}]", one, rows) for place, one in enumerate(given)]
        return tuple(parts) if isinstance(given, tuple) else parts
    kind = type(given).__name__
    if kind.startswith("Ragged"):
        rows += _of_ragged(name, given)
        return RaggedLeaf()
    if kind.startswith("SparseTensor"):
        given = _of_sparse_tensor(name, given)
    if hasattr(given, "tocsr"):
        rows += sparse_rows(given)
        return SparseLeaf(int(given.shape[1]))
    rows.append(_array(name, given))
    return Leaf()


def _is_part(one: Any) -> bool:
    """Whether this is one of several inputs, as Keras takes them, rather than a row of numbers."""
    return isinstance(one, dict | tuple) or len(getattr(one, "shape", ())) > 0


def _of_ragged(name: str, given: Any) -> Rows:
    if given.ragged_rank != 1:
        raise WorkloadError(
            f"{name} is ragged in {given.ragged_rank} dimensions; give a tensor that is ragged in"
            " one, and pad the others, such as with to_tensor()"
        )
    values, ends = np.asarray(given.values), np.asarray(given.row_splits)
    return ragged_rows(np.split(values, ends[1:-1]) if len(ends) > 1 else [values])


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
    return _without_objects(name, array)


def _without_objects(name: str, array: Array) -> Array:
    """Makes numbers of objects if possible; text stays, missing values and mixtures are refused."""
    if array.dtype != object:
        return array
    kinds = sorted({type(one).__name__ for one in array.flat})
    if set(kinds) <= {"str", "bytes", "str_", "bytes_"}:
        return array
    if set(kinds) <= {"int", "float", "bool"}:
        return array.astype(np.float32)
    raise WorkloadError(
        f"{name} mixes {', '.join(kinds)}; give numbers alone, such as with"
        " DataFrame.astype('float32'), or a dict with an array for each column"
    )
