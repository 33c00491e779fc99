"""What `fit` would get, as the data of a workload."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.data import AnyData, Data
from syncswitch.trainers.job.sources.nested import Leaf, apart, taken, together
from syncswitch.trainers.job.sources.pipelines import read_pipeline

BATCH_SIZE = 32
_PLAIN = ((Leaf(), Leaf()),)
_FORMS = "(inputs, labels), or (inputs, labels, weights)"


@dataclass(frozen=True, slots=True)
class Given:
    """What `fit` would get.

    Attributes:
        load: Loads the data.
        batch_size: B.
        known_as: Name of the data.
        steps_per_epoch: Batches.
        sample: A few inputs and labels; None where that would mean to read files.
    """

    load: Callable[[], AnyData]
    batch_size: int
    known_as: str
    steps_per_epoch: int
    sample: tuple[Any, Any] | None


def given_data(data: AnyData, name: str, batch_size: int | None) -> Given:
    """Of data that are made already."""
    size = batch_size or BATCH_SIZE
    sample = None
    if isinstance(data, Data):
        sample = _first((data.train_inputs, data.train_labels))
    return Given(lambda: data, size, name, _batches(data, size), sample)


def given_arrays(
    whose: str,
    train: Sequence[Any],
    test: Any,
    validation_split: float,
    name: str,
    batch_size: int | None,
    *,
    is_test_weighted: bool,
) -> Given:
    """Of arrays.

    Args:
        whose: For errors.
        train: Inputs, labels and weights, which may be None.
        test: `validation_data`.
        validation_split: Instead of it.
        name: Of the job.
        batch_size: B; None for the usual one.
        is_test_weighted: Whether the weights of the tests count.
    """
    if test is None:
        if not 0 < validation_split < 1:
            raise WorkloadError(
                f"{whose}: there is nothing to test with; give validation_data=(inputs, labels),"
                f" or a validation_split between 0 and 1 (it is {validation_split!r})"
            )
        train, test = _split(train, validation_split)
    else:
        test = _read(whose, test, "validation_data")
    data = _joined(train, test, is_test_weighted=is_test_weighted)
    size = batch_size or BATCH_SIZE
    steps = _batches(data, size)
    return Given(lambda: data, size, _digest(name, data), steps, _first(train))


def given_pipeline(
    whose: str,
    train: Any,
    test: Any,
    steps_per_epoch: int | None,
    name: str,
    *,
    is_test_weighted: bool,
) -> Given:
    """Of a `tf.data.Dataset` or PyDataset of batches, which is read when the data are loaded.

    Args:
        whose: For errors.
        train: Yields batches of inputs, labels and perhaps weights.
        test: `validation_data`: another one, or arrays.
        steps_per_epoch: Batches of an epoch, where it does not know; None to count.
        name: Of the job, and of the data.
        is_test_weighted: Whether the weights of the tests count.
    """
    _check_readable(whose, train, "x")
    if test is None:
        raise WorkloadError(
            f"{whose}: there is nothing to test with; give validation_data, another Dataset or"
            " arrays, as validation_split is for arrays"
        )
    if not isinstance(test, tuple | list):
        _check_readable(whose, test, "validation_data")
    is_pipeline = hasattr(train, "unbatch")
    if steps_per_epoch is None:
        steps_per_epoch = int(train.cardinality() if is_pipeline else train.num_batches or 0)
        if steps_per_epoch < 1:
            raise WorkloadError(
                f"{whose}: x does not know how many batches it has; give steps_per_epoch, and a"
                " pipeline that ends (without repeat())"
            )
    first = next(iter(train.take(1)), None) if is_pipeline else train[0]
    if not isinstance(first, tuple) or len(first) not in (2, 3):
        raise WorkloadError(f"{whose}: x yields no {_FORMS}; bring it to that with map()")
    size = len(apart("y", first[1])[0][0])

    def load() -> Data:
        return _joined(
            _read(whose, train, "x"),
            _read(whose, test, "validation_data"),
            is_test_weighted=is_test_weighted,
        )

    return Given(load, size, name, steps_per_epoch, _first(first))


def _check_readable(whose: str, given: Any, part: str) -> None:
    if not (hasattr(given, "unbatch") or isinstance(given, keras.utils.PyDataset)):
        raise WorkloadError(
            f"{whose}: {part} is a {type(given).__name__}, and there is no y; give arrays x and y,"
            " or as x a tf.data.Dataset or keras.utils.PyDataset of batches that ends (a generator:"
            " tf.data.Dataset.from_generator(...).take(BATCHES))"
        )


def _read(whose: str, given: Any, part: str) -> tuple[Any, ...]:
    """Inputs, labels and perhaps weights of all examples."""
    if hasattr(given, "unbatch"):
        return read_pipeline(given.unbatch(), part)
    if isinstance(given, keras.utils.PyDataset):
        return _of_batches(whose, given, part)
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        raise WorkloadError(
            f"{whose}: {part} is a {type(given).__name__}; give a pair of inputs and labels, or"
            " these and weights, or a Dataset of batches"
        )
    return tuple(given)


def _of_batches(whose: str, given: Any, part: str) -> tuple[Any, ...]:
    """All batches of a PyDataset in their order, once."""
    if given.num_batches is None:
        raise WorkloadError(f"{whose}: {part} is endless; give it a __len__, its batches")
    batches = [apart(part, given[number]) for number in range(given.num_batches)]
    form = batches[0][1] if batches else None
    if not isinstance(form, tuple) or len(form) not in (2, 3):
        raise WorkloadError(f"{whose}: {part} yields no {_FORMS}")
    columns = zip(*(rows for rows, _ in batches), strict=True)
    found: tuple[Any, ...] = together(form, map(np.concatenate, columns))
    return found


def _joined(train: Sequence[Any], test: Sequence[Any], *, is_test_weighted: bool) -> Data:
    return Data(
        train[0],
        train[1],
        test[0],
        test[1],
        train_weights=train[2] if len(train) > 2 else None,
        test_weights=test[2] if is_test_weighted and len(test) > 2 else None,
    )


def _split(given: Sequence[Any], share: float) -> tuple[Sequence[Any], Sequence[Any]]:
    """As Keras does it: the last ones are to test with."""
    examples = len(apart("y", given[1])[0][0])
    numbers = np.arange(examples)
    kept = math.floor(examples * (1 - share))
    parts = [one for one in given if one is not None]
    train, test = (
        tuple(taken(one, numbers[part]) for one in parts)
        for part in (slice(kept), slice(kept, None))
    )
    return train, test


def _batches(data: AnyData, size: int) -> int:
    return math.ceil(data.train.examples / max(1, size))


def _first(given: Sequence[Any]) -> tuple[Any, Any]:
    """The first inputs and labels."""
    inputs, labels = (
        taken(one, np.arange(min(BATCH_SIZE, len(apart("x", one)[0][0])))) for one in given[:2]
    )
    return inputs, labels


def _digest(name: str, data: Data) -> str:
    """Names the data by what they are."""
    digest = hashlib.sha256()
    for source in (data.train, data.test):
        if source.form not in _PLAIN:
            digest.update(repr(source.form).encode())
        for one in source.rows:
            digest.update(f"{one.dtype} {one.shape}".encode())
            # An array of objects holds where they lie in memory.
            text = one.dtype == object
            held = repr(one.tolist()).encode() if text else np.ascontiguousarray(one).tobytes()
            digest.update(held)
    return f"{name}-{digest.hexdigest()[:12]}"
