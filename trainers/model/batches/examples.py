"""Inputs and labels, made of the examples of a source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.data import AnyData
from syncswitch.trainers.job.sources.nested import together
from syncswitch.trainers.job.sources.source import ArraySource, Rows, Source
from syncswitch.trainers.job.workload import Workload, users_code
from syncswitch.trainers.model.tensorflow_api import tf

_FEW = 2


class Weighted(NamedTuple):
    """Labels, and the weights of their examples in the loss or metric."""

    labels: Any
    weights: Any


def parsed(data: AnyData, source: Source, rows: Sequence[Any]) -> tuple[Any, Any]:
    """Makes inputs, and labels or `Weighted`, of the arrays or tensors of a source."""
    if data.parse is not None:
        found = data.parse(*rows)
    elif source.form is not None:
        found = together(source.form, iter(rows))
    else:
        found = tuple(rows)
    if not isinstance(found, tuple | list) or len(found) not in (2, 3):
        given = f"{len(rows)} arrays" if data.parse is None else f"a {type(found).__name__}"
        raise WorkloadError(
            f"data: {'the source' if data.parse is None else 'parse()'} gives {given}; give a"
            " parse() that makes (inputs, labels), or (inputs, labels, weights), of them"
        )
    inputs, labels, *weights = found
    labels = tf.nest.map_structure(_in_float32, labels)
    return inputs, Weighted(labels, weights[0]) if weights else labels


def _in_float32(labels: Any) -> Any:
    """Casts labels as Keras' `fit` does before a loss, which may not take float64."""
    is_long = getattr(getattr(labels, "dtype", None), "name", None) == "float64"
    return tf.cast(labels, tf.float32) if is_long else labels


def transformed(
    transform: Callable[..., Any], inputs: Any, labels: Any, *seed: Any
) -> tuple[Any, Any]:
    """Applies the user's transform to inputs and labels, but not to weights."""
    if not isinstance(labels, Weighted):
        inputs, labels = transform(inputs, labels, *seed)
        return inputs, labels
    inputs, moved = transform(inputs, labels.labels, *seed)
    return inputs, labels._replace(labels=moved)


def row_specs(data: AnyData, batch_size: int) -> list[Any]:
    """Returns shapes and types of the examples of a traced step, see `ModelFunction.batch`."""
    source = data.train
    if isinstance(source, ArraySource):
        return [tf.TensorSpec(one.shape, tf.constant(one[:1]).dtype) for one in source.rows]
    read = map(tf.constant, source.read(np.zeros(1, np.int64)))
    return [tf.TensorSpec([batch_size, *one.shape[1:]], one.dtype) for one in read]


def check_inputs(workload: Workload, data: AnyData, found: Rows, model: Any) -> None:
    """Refuses inputs with other names, numbers, shapes or types than the model takes."""
    with users_code(workload, "parse"):
        read, _ = parsed(data, data.train, found)
    wanted = _wanted_inputs(model)
    if not wanted or data.transform is not None:
        return
    for name, given in _matched(workload, read, wanted).items():
        problem = _misfit(given, wanted[name])
        if problem:
            where = f" for input {name!r}" if len(wanted) > 1 else ""
            raise WorkloadError(
                f"workload {workload.name!r}: an example of data(){where} {problem}"
            )


def _wanted_inputs(model: Any) -> dict[str, Any]:
    """Returns the inputs of a functional or Sequential model by name; none of other models."""
    tensors = getattr(model, "inputs", None) or []
    # A Sequential model does not have it.
    nested = getattr(model, "input", None)
    if tensors and isinstance(nested, dict):
        return dict(nested)
    return {one.name: one for one in tensors}


def _matched(workload: Workload, read: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    if isinstance(read, dict):
        if not set(wanted) <= set(read):
            raise WorkloadError(
                f"workload {workload.name!r}: the model takes {quoted(wanted)}, and data() gives"
                f" {quoted(read)}; use the same names"
            )
        return {name: read[name] for name in wanted}
    given = list(read) if isinstance(read, tuple | list) else [read]
    if len(given) != len(wanted):
        raise WorkloadError(
            f"workload {workload.name!r}: the model takes {len(wanted)} inputs, {quoted(wanted)},"
            f" and data() gives {len(given)}; give a dict with these names"
        )
    return dict(zip(wanted, given, strict=True))


def _misfit(given: Any, wanted: Any) -> str | None:
    """Returns the reason why this cannot be an input, as a clause; None if it may be one."""
    kind = given.dtype
    is_text = kind == tf.string or (isinstance(kind, np.dtype) and kind.kind in "OSU")
    if is_text and wanted.dtype != "string":
        return (
            f"is text, and the model takes {wanted.dtype}; make numbers of it in data(), such as"
            " with keras.layers.TextVectorization or StringLookup"
        )
    shape, needed = tuple(given.shape[1:]), tuple(wanted.shape[1:])
    # Keras itself adds and removes a last dimension of one value.
    forms = [shape, (*shape, 1), *([shape[:-1]] if shape[-1:] == (1,) else [])]
    if any(_fits(one, needed) for one in forms):
        return None
    clause = f"has the shape {shape}, and the model takes {needed}"
    if _fits(shape[1:], needed):
        return (
            f"{clause}: it is a batch of {shape[0]}; leave out batch(), syncswitch makes the"
            " batches"
        )
    return f"{clause}; reshape one to the other"


def _fits(shape: Sequence[Any], needed: Sequence[Any]) -> bool:
    return len(shape) == len(needed) and all(
        None in (one, other) or one == other for one, other in zip(shape, needed, strict=True)
    )


def quoted(names: Iterable[str]) -> str:
    """Lists names for a message, as in `'a', 'b'`."""
    return ", ".join(map(repr, names))


def sample(workload: Workload, data: AnyData, model: Any) -> Rows:
    """Reads the examples of a batch, or of a smaller one if the model surely takes it."""
    inputs = getattr(model, "inputs", None) or []
    is_any_size = inputs and all(tensor.shape[0] is None for tensor in inputs)
    numbers = np.arange(_FEW if is_any_size else workload.batch_size) % data.train.examples
    with users_code(workload, "data"):
        return data.train.read(numbers)
