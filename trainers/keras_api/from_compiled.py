"""A workload of what `model.fit` would get."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.data import AnyData, Data, StreamedData
from syncswitch.trainers.job.keras_parts import check_precision, check_unscaled
from syncswitch.trainers.job.sources.nested import Leaf, apart, taken
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.keras_api.callbacks import check_callbacks
from syncswitch.trainers.keras_api.compiled import (
    check_compiled,
    compiled_loss,
    compiled_loss_weights,
    compiled_metric,
    compiled_optimizer,
    copies,
)

_WHOSE = "from_compiled"
_TESTS = 40
_BATCH_SIZE = 32
_PLAIN = ((Leaf(), Leaf()),)


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
            copy. It is not trained itself.
        x: Training inputs, shape [examples, ...], or a dict, tuple or list of such, ragged and
            sparse ones among them; or a batched `tf.data.Dataset` of inputs, labels and perhaps
            weights, which is read into memory; or a `Data` or `StreamedData`.
        y: Training labels, of several outputs a dict, tuple or list; None where x has them.
        validation_data: Inputs and labels that the model is tested with, perhaps with weights for
            `weighted_metrics`; or a Dataset as `x`.
        validation_split: Instead of it, the share of the examples, the last ones, to test with.
        batch_size: B; None for 32, or the size of the batches of a Dataset.
        epochs: Length of the job.
        steps_per_epoch: Batches of an epoch, where a Dataset does not know; None to count.
        sample_weight: Weights of the training examples in the loss.
        callbacks: Of `fit`. What a run does anyway, such as `TerminateOnNaN`, is let through; of
            all others a line says what to do instead.
        class_weight: Weight of the loss by class; 1 for those left out.
        name: What people call the job; None for the model's name.
        data_set: Name of the data; None for a digest of arrays, so that other data are another
            job, and for `name` of a Dataset.
        metric: Name of a Keras metric, or a function that builds one; None for the first one
            of `compile` (of several outputs, of the first that has one), or accuracy as it fits the
            labels where there is none.
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
    check_compiled(model, _WHOSE)
    check_precision(model, _WHOSE)
    check_unscaled(model.optimizer, _WHOSE)
    check_callbacks(callbacks, _WHOSE)
    name, judged = name or model.name, compiled_metric(model, _WHOSE)
    if isinstance(x, Data | StreamedData):
        given = _Given(lambda: x, batch_size or _BATCH_SIZE, name)
        steps = steps_per_epoch or _batches(x, given.batch_size)
    elif y is None:
        given, steps = _of_pipelines(x, validation_data, steps_per_epoch, name, judged.is_weighted)
    else:
        train = (x, y, sample_weight)
        data = _of_arrays(train, validation_data, validation_split, judged.is_weighted)
        size = batch_size or _BATCH_SIZE
        given = _Given(lambda: data, size, _digest(name, data))
        steps = steps_per_epoch or _batches(data, size)
    if class_weight and sample_weight is not None:
        raise WorkloadError(
            f"{_WHOSE}: there are class_weight and sample_weight; multiply them yourself, and give"
            " sample_weight alone"
        )
    if not isinstance(epochs, int) or epochs < 1:
        raise WorkloadError(f"{_WHOSE}: epochs is {epochs!r}; give a whole number from 1 on")
    total = epochs * steps
    optimizer, rate = compiled_optimizer(model)
    return Workload(
        **{
            "name": name,
            "model": copies(model, is_fresh=not is_pretrained),
            "data": given.load,
            "data_set": data_set or given.known_as,
            "total_worker_steps": total,
            "batch_size": batch_size or given.batch_size,
            "learning_rate": rate,
            "evaluation_interval_worker_steps": evaluation_interval_worker_steps
            or max(1, total // _TESTS),
            "optimizer": optimizer,
            "loss": compiled_loss(model, _WHOSE),
            "loss_weights": compiled_loss_weights(model, _WHOSE),
            "class_weight": class_weight,
            "metric": metric or judged.build,
            "metric_output": judged.output,
            **fields,
        }
    )


@dataclass(frozen=True, slots=True)
class _Given:
    """What `fit` would get.

    Attributes:
        load: Loads the data.
        batch_size: B.
        known_as: Name of the data.
    """

    load: Callable[[], AnyData]
    batch_size: int
    known_as: str


def _batches(data: AnyData, size: int) -> int:
    return math.ceil(data.train.examples / max(1, size))


def _of_arrays(
    train: Sequence[Any], test: Any, validation_split: float, is_test_weighted: bool
) -> Data:
    if test is None:
        if not 0 < validation_split < 1:
            raise WorkloadError(
                f"{_WHOSE}: there is nothing to test with; give validation_data=(inputs, labels),"
                f" or a validation_split between 0 and 1 (it is {validation_split!r})"
            )
        # As Keras does it: the last ones.
        examples = len(apart("y", train[1])[0][0])
        numbers = np.arange(examples)
        kept = math.floor(examples * (1 - validation_split))
        parts = [one for one in train if one is not None]
        train, test = (
            tuple(taken(one, numbers[part]) for one in parts)
            for part in (slice(kept), slice(kept, None))
        )
    elif not isinstance(test, tuple | list) or len(test) not in (2, 3):
        raise WorkloadError(
            f"{_WHOSE}: validation_data is a {type(test).__name__}; give a pair of inputs and"
            " labels, or these and weights"
        )
    weights = test[2] if is_test_weighted and len(test) > 2 else None
    return Data(
        train[0],
        train[1],
        test[0],
        test[1],
        train_weights=train[2] if len(train) > 2 else None,
        test_weights=weights,
    )


def _of_pipelines(
    train: Any, test: Any, steps_per_epoch: int | None, name: str, is_test_weighted: bool
) -> tuple[_Given, int]:
    """The data, and the batches of an epoch."""
    for part, pipeline in (("x", train), ("validation_data", test)):
        if not hasattr(pipeline, "unbatch"):
            raise WorkloadError(
                f"{_WHOSE}: {part} is a {type(pipeline).__name__}, and there is no y; give arrays"
                " x and y, or tf.data pipelines as x and validation_data"
            )
    if steps_per_epoch is None:
        steps_per_epoch = int(train.cardinality())
        if steps_per_epoch < 1:
            raise WorkloadError(
                f"{_WHOSE}: x does not know how many batches it has; give steps_per_epoch, and a"
                " pipeline that ends (without repeat())"
            )
    first = next(iter(train.take(1)), None)
    if not isinstance(first, tuple) or len(first) not in (2, 3):
        raise WorkloadError(
            f"{_WHOSE}: x yields no (inputs, labels), or (inputs, labels, weights); bring it to"
            " that with map()"
        )
    size = len(apart("y", first[1])[0][0])
    if not is_test_weighted:
        test = test.map(lambda inputs, labels, *_: (inputs, labels))
    load = partial(Data.from_datasets, train.unbatch(), test.unbatch())
    return _Given(load, size, name), steps_per_epoch


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
