"""Labels that do not go with the loss, said before the first step."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.data import AnyData, Data
from syncswitch.trainers.job.losses import loss_settings
from syncswitch.trainers.job.sources.source import Array
from syncswitch.trainers.job.workload import Workload

_LOG = logging.getLogger(__name__)
_TEXT = "OSU"


def check_labels(workload: Workload, data: AnyData, loss: Any, model: Any) -> None:
    """Refuses labels in memory that the loss of a single output cannot take.

    Args:
        workload: Whose.
        data: Of it.
        loss: See `build_loss`.
        model: Of the workload.
    """
    if not isinstance(data, Data) or data.transform is not None:
        return
    labels = data.train_labels
    if not isinstance(labels, np.ndarray):
        return
    outputs = getattr(model, "outputs", None) or []
    shape = tuple(outputs[0].shape) if len(outputs) == 1 else ()
    for problem in _problems(labels, workload.loss, loss, shape):
        raise WorkloadError(f"workload {workload.name!r}: {problem}")
    _warn_of_missing(workload, data)


def _problems(labels: Array, said: Any, loss: Any, shape: tuple[Any, ...]) -> Iterator[str]:
    if labels.dtype.kind in _TEXT:
        yield (
            f"the labels are text such as {labels.flat[0]!r}; give numbers of classes:"
            " np.unique(labels, return_inverse=True)[1]"
        )
        return
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        count = np.isnan(labels).sum()
        yield f"{count:,} labels are NaN, so that every loss would be; leave these examples out"
    name = (said if isinstance(said, str) else type(loss).__name__).replace("_", "").lower()
    classes = shape[-1] if shape else None
    if classes is None or classes < 2:
        return
    is_one_hot = labels.ndim == len(shape) and labels.shape[-1] == classes
    if name == "categoricalcrossentropy" and labels.ndim < len(shape):
        yield (
            "loss categorical_crossentropy takes one-hot labels, and these are numbers of classes;"
            " give sparse_categorical_crossentropy"
        )
    if name != "sparsecategoricalcrossentropy":
        return
    if is_one_hot:
        yield (
            f"loss sparse_categorical_crossentropy takes numbers of classes, and these labels are"
            f" one-hot, of shape {labels.shape[1:]}; give categorical_crossentropy"
        )
    least, largest = labels.min(), labels.max()
    is_ignored = loss_settings(loss).get("ignore_class") is not None
    if not is_ignored and (least < 0 or largest >= classes):
        yield (
            f"the labels are classes from {least} to {largest}, and the model has {classes}"
            f" outputs, for 0 to {classes - 1}; count from 0, or give the model more outputs"
        )


def _warn_of_missing(workload: Workload, data: Data) -> None:
    inputs = data.train_inputs
    if isinstance(inputs, np.ndarray) and inputs.dtype.kind == "f":
        # A sum needs no memory, and is not finite where one value is not.
        missing = 0 if np.isfinite(inputs.sum()) else int(np.isnan(inputs).sum())
        if missing:
            _warn_once(workload.name, missing)


@cache
def _warn_once(name: str, missing: int) -> None:
    _LOG.warning(
        "workload %r: %s values of train_inputs are NaN, and a run diverges unless the model takes"
        " them out; fill them in, such as with np.nan_to_num",
        name,
        f"{missing:,}",
    )
