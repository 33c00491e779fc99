"""Examples as a source gives them, and the inputs and labels that become of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """Labels, and weights of their examples in the loss or metric."""

    labels: Any
    weights: Any


def parsed(data: AnyData, source: Source, rows: Sequence[Any]) -> tuple[Any, Any]:
    """Inputs, and labels or `Weighted`, of what was read.

    Args:
        data: To which the source belongs.
        source: Which gave the rows.
        rows: Arrays or tensors.
    """
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
    return inputs, Weighted(labels, weights[0]) if weights else labels


def transformed(
    transform: Callable[..., Any], inputs: Any, labels: Any, *seed: Any
) -> tuple[Any, Any]:
    """Inputs and labels as the user's transform makes them; weights stay as they are."""
    if not isinstance(labels, Weighted):
        inputs, labels = transform(inputs, labels, *seed)
        return inputs, labels
    inputs, moved = transform(inputs, labels.labels, *seed)
    return inputs, labels._replace(labels=moved)


def row_specs(data: AnyData, batch_size: int) -> list[Any]:
    """Shapes and types of what a traced step is given, see `ModelFunction.batch`."""
    source = data.train
    if isinstance(source, ArraySource):
        return [tf.TensorSpec(one.shape, tf.constant(one[:1]).dtype) for one in source.rows]
    read = map(tf.constant, source.read(np.zeros(1, np.int64)))
    return [tf.TensorSpec([batch_size, *one.shape[1:]], one.dtype) for one in read]


def check_unbatched(workload: Workload, data: AnyData, found: Rows, model: Any) -> None:
    """Refuses data whose examples are batches."""
    with users_code(workload, "parse"):
        read, _ = parsed(data, data.train, found)
    inputs = getattr(model, "inputs", None) or []
    if not inputs or data.transform is not None:
        return
    given, wanted = tuple(read.shape[1:]), tuple(inputs[0].shape[1:])
    is_deeper = len(given) == len(wanted) + 1
    if is_deeper and all(b in (None, a) for a, b in zip(given[1:], wanted, strict=True)):
        raise WorkloadError(
            f"workload {workload.name!r}: an example of data() has the shape {given}, and the model"
            f" takes {wanted}: it is a batch of {given[0]}; leave out batch(), syncswitch makes the"
            " batches"
        )


def sample(workload: Workload, data: AnyData, model: Any) -> Rows:
    """Examples of a batch; of a small one where it is plain that the model takes it."""
    inputs = getattr(model, "inputs", None) or []
    is_any_size = inputs and all(tensor.shape[0] is None for tensor in inputs)
    numbers = np.arange(_FEW if is_any_size else workload.batch_size) % data.train.examples
    with users_code(workload, "data"):
        return data.train.read(numbers)
