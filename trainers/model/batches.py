"""Inputs and labels made of the examples of a source, and the loss of a batch by output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.data import AnyData, Data
from syncswitch.trainers.job.keras_parts import (
    build_loss,
    class_weights,
    keras_loss,
    loss_settings,
    warn_once,
)
from syncswitch.trainers.job.pipelines import unflatten
from syncswitch.trainers.job.sources import Array, ArraySource, Rows, Source
from syncswitch.trainers.job.workload import Workload, users_code
from syncswitch.trainers.model.tensorflow_api import tf


class Weighted(NamedTuple):
    """Labels, and the weights of their examples in the loss or metric."""

    labels: Any
    weights: Any


def parsed(data: AnyData, source: Source, rows: Sequence[Any]) -> tuple[Any, Any]:
    """Makes inputs, and labels or `Weighted`, of the arrays or tensors of a source."""
    if data.parse is not None:
        batch = data.parse(*rows)
    elif source.form is not None:
        batch = unflatten(source.form, iter(rows))
    else:
        batch = tuple(rows)
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        given = f"{len(rows)} arrays" if data.parse is None else f"a {type(batch).__name__}"
        raise WorkloadError(
            f"data: {'the source' if data.parse is None else 'parse()'} gives {given}; give a"
            " parse() that makes (inputs, labels), or (inputs, labels, weights), of them"
        )
    inputs, labels, *weights = batch
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


def check_inputs(workload: Workload, data: AnyData, examples: Rows, model: Any) -> None:
    """Refuses inputs with other names, numbers, shapes or types than the model takes."""
    with users_code(workload, "parse"):
        read, _ = parsed(data, data.train, examples)
    wanted = _wanted_inputs(model)
    if not wanted or data.transform is not None:
        return
    for name, given in _matched(workload, read, wanted).items():
        problem = _misfit(given, wanted[name])
        if problem:
            where = f" for input {name!r}" if len(wanted) > 1 else ""
            raise workload.error(f"an example of data(){where} {problem}")


def _wanted_inputs(model: Any) -> dict[str, Any]:
    # Only functional and Sequential models know them.
    tensors = getattr(model, "inputs", None) or []
    # A Sequential model does not have it.
    nested = getattr(model, "input", None)
    if tensors and isinstance(nested, dict):
        return dict(nested)
    return {one.name: one for one in tensors}


def _matched(workload: Workload, read: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    if isinstance(read, dict):
        if not wanted.keys() <= read.keys():
            raise workload.error(
                f"the model takes {quoted(wanted)}, and data() gives {quoted(read)}; use the same"
                " names"
            )
        return {name: read[name] for name in wanted}
    given = list(read) if isinstance(read, tuple | list) else [read]
    if len(given) != len(wanted):
        raise workload.error(
            f"the model takes {len(wanted)} inputs, {quoted(wanted)}, and data() gives"
            f" {len(given)}; give a dict with these names"
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
    shapes = [shape, (*shape, 1), *([shape[:-1]] if shape[-1:] == (1,) else [])]
    if any(_fits(one, needed) for one in shapes):
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
    numbers = np.arange(2 if is_any_size else workload.batch_size) % data.train.examples
    with users_code(workload, "data"):
        return data.train.read(numbers)


def check_labels(workload: Workload, data: AnyData, loss: Any, model: Any) -> None:
    """Refuses labels in memory that the loss of a single output cannot take."""
    if not isinstance(data, Data) or data.transform is not None:
        return
    labels, inputs = data.train_labels, data.train_inputs
    if not isinstance(labels, np.ndarray):
        return
    outputs = getattr(model, "outputs", None) or []
    shape = tuple(outputs[0].shape) if len(outputs) == 1 else ()
    for problem in _problems(labels, workload.loss, loss, shape):
        raise workload.error(problem)
    # A sum needs no memory, and is not finite where one value is not.
    is_number = isinstance(inputs, np.ndarray) and inputs.dtype.kind == "f"
    if is_number and not np.isfinite(inputs.sum()) and (missing := int(np.isnan(inputs).sum())):
        are = "1 value of train_inputs is"
        if missing > 1:
            are = f"{missing:,} values of train_inputs are"
        warn_once(
            f"workload {workload.name!r}: {are} NaN, and a run"
            " diverges unless the model takes them out; fill them in, such as with np.nan_to_num"
        )


def _problems(labels: Array, said: Any, loss: Any, shape: tuple[Any, ...]) -> Iterator[str]:
    if labels.dtype.kind in "OSU":
        yield (
            f"the labels are text such as {labels.flat[0]!r}; give numbers of classes:"
            " np.unique(labels, return_inverse=True)[1]"
        )
        return
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        count = int(np.isnan(labels).sum())
        are = "1 label is" if count == 1 else f"{count:,} labels are"
        yield f"{are} NaN, and so would be every loss; leave out such examples"
    name = (said if isinstance(said, str) else type(loss).__name__).replace("_", "").lower()
    classes = shape[-1] if shape else None
    if classes is None or classes < 2:
        return
    if name == "categoricalcrossentropy" and labels.ndim < len(shape):
        yield (
            "loss categorical_crossentropy takes one-hot labels, and these are numbers of classes;"
            " give sparse_categorical_crossentropy"
        )
    if name != "sparsecategoricalcrossentropy":
        return
    if labels.ndim == len(shape) and labels.shape[-1] == classes:
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


class Decisive(NamedTuple):
    """A batch as the metric sees it: the one output by which a run is judged."""

    labels: Any
    outputs: Any
    weights: Any
    loss: Any


class Outputs:
    """Matches the outputs of a model with the workload's losses, weights and labels for them."""

    def __init__(self, workload: Workload, model: Any) -> None:
        self._workload = workload
        self._names = getattr(model, "output_names", None) or ()
        self.losses = build_loss(workload)

    def loss(self, labels: Any, outputs: Any, *, training: bool = False) -> Any:
        """Computes the loss of a batch, for several outputs the weighted sum of theirs.

        Weights of classes count in training alone. Without a reduction there is one for each value.
        """
        labels, weights = _unweighted(labels)
        factors = self._workload.loss_weights
        names = self.names(outputs)
        if training and self._workload.class_weight:
            of_classes = class_weights(self._workload.class_weight, _single(labels))
            weights = of_classes if weights is None else weights * of_classes
        if names is None and factors is None and not _is_nested(self.losses):
            return keras_loss(self.losses)(_single(labels), outputs, sample_weight=weights)
        if names is None:
            names, outputs = list(self._names[:1]) or ["0"], [outputs]
        losses = _by_name(self._workload, "loss", self.losses, names)
        by_output = zip(
            losses,
            _by_name(self._workload, "loss_weights", factors, names),
            _by_name(self._workload, "train_weights", weights, names),
            self._labels(labels, [loss is not None for loss in losses], names),
            _listed(outputs),
            strict=True,
        )
        total = tf.constant(0.0)
        for loss, factor, weight, label, output in by_output:
            if loss is not None:
                own = keras_loss(loss)(label, output, sample_weight=weight)
                total += tf.cast(own, tf.float32) * (1.0 if factor is None else factor)
        return total

    def decisive(self, labels: Any, outputs: Any) -> Decisive:
        """Picks the output that the metric sees from labels, perhaps `Weighted`, and outputs."""
        labels, weights = _unweighted(labels)
        names, wanted = self.names(outputs), self._workload.metric_output
        if names is None:
            loss = _listed(self.losses)[0] if _is_nested(self.losses) else self.losses
            return Decisive(_single(labels), outputs, weights, loss)
        if wanted not in names:
            raise self._workload.error(
                f"metric_output is {wanted!r}, and the model has the outputs {quoted(names)}; give"
                " the name of the one by which a run is judged"
            )
        place = names.index(wanted)
        return Decisive(
            self._labels(labels, [name == wanted for name in names], names)[place],
            _listed(outputs)[place],
            _by_name(self._workload, "test_weights", weights, names)[place],
            _by_name(self._workload, "loss", self.losses, names)[place],
        )

    def names(self, outputs: Any) -> list[str] | None:
        """Returns the names of several outputs in their order; None for a single tensor."""
        if not _is_nested(outputs):
            return None
        if any(map(_is_nested, _listed(outputs))):
            raise self._workload.error(
                "the model's outputs are nested; give it a dict or list of tensors"
            )
        if isinstance(outputs, Mapping):
            return list(outputs)
        if len(self._names) == len(outputs):
            return list(self._names)
        return [str(place) for place in range(len(outputs))]

    def _labels(self, labels: Any, is_wanted: Sequence[bool], names: list[str]) -> list[Any]:
        if isinstance(labels, Mapping):
            if any(name not in labels and is_wanted[place] for place, name in enumerate(names)):
                raise _mismatch(self._workload, "the labels are", labels, names)
            return [labels.get(name) for name in names]
        given = _listed(labels) if _is_nested(labels) else [labels]
        if len(given) == len(names):
            return given
        if len(given) == sum(is_wanted):
            left = iter(given)
            return [next(left) if wanted else None for wanted in is_wanted]
        raise self._workload.error(
            f"data() gives {len(given)} arrays of labels for the {len(names)} outputs"
            f" {quoted(names)}; give a dict with these names"
        )


def _by_name(workload: Workload, what: str, given: Any, names: list[str]) -> list[Any]:
    """Returns the given value of each output; a single one is for all."""
    if isinstance(given, Mapping):
        if not set(given) <= set(names):
            raise _mismatch(workload, f"{what} names", given, names)
        return [given.get(name) for name in names]
    if not _is_nested(given):
        return [given] * len(names)
    if len(given) != len(names):
        raise workload.error(
            f"{what} has {len(given)} entries for the {len(names)} outputs {quoted(names)}; give"
            " one for each"
        )
    return list(given)


def _unweighted(labels: Any) -> tuple[Any, Any]:
    return labels if isinstance(labels, Weighted) else (labels, None)


def _single(labels: Any) -> Any:
    """Returns the labels of a single output, which may be in a dict or list of one."""
    return _listed(labels)[0] if _is_nested(labels) and len(labels) == 1 else labels


def _is_nested(value: Any) -> bool:
    return isinstance(value, Mapping | tuple | list)


def _listed(value: Any) -> list[Any]:
    return list(value.values() if isinstance(value, Mapping) else value)


def _mismatch(
    workload: Workload, what: str, given: Iterable[str], names: Iterable[str]
) -> WorkloadError:
    return workload.error(
        f"{what} {quoted(given)}, and the model's outputs are {quoted(names)}; use the same names"
    )
