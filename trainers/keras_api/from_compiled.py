"""A workload from what `model.fit` would get."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.data import AnyData, Data, StreamedData, has_accuracy
from syncswitch.trainers.job.sources.nested import Leaf, apart, taken, together
from syncswitch.trainers.job.sources.pipelines import read_pipeline
from syncswitch.trainers.job.workload import LOSS_METRIC, Workload
from syncswitch.trainers.keras_api.compiled import (
    built_anew,
    compiled_fields,
    compiled_metric,
    copies,
    ensure_built,
)
from syncswitch.trainers.run.callbacks import usable_callbacks

BATCH_SIZE = 32
_PLAIN = ((Leaf(), Leaf()),)
_FORMS = "(inputs, labels), or (inputs, labels, weights)"


_WHOSE = "from_compiled"
_TESTS = 40


@dataclass(frozen=True, slots=True)
class _Given:
    """Data and batches as `fit` would get them.

    Attributes:
        load: Loads the data.
        batch_size: B.
        known_as: Name of the data.
        steps_per_epoch: Batches of an epoch.
        sample: A few inputs and labels; None where that would mean to read files.
    """

    load: Callable[[], AnyData]
    batch_size: int
    known_as: str
    steps_per_epoch: int
    sample: tuple[Any, Any] | None


def _of_data(data: AnyData, name: str, batch_size: int) -> _Given:
    sample = _first((data.train_inputs, data.train_labels)) if isinstance(data, Data) else None
    steps = math.ceil(data.train.examples / max(1, batch_size))
    return _Given(lambda: data, batch_size, name, steps, sample)


def _of_arrays(
    train: Sequence[Any], test: Any, validation_split: float, *, is_test_weighted: bool
) -> Data:
    """Joins inputs, labels and weights (which may be None) with the data to test with."""
    if test is not None:
        return _joined(train, _read(test, "validation_data"), is_test_weighted=is_test_weighted)
    if not 0 < validation_split < 1:
        raise WorkloadError(
            f"{_WHOSE}: there is nothing to test with; give validation_data=(inputs, labels),"
            f" or a validation_split between 0 and 1 (it is {validation_split!r})"
        )
    return _joined(*_split(train, validation_split), is_test_weighted=is_test_weighted)


def _of_batches(
    train: Any, test: Any, steps_per_epoch: int | None, name: str, *, is_test_weighted: bool
) -> _Given:
    """Takes a `tf.data.Dataset` or PyDataset, which is read when the data are loaded."""
    _check_readable(train, "x")
    if test is None:
        raise WorkloadError(
            f"{_WHOSE}: there is nothing to test with; give validation_data, another Dataset or"
            " arrays, as validation_split is for arrays"
        )
    if not isinstance(test, tuple | list):
        _check_readable(test, "validation_data")
    is_pipeline = hasattr(train, "unbatch")
    if steps_per_epoch is None:
        steps_per_epoch = int(train.cardinality() if is_pipeline else train.num_batches or 0)
        if steps_per_epoch < 1:
            raise WorkloadError(
                f"{_WHOSE}: x does not know how many batches it has; give steps_per_epoch, and a"
                " pipeline that ends (without repeat())"
            )
    first = next(iter(train.take(1)), None) if is_pipeline else train[0]
    if not isinstance(first, tuple) or len(first) not in (2, 3):
        raise WorkloadError(f"{_WHOSE}: x yields no {_FORMS}; bring it to that with map()")

    def load() -> Data:
        parts = _read(train, "x"), _read(test, "validation_data")
        return _joined(*parts, is_test_weighted=is_test_weighted)

    size = len(apart("y", first[1])[0][0])
    return _Given(load, size, name, steps_per_epoch, _first(first))


def _check_readable(given: Any, part: str) -> None:
    if not (hasattr(given, "unbatch") or isinstance(given, keras.utils.PyDataset)):
        raise WorkloadError(
            f"{_WHOSE}: {part} is a {type(given).__name__}, and there is no y; give arrays x and y,"
            " or as x a tf.data.Dataset or keras.utils.PyDataset of batches that ends (a generator:"
            " tf.data.Dataset.from_generator(...).take(BATCHES))"
        )


def _read(given: Any, part: str) -> tuple[Any, ...]:
    """Inputs, labels and perhaps weights of all examples."""
    if hasattr(given, "unbatch"):
        return read_pipeline(given.unbatch(), part)
    if isinstance(given, keras.utils.PyDataset):
        return _read_batches(given, part)
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        raise WorkloadError(
            f"{_WHOSE}: {part} is a {type(given).__name__}; give a pair of inputs and labels, or"
            " these and weights, or a Dataset of batches"
        )
    return tuple(given)


def _read_batches(given: Any, part: str) -> tuple[Any, ...]:
    """All batches of a PyDataset in their order, once."""
    if given.num_batches is None:
        raise WorkloadError(f"{_WHOSE}: {part} is endless; give it a __len__, its batches")
    batches = [apart(part, given[number]) for number in range(given.num_batches)]
    form = batches[0][1] if batches else None
    if not isinstance(form, tuple) or len(form) not in (2, 3):
        raise WorkloadError(f"{_WHOSE}: {part} yields no {_FORMS}")
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
    """Splits examples as Keras does: the last ones are to test with."""
    examples = len(apart("y", given[1])[0][0])
    numbers = np.arange(examples)
    kept = math.floor(examples * (1 - share))
    parts = [one for one in given if one is not None]
    train, test = (
        tuple(taken(one, numbers[part]) for one in parts)
        for part in (slice(kept), slice(kept, None))
    )
    return train, test


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


def from_compiled(
    model: Any,
    x: Any,
    y: Any = None,
    *,
    validation_data: Any = None,
    validation_split: float = 0.0,
    batch_size: int | None = None,
    epochs: int = 1,
    steps_per_epoch: int | None = None,
    sample_weight: Any = None,
    callbacks: Sequence[Any] = (),
    class_weight: Mapping[int, float] | None = None,
    name: str | None = None,
    data_set: str | None = None,
    metric: str | Callable[[], Any] | None = None,
    is_pretrained: bool = False,
    evaluation_interval_worker_steps: int | None = None,
    **fields: Any,
) -> Workload:
    """Makes a workload of a compiled Keras model and what its `fit` would get.

    Optimizer, learning rate, loss and metric are those of `compile`. The job is as long as that
    `fit` on one machine: a worker-step is one of its batches.

    Example:
        ```
        workload = from_compiled(
            model, x, y, validation_data=(x_test, y_test), epochs=20, name="sales"
        )
        ```

    Args:
        model: A Sequential or functional model, or another one that `keras.models.clone_model` can
            copy; or, as for most classes of one's own, a function that builds and compiles one. It
            is not trained itself.
        x: Training inputs, shape [examples, ...], or a dict, tuple or list of such, ragged and
            sparse ones among them; or a `tf.data.Dataset` or `keras.utils.PyDataset` of batches of
            inputs, labels and perhaps weights, which is read once, into memory; or a `Data` or
            `StreamedData`.
        y: Training labels, of several outputs a dict, tuple or list; None where x has them.
        validation_data: Inputs and labels that the model is tested with, perhaps with weights for
            `weighted_metrics`; or a Dataset, as `x` may be.
        validation_split: Instead of it, the share of the examples, the last ones, to test with.
        batch_size: B; None for 32, or the size of the batches of a Dataset.
        epochs: Length of the job.
        steps_per_epoch: Batches of an epoch, where a Dataset does not know; None to count.
        sample_weight: Weights of the training examples in the loss.
        callbacks: Callbacks of `fit`, told as the `callbacks` of `Workload` are. Those whose work a
            run does anyway, such as `TerminateOnNaN`, are left out; those that cannot be told are
            refused.
        class_weight: Weight of the loss by class; 1 for those left out.
        name: Name of the job; None for the model's name.
        data_set: Name of the data; None for a digest of arrays, so that other data are another
            job, and for `name` of a Dataset.
        metric: Name of a Keras metric, or a function that builds one; None for the first one
            of `compile` (of several outputs, of the first that has one), and where there is none,
            for accuracy if the labels are classes, else for the loss of the tests.
        is_pretrained: Start each run from the model's present values, which have to be the same
            wherever this is imported. Otherwise what is trained is drawn anew, by the seed of the
            run; frozen layers keep their values in any case.
        evaluation_interval_worker_steps: Test this often; None for 40 tests in a job.
        fields: Further fields of `Workload`, such as `largest_scaling`.

    Returns:
        The workload.

    Raises:
        WorkloadError: The model is not compiled, or something does not fit.
    """
    build = None if isinstance(model, keras.Model) or not callable(model) else model
    if build is not None:
        model = build()
    compiled = compiled_fields(model, _WHOSE)
    callbacks = usable_callbacks(callbacks, _WHOSE)
    name, judged = name or model.name, compiled_metric(model, _WHOSE)
    is_weighted = judged.is_weighted
    if isinstance(x, Data | StreamedData):
        given = _of_data(x, name, batch_size or BATCH_SIZE)
    elif y is None:
        given = _of_batches(x, validation_data, steps_per_epoch, name, is_test_weighted=is_weighted)
    else:
        parts = (x, y, sample_weight)
        data = _of_arrays(parts, validation_data, validation_split, is_test_weighted=is_weighted)
        given = _of_data(data, data_set or _digest(name, data), batch_size or BATCH_SIZE)
    if class_weight and sample_weight is not None:
        raise WorkloadError(
            f"{_WHOSE}: there are class_weight and sample_weight; multiply them yourself, and give"
            " sample_weight alone"
        )
    if not isinstance(epochs, int) or epochs < 1:
        raise WorkloadError(f"{_WHOSE}: epochs is {epochs!r}; give a whole number from 1 on")
    total = epochs * (steps_per_epoch or given.steps_per_epoch)
    inputs = None if given.sample is None else given.sample[0]
    ensure_built(model, inputs)
    if metric is None:
        usual = None if judged.is_accuracy else _usual_metric(model, given.sample)
        metric = judged.build or usual
    return Workload(
        **{
            **compiled,
            "name": name,
            "model": copies(model, _WHOSE, is_fresh=not is_pretrained)
            if build is None
            else built_anew(build, inputs),
            "data": given.load,
            "data_set": data_set or given.known_as,
            "total_worker_steps": total,
            "batch_size": batch_size or given.batch_size,
            "evaluation_interval_worker_steps": evaluation_interval_worker_steps
            or max(1, total // _TESTS),
            "class_weight": class_weight,
            "metric": metric,
            "metric_output": judged.output,
            "callbacks": (lambda: callbacks) if callbacks else None,
            **fields,
        }
    )


def _usual_metric(model: Any, sample: tuple[Any, Any] | None) -> str | None:
    """The metric of a model without one: accuracy where labels are classes, else the loss."""
    if sample is None or isinstance(sample[1], dict | tuple | list):
        return None
    shape = getattr(model, "output_shape", None)
    is_single = isinstance(shape, tuple) and not isinstance(shape[0], tuple)
    has_one = has_accuracy(np.asarray(sample[1]), (shape or ()) if is_single else ())
    return None if has_one else LOSS_METRIC
