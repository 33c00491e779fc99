"""Training and test data, in an order that any worker can join at any step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.pipelines import Leaf, flatten, read_pipeline
from syncswitch.trainers.job.sources import Array, ArraySource, Source


@dataclass(frozen=True)
class Data:
    """Examples in arrays, and the transformation of a batch.

    The order of the training examples depends on the seed and the worker-step alone: batch k of the
    job is the same whichever worker computes it, every epoch holds each example exactly once across
    all workers, and a run continues at any step as if it had never stopped.

    For data too large for memory see `StreamedData`.

    Attributes:
        train_inputs: Shape [examples, ...]; or a dict, tuple or list of such arrays, as the model
            takes them. Each may be a sparse matrix of SciPy or TensorFlow, or a `tf.RaggedTensor`
            with one ragged dimension, which is held padded.
        train_labels: Shape [examples] (class indices) or [examples, ...]; for a model with several
            outputs a dict, tuple or list of such arrays.
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
    parse: ClassVar[None] = None  # arrays need no parsing

    def __post_init__(self) -> None:
        for split in ("train", "test"):
            object.__setattr__(self, split, self._source(split))

    @classmethod
    def from_datasets(
        cls,
        train: Any,
        test: Any,
        transform: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None,
        test_transform: Callable[[Any, Any], tuple[Any, Any]] | None = None,
    ) -> Data:
        """Reads two finite `tf.data` pipelines of `(input, label)` or `(input, label, weight)`.

        They yield single examples, whose parts may be dicts or tuples, and are read once into
        memory. Leave shuffling, repeating and batching to syncswitch, and put random augmentation
        into `transform`, or every epoch repeats it.

        Args:
            train: Unbatched `tf.data.Dataset` of training examples.
            test: Unbatched `tf.data.Dataset` of test examples.
            transform: See the class.
            test_transform: See the class.

        Raises:
            WorkloadError: A pipeline is endless or does not yield pairs.
        """
        examples: dict[str, Any] = {}
        for split, pipeline in (("train", train), ("test", test)):
            names = (f"{split}_inputs", f"{split}_labels", f"{split}_weights")
            examples.update(zip(names, read_pipeline(pipeline, split), strict=False))
        return cls(**examples, transform=transform, test_transform=test_transform)

    def _source(self, split: str) -> ArraySource:
        given = {name: getattr(self, f"{split}_{name}") for name in ("inputs", "labels", "weights")}
        if given["weights"] is None:
            del given["weights"]
        flat = {name: flatten(f"{split}_{name}", nested) for name, nested in given.items()}
        for name, (rows, tree_spec) in flat.items():
            if tree_spec == Leaf():
                # Tables of pandas and lists become the array that they stand for.
                object.__setattr__(self, f"{split}_{name}", rows[0])
        lengths = {name: len(rows[0]) for name, (rows, _) in flat.items()}
        if len(set(lengths.values())) > 1 or not lengths["inputs"]:
            counted = " and ".join(f"{count} {split} {name}" for name, count in lengths.items())
            raise WorkloadError(
                f"data: {counted}; give as many of each, and at least one (a list of arrays is"
                " several inputs: np.stack examples)"
            )
        if "weights" in flat:
            _check_weights(split, flat["weights"][0])
        rows = tuple(row for rows, _ in flat.values() for row in rows)
        return ArraySource(rows, tuple(tree_spec for _, tree_spec in flat.values()))


@dataclass(frozen=True)
class StreamedData:
    """Examples that workers read from files while they train, so they need not fit into memory.

    As with `Data`, batch k of the job is the same whichever worker computes it, every epoch holds
    each example exactly once across all workers, and a run continues at any step. Each worker reads
    ahead the batches that it will probably be asked for.

    Attributes:
        train: Training examples: `TFRecordFiles`, `NumpyFiles`, `PipelinePieces`, or your own
            `Source`.
        test: Test examples, read again for each test.
        parse: Turns the arrays that the sources read for a batch, one argument each, into
            `(inputs, labels)` or `(inputs, labels, weights)`, in TensorFlow; each of the three as
            in `Data`. None if the sources yield inputs and labels.
        transform: As in `Data`, applied to the result of `parse`.
        test_transform: As in `Data`.
    """

    train: Source
    test: Source
    parse: Callable[..., tuple[Any, ...]] | None = None
    transform: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None
    test_transform: Callable[[Any, Any], tuple[Any, Any]] | None = None

    def __post_init__(self) -> None:
        for split in ("train", "test"):
            source = getattr(self, split)
            if not isinstance(source, Source):
                raise WorkloadError(
                    f"data: {split} is a {type(source).__name__}; give a source such as"
                    " TFRecordFiles(...)"
                )
            if source.examples < 1:
                raise WorkloadError(f"data: {split} has no examples; give at least one")


AnyData = Data | StreamedData


def class_numbers(labels: Array) -> Array | None:
    """Returns the class of each example; None unless labels are class indices or one-hot."""
    if labels.ndim == 2 and labels.shape[1] > 1 and (labels.sum(axis=1) == 1).all():
        labels = labels.argmax(axis=1)
    if labels.size != len(labels) or labels.dtype.kind not in "iub":
        return None
    return labels.reshape(-1).astype(int) if labels.dtype == bool else labels.reshape(-1)


def has_accuracy(labels: Array, output_shape: Sequence[int | None]) -> bool:
    """Whether accuracy makes sense for these labels, which must be classes or one-hot.

    The shape of the model's output has the examples first; it is empty if it is not known.
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
    """Accuracy of always guessing the most frequent class; None if the classes are not known."""
    numbered = [one for one in classes if one is not None]
    if len(numbered) < len(classes):
        return None
    counts = np.unique(np.concatenate(numbered), return_counts=True)[1]
    return float(counts.max() / counts.sum())


def _check_weights(split: str, rows: Sequence[Array]) -> None:
    for weights in rows:
        is_number = np.issubdtype(weights.dtype, np.number) or weights.dtype == bool
        wrong = weights[~((weights >= 0) & (weights < np.inf))] if is_number else weights
        if len(wrong):
            raise WorkloadError(
                f"data: {split}_weights holds {wrong.flat[0]!r}; give each example a finite number"
                " of 0 or more"
            )
