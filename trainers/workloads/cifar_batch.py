"""Reads one file of CIFAR: pictures and labels in a pickle.

A foreign pickle can run any code, so this one is read with an unpickler that makes arrays of bytes
and plain containers alone.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, Literal

import numpy as np

from syncswitch.trainers.job.data import Array

_SIDE, _CHANNELS = 32, 3


def parse_batch(content: bytes, label_key: bytes, classes: int) -> tuple[Array, Array]:
    """Pictures and labels of one file.

    Args:
        content: The pickle: a dictionary with the pictures under `data`, one in a row, all red
            values first, then the green, then the blue ones.
        label_key: Under what the labels are.
        classes: How many classes there are.

    Returns:
        Pictures (uint8, shape [pictures, 32, 32, 3]) and labels (int32, shape [pictures]).

    Raises:
        ValueError: The dictionary holds something else.
        pickle.UnpicklingError: The pickle wants more than arrays and plain containers.
        Exception: The pickle is damaged; of many kinds.
    """
    batch = _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
    if not isinstance(batch, dict):
        raise ValueError(f"a {type(batch).__name__} instead of a dictionary")
    for key in (b"data", label_key):
        if key not in batch:
            raise ValueError(f"it has no {key.decode()!r}")
    pictures, labels = getattr(batch[b"data"], "values", None), np.asarray(batch[label_key])
    values = _CHANNELS * _SIDE * _SIDE
    if not isinstance(pictures, np.ndarray):
        raise ValueError("its pictures are no array of bytes")
    if pictures.ndim != 2 or pictures.shape[1] != values or len(pictures) == 0:
        raise ValueError(f"its pictures have shape {pictures.shape}, not [pictures, {values}]")
    if labels.shape != (len(pictures),) or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"its {len(pictures)} pictures do not have one class number each")
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(
            f"its classes are {labels.min()} to {labels.max()}, not 0 to {classes - 1}"
        )
    planes = pictures.reshape(-1, _CHANNELS, _SIDE, _SIDE)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), labels.astype(np.int32)


class _ArrayUnpickler(pickle.Unpickler):
    """Makes arrays of bytes and plain containers, as the published files hold, and nothing else.

    The functions that such a file names are not numpy's: given a type of objects and some bytes,
    numpy would take these bytes for places in memory.
    """

    def find_class(self, module_name: str, global_name: str) -> Any:
        # New functions at each call, because a pickle may set attributes of what it gets.
        match module_name, global_name:
            case "numpy", "ndarray":
                return global_name
            case "numpy", "dtype":
                return lambda code, *_: _PickledType(code)
            case "numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct":
                return lambda *_: _PickledArray()
        raise pickle.UnpicklingError(
            f"it asks for {module_name}.{global_name}, where bytes and plain containers should be"
        )


class _PickledType:
    """Stands for the type of an array's values; its further state does not matter for bytes."""

    def __init__(self, code: object) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        pass


class _PickledArray:
    """Becomes an array of bytes when the pickle gives it its state."""

    values: Array | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, is_fortran, content = state
        is_bytes = isinstance(kind, _PickledType) and kind.code in (b"u1", "u1")
        if not is_bytes or not isinstance(content, bytes):
            raise pickle.UnpicklingError("it holds an array of something else than bytes")
        order: Literal["F", "C"] = "F" if is_fortran else "C"
        self.values = np.frombuffer(content, np.uint8).reshape(shape, order=order)
