"""Training and test data, in an order that any worker can take up at any step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.sources.nested import Leaf, apart
from syncswitch.trainers.job.sources.pipelines import read_pipeline
from syncswitch.trainers.job.sources.source import Array, ArraySource, Source


@dataclass(frozen=True)
class Data:
    """Examples in arrays, and the transformation of a batch.

    The order of the training examples is a function of the seed and the worker-step alone: batch k
    of the job is the same whoever computes it, every epoch holds each example exactly once across
    all workers, and a run continues at any step as if it had never stopped.

    For data too large for memory see `StreamedData`.

    Attributes:
        train_inputs: Shape [examples, ...]; or a dict, tuple or list of such arrays, as the model
            takes them. Each may be a sparse matrix of SciPy or TensorFlow, or a `tf.RaggedTensor`
            with one ragged dimension, which is held padded.
        train_labels: Shape [examples] (class numbers) or [examples, ...]; for a model with several
            outputs a dict, tuple or list of such.
        test_inputs: As `train_inputs`.
        test_labels: As `train_labels`.
        transform: `(inputs, labels, seed) -> (inputs, labels)` on a training batch, in TensorFlow;
            `seed` has shape [2] and differs from batch to batch, for stateless random functions.
        test_transform: `(inputs, labels) -> (inputs, labels)` on a test batch.
        train_weights: Weights of the examples in the loss, as `sample_weight` of Keras' `fit`; for
            several outputs a dict, tuple or list as the labels, or one array for all.
        test_weights: Weights of the examples in the metric.
        train: The training set as a source.
        test: The test set as a source.
    """

    train_inputs: Any
    train_labels: Any
    test_inputs: Any
    test_labels: Any
    transform: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None
    test_transform: Callable[[Any, Any], tuple[Any, Any]] | None = None
    train_weights: Any = None
    test_weights: Any = None

    train: ArraySource = field(init=False, repr=False, compare=False)
    test: ArraySource = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            object.__setattr__(self, part, self._source(part))

    @classmethod
    def from_datasets(
        cls,
        train: Any,
        test: Any,
        transform: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None,
        test_transform: Callable[[Any, Any], tuple[Any, Any]] | None = None,
    ) -> Data:
        """Takes the examples of two finite `tf.data` pipelines of single `(input, label)` pairs.

        Or of `(input, label, weight)`. Each of them may be a dict or tuple. The pipelines are read
        once, into memory; their own shuffling, repeating and batching is left to syncswitch. Put
        random augmentation into `transform`, or every epoch repeats it.

        Args:
            train: Unbatched `tf.data.Dataset` of training examples.
            test: Unbatched `tf.data.Dataset` of test examples.
            transform: See the class.
            test_transform: See the class.

        Raises:
            WorkloadError: A pipeline is endless or does not yield pairs.
        """
        found: dict[str, Any] = {}
        for part, pipeline in (("train", train), ("test", test)):
            names = (f"{part}_inputs", f"{part}_labels", f"{part}_weights")
            found.update(zip(names, read_pipeline(pipeline, part), strict=False))
        return cls(**found, transform=transform, test_transform=test_transform)

    @property
    def parse(self) -> None:
        """None, as arrays need no parsing."""
        return None

    @property
    def chance_accuracy(self) -> float | None:
        """See `chance_accuracy`; None where there are several outputs, or weights."""
        labels = self.test_labels
        is_plain = isinstance(labels, np.ndarray) and self.test_weights is None
        return chance_accuracy([class_numbers(labels)]) if is_plain else None

    def _source(self, part: str) -> ArraySource:
        parts = ["inputs", "labels"]
        if getattr(self, f"{part}_weights") is not None:
            parts.append("weights")
        found = {name: apart(f"{part}_{name}", getattr(self, f"{part}_{name}")) for name in parts}
        for name, (rows, form) in found.items():
            if form == Leaf():
                # As the one array that it stands for, for those who look at it.
                object.__setattr__(self, f"{part}_{name}", rows[0])
        lengths = {name: len(rows[0]) for name, (rows, _) in found.items()}
        if len(set(lengths.values())) > 1 or not lengths["inputs"]:
            counted = " and ".join(f"{count} {part} {name}" for name, count in lengths.items())
            raise WorkloadError(
                f"data: {counted}; give as many of each, and at least one (a list of arrays is"
                " several inputs: np.stack examples)"
            )
        if "weights" in found:
            _check_weights(part, found["weights"][0])
        rows = tuple(row for rows, _ in found.values() for row in rows)
        return ArraySource(rows, tuple(form for _, form in found.values()))


@dataclass(frozen=True)
class StreamedData:
    """Examples that workers read from files while they train, and so may be more than memory holds.

    As with `Data`, batch k of the job is the same whoever computes it, every epoch holds each
    example exactly once across all workers, and a run continues at any step. Each worker reads the
    batches that it will probably be asked for ahead of time.

    Attributes:
        train: Training examples, such as `TFRecordFiles`, `NumpyFiles`, `PipelinePieces`, or
            a `Source` of one's own.
        test: Test examples; read anew for each test.
        parse: Makes `(inputs, labels)`, or `(inputs, labels, weights)`, of the arrays that these
            sources read for a batch, one argument for each, in TensorFlow; each of the three as in
            `Data`. None where the sources give inputs and labels.
        transform: As in `Data`, on what `parse` has made.
        test_transform: As in `Data`.
    """

    train: Source
    test: Source
    parse: Callable[..., tuple[Any, ...]] | None = None
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
        """None, as it is not known before the test examples are read."""
        return None


AnyData = Data | StreamedData


def class_numbers(labels: Array) -> Array | None:
    """The class of each example; None where labels are neither class numbers nor one-hot."""
    if labels.ndim == 2 and labels.shape[1] > 1 and (labels.sum(axis=1) == 1).all():
        labels = labels.argmax(axis=1)
    if labels.size != len(labels) or labels.dtype.kind not in "iub":
        return None
    return labels.reshape(-1).astype(int) if labels.dtype == bool else labels.reshape(-1)


def has_accuracy(labels: Array, output_shape: Sequence[int | None]) -> bool:
    """Whether a model can be right or wrong about these labels: they are classes, or one-hot.

    Args:
        labels: Some labels.
        output_shape: Shape of the model's output, examples first; empty where it is not known.
    """
    width = output_shape[-1] if output_shape else None
    if labels.dtype.kind not in "iubf":
        return True
    if width == 1:
        return bool(np.isin(labels, (0, 1)).all())
    if labels.ndim == len(output_shape) and labels.shape[-1] == width:
        return bool(np.allclose(labels.sum(axis=-1), 1, atol=1e-3) and labels.min() >= 0)
    return bool((labels == np.round(labels)).all())


def chance_accuracy(classes: Sequence[Array | None]) -> float | None:
    """Accuracy of always guessing the most frequent class; None where classes are not known.

    Args:
        classes: Classes in each batch of a test set, as `class_numbers` finds them.
    """
    known = [one for one in classes if one is not None]
    if len(known) < len(classes):
        return None
    counts = np.unique(np.concatenate(known), return_counts=True)[1]
    return float(counts.max() / counts.sum())


def _check_weights(part: str, rows: Sequence[Array]) -> None:
    for weights in rows:
        is_number = np.issubdtype(weights.dtype, np.number) or weights.dtype == bool
        wrong = weights[~((weights >= 0) & (weights < np.inf))] if is_number else weights
        if len(wrong):
            raise WorkloadError(
                f"data: {part}_weights holds {wrong.flat[0]!r}; give each example a finite number"
                " of 0 or more"
            )
