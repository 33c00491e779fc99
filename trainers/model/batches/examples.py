"""Examples as a source gives them, and the inputs and labels that become of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.data import AnyData
from syncswitch.trainers.job.sources.source import ArraySource, Rows
from syncswitch.trainers.job.workload import Workload, users_code
from syncswitch.trainers.model.tensorflow_api import tf

_FEW = 2
_PAIR = 2


def parsed(data: AnyData, rows: Sequence[Any]) -> tuple[Any, Any]:
    """Inputs and labels of what was read."""
    if data.parse is not None:
        return data.parse(*rows)
    if len(rows) != _PAIR:
        raise WorkloadError(
            f"data: the source gives {len(rows)} arrays; give a parse() that makes inputs and"
            " labels of them"
        )
    return rows[0], rows[1]


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
        read, _ = parsed(data, found)
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
