"""Training and test data, in an order that any worker can take up at any step."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.sources.source import Array, ArraySource, Source

_LOG = logging.getLogger(__name__)

_PATIENCE_SECONDS = 10.0
_ONE_ARRAY = (
    "give one array with a row for each example: put several inputs side by side, and let the model"
    " take them apart"
)


@dataclass(frozen=True)
class Data:
    """Examples in arrays, and the transformation of a batch.

    The order of the training examples is a function of the seed and the worker-step alone: batch k
    of the job is the same whoever computes it, every epoch holds each example exactly once across
    all workers, and a run continues at any step as if it had never stopped.

    For data too large for memory see `StreamedData`.

    Attributes:
        train_inputs: Shape [examples, ...].
        train_labels: Shape [examples] (class numbers) or [examples, ...].
        test_inputs: As `train_inputs`.
        test_labels: As `train_labels`.
        transform: `(inputs, labels, seed) -> (inputs, labels)` on a training batch, in TensorFlow;
            `seed` has shape [2] and differs from batch to batch, for stateless random functions.
        test_transform: `(inputs, labels) -> (inputs, labels)` on a test batch.
    """

    train_inputs: Array
    train_labels: Array
    test_inputs: Array
    test_labels: Array
    transform: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None
    test_transform: Callable[[Any, Any], tuple[Any, Any]] | None = None

    def __post_init__(self) -> None:
        for field in ("train_inputs", "train_labels", "test_inputs", "test_labels"):
            object.__setattr__(self, field, _array(field, getattr(self, field)))
        for part in ("train", "test"):
            inputs, labels = getattr(self, f"{part}_inputs"), getattr(self, f"{part}_labels")
            if len(inputs) != len(labels) or len(inputs) == 0:
                raise WorkloadError(
                    f"data: {len(inputs)} {part} inputs and {len(labels)} {part} labels; "
                    "give as many labels as inputs, and at least one"
                )

    @classmethod
    def from_datasets(
        cls,
        train: Any,
        test: Any,
        transform: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None,
        test_transform: Callable[[Any, Any], tuple[Any, Any]] | None = None,
    ) -> Data:
        """Takes the examples of two finite `tf.data` pipelines of single `(input, label)` pairs.

        The pipelines are read once, into memory; their own shuffling, repeating and batching is
        left to syncswitch. Put random augmentation into `transform`, or every epoch repeats it.

        Args:
            train: Unbatched `tf.data.Dataset` of training examples.
            test: Unbatched `tf.data.Dataset` of test examples.
            transform: As in the class.
            test_transform: As in the class.

        Raises:
            WorkloadError: A pipeline is endless or does not yield pairs.
        """
        return cls(
            *_read_pipeline(train, "train"),
            *_read_pipeline(test, "test"),
            transform=transform,
            test_transform=test_transform,
        )

    @property
    def parse(self) -> None:
        """Nothing is to be parsed."""
        return None

    @cached_property
    def train(self) -> Source:
        """Inputs and labels of the training set."""
        return ArraySource((self.train_inputs, self.train_labels))

    @cached_property
    def test(self) -> Source:
        """Inputs and labels of the test set."""
        return ArraySource((self.test_inputs, self.test_labels))

    @property
    def chance_accuracy(self) -> float | None:
        """See `chance_accuracy`."""
        return chance_accuracy([class_numbers(self.test_labels)])


@dataclass(frozen=True)
class StreamedData:
    """Examples that workers read from files while they train, and so may be more than memory holds.

    As with `Data`, batch k of the job is the same whoever computes it, every epoch holds each
    example exactly once across all workers, and a run continues at any step. Each worker reads the
    batches that it will probably be asked for ahead of time.

    Attributes:
        train: Training examples, such as `TFRecordFiles`, `CsvFiles`, `ParquetFiles`,
            `PipelinePieces`, or a `Source` of one's own.
        test: Test examples; read anew for each test.
        parse: Makes `(inputs, labels)` of the arrays that these sources read for a batch, one
            argument for each, in TensorFlow; None where they are inputs and labels.
        transform: As in `Data`, on what `parse` has made.
        test_transform: As in `Data`.
    """

    train: Source
    test: Source
    parse: Callable[..., tuple[Any, Any]] | None = None
    transform: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None
    test_transform: Callable[[Any, Any], tuple[Any, Any]] | None = None

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            source = getattr(self, part)
            if not isinstance(source, Source):
                raise WorkloadError(
                    f"data: {part} is a {type(source).__name__}; give a source such as"
                    " TFRecordFiles(...)"
                )
            if source.examples < 1:
                raise WorkloadError(f"data: {part} has no examples; give at least one")

    @property
    def chance_accuracy(self) -> None:
        """Not known before the test examples are read."""
        return None


AnyData = Data | StreamedData


def class_numbers(labels: Array) -> Array | None:
    """The class of each example; None where labels are neither class numbers nor one-hot."""
    if labels.ndim == 2 and labels.shape[1] > 1 and (labels.sum(axis=1) == 1).all():
        labels = labels.argmax(axis=1)
    if labels.size != len(labels) or not np.issubdtype(labels.dtype, np.integer):
        return None
    return labels.reshape(-1)


def chance_accuracy(classes: Sequence[Array | None]) -> float | None:
    """Accuracy of always guessing the most frequent class; None where classes are not known.

    Args:
        classes: Of the batches of a test set, see `class_numbers`.
    """
    known = [one for one in classes if one is not None]
    if len(known) < len(classes):
        return None
    counts = np.unique(np.concatenate(known), return_counts=True)[1]
    return float(counts.max() / counts.sum())


def _array(field: str, given: Any) -> Array:
    """The given value as one array."""
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise WorkloadError(
            f"data: {field} is a {type(given).__name__} of unequal arrays ({error}); {_ONE_ARRAY}"
        ) from error
    first = array.flat[0] if array.dtype == object and array.size else array
    if array.ndim == 0 or isinstance(first, dict | tuple | list):
        holder = "" if array.ndim == 0 else f"holds a {type(first).__name__} for each example"
        raise WorkloadError(
            f"data: {field} {holder or f'is a {type(given).__name__}'}; {_ONE_ARRAY}"
        )
    return array


def _read_pipeline(dataset: Any, part: str) -> tuple[Array, Array]:
    if int(dataset.cardinality()) == -1:
        raise WorkloadError(
            f"data: the {part} pipeline is endless; leave out repeat(), syncswitch counts epochs"
        )
    examples = []
    tell_at = time.monotonic() + _PATIENCE_SECONDS
    for example in dataset.as_numpy_iterator():
        examples.append(example)
        # What a generator yields may have no end, and nobody can know.
        if time.monotonic() >= tell_at:
            tell_at = math.inf
            _LOG.warning(
                "data: still reading the %s pipeline, %s examples so far; where it is endless, say"
                " take(EXAMPLES), as this never ends",
                part,
                f"{len(examples):,}",
            )
    if not examples or not isinstance(examples[0], tuple) or len(examples[0]) != 2:
        raise WorkloadError(
            f"data: the {part} pipeline must yield (input, label) pairs, one example at a time"
        )
    inputs, labels = zip(*examples, strict=True)
    for what, values in (("input", inputs), ("label", labels)):
        if isinstance(values[0], dict | tuple):
            raise WorkloadError(
                f"data: the {part} pipeline yields a {type(values[0]).__name__} as {what};"
                f" {_ONE_ARRAY}"
            )
    try:
        return np.stack(inputs), np.stack(labels)
    except ValueError as error:
        raise WorkloadError(
            f"data: the examples of the {part} pipeline differ in shape ({error}); leave out "
            "batch(), or bring them to one shape"
        ) from error
