"""Messages as bytes, with arrays beside them; what comes in is data, and of the expected type."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any, get_args, get_origin

import msgspec
import numpy as np

from syncswitch.trainers.job.sources.source import Array

_ARRAY, _OBJECTS = 1, 2
_Element = str | bytes | int | float | bool | None
_reading = threading.local()


class OddMessageError(OSError):
    """What has come is no message, or none that is awaited; as good as none."""


def packed(message: Any) -> tuple[bytes, list[memoryview]]:
    """A message without its arrays, and these.

    Raises:
        TypeError: It holds something else than data.
    """
    beside: list[memoryview] = []

    def put(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return _put_aside(value, beside)
        if isinstance(value, slice):
            return value.start, value.stop
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, range):
            return list(value)
        raise TypeError(f"a {type(value).__name__} is no data")

    return msgspec.msgpack.encode(message, enc_hook=put), beside


def unpacked(content: memoryview, beside: Sequence[memoryview], kind: Any) -> Any:
    """The message.

    Args:
        content: It without its arrays.
        beside: These.
        kind: Type of what is awaited.

    Raises:
        OddMessageError: It is something else.
    """
    decoder = _decoder(kind)
    _reading.beside = beside
    try:
        return decoder.decode(content)
    except Exception as error:  # whatever it is that somebody sends
        raise OddMessageError(f"not what was awaited: {error}") from error
    finally:
        del _reading.beside


@cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind, dec_hook=_checked, ext_hook=_taken)


def _put_aside(array: Array, beside: list[memoryview]) -> msgspec.msgpack.Ext:
    if array.dtype == object:
        # Texts of unequal lengths.
        content = msgspec.msgpack.encode((array.shape, [_plain(one) for one in array.flat]))
        return msgspec.msgpack.Ext(_OBJECTS, content)
    # Of types such as bfloat16, which NumPy does not know, the text is that of some bytes.
    name = array.dtype.name if array.dtype.kind == "V" else array.dtype.str
    beside.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    head = msgspec.msgpack.encode((len(beside) - 1, name, array.shape))
    return msgspec.msgpack.Ext(_ARRAY, head)


def _plain(element: Any) -> _Element:
    found = element.item() if isinstance(element, np.generic) else element
    if isinstance(found, _Element):
        return found
    raise TypeError(f"an array holds a {type(element).__name__}, which is no data")


def _taken(code: int, head: memoryview) -> Array:
    if code == _OBJECTS:
        shape, elements = msgspec.msgpack.decode(head, type=tuple[tuple[int, ...], list[Any]])
        made = np.empty(len(elements), object)
        made[:] = list(map(_plain, elements))
        return made.reshape(shape)
    place, name, shape = msgspec.msgpack.decode(head, type=tuple[int, str, tuple[int, ...]])
    dtype = np.dtype(name)
    if code != _ARRAY or not 0 <= place < len(_reading.beside) or dtype.hasobject:
        raise ValueError("no array")
    memory = _reading.beside[place]
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != memory.nbytes:
        raise ValueError("an array of another length")
    return np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)


def _checked(kind: Any, value: Any) -> Any:
    """A value of a type that msgspec does not know."""
    if kind is slice:
        return slice(*msgspec.convert(value, tuple[int, int]))
    if get_origin(kind) is np.ndarray and isinstance(value, np.ndarray):
        (scalar,) = get_args(get_args(kind)[1])
        if scalar is Any or value.dtype == scalar:
            return value
    raise ValueError(f"a {type(value).__name__} of another kind")
