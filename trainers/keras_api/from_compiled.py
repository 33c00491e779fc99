"""A workload of what `model.fit` would get."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.data import AnyData, Data
from syncswitch.trainers.job.keras_parts import check_precision, check_unscaled
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.keras_api.compiled import (
    ClassWeightedLoss,
    check_compiled,
    compiled_loss,
    compiled_metric,
    compiled_optimizer,
    copies,
)

_WHOSE = "from_compiled"
_TESTS = 40


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
    class_weight: Mapping[int, float] | None = None,
    name: str | None = None,
    data_set: str | None = None,
    metric: Callable[[], Any] | None = None,
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
        x: Training inputs, shape [examples, ...]; or a batched `tf.data.Dataset` of inputs and
            labels, which is read into memory.
        y: Training labels; None with a Dataset.
        validation_data: Inputs and labels that the model is tested with, or a Dataset as `x`.
        validation_split: Instead of it, the share of the examples, the last ones, to test with.
        batch_size: B; None for 32, or the size of the batches of a Dataset.
        epochs: Length of the job.
        steps_per_epoch: Batches of an epoch, where a Dataset does not know; None to count.
        class_weight: Weight of the loss by class; 1 for those left out.
        name: What people call the job; None for the model's name.
        data_set: Name of the data; None for a digest of arrays, so that other data are another
            job, and for `name` of a Dataset.
        metric: Builds a Keras metric between 0 and 1 where more is better; None for the first one
            of `compile`, or accuracy as it fits the labels where there is none.
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
    name = name or model.name
    if y is None:
        load, size, steps = _of_pipelines(x, validation_data, steps_per_epoch)
        known_as = name
    else:
        data, size = _of_arrays(x, y, validation_data, validation_split), batch_size or 32
        load, known_as = (lambda: data), _digest(name, data)
        steps = steps_per_epoch or math.ceil(len(data.train_inputs) / max(1, size))
    if not isinstance(epochs, int) or epochs < 1:
        raise WorkloadError(f"{_WHOSE}: epochs is {epochs!r}; give a whole number from 1 on")
    total = epochs * steps
    optimizer, rate = compiled_optimizer(model)
    return Workload(
        **{
            "name": name,
            "model": copies(model, is_fresh=not is_pretrained),
            "data": load,
            "data_set": data_set or known_as,
            "total_worker_steps": total,
            "batch_size": batch_size or size,
            "learning_rate": rate,
            "evaluation_interval_worker_steps": evaluation_interval_worker_steps
            or max(1, total // _TESTS),
            "optimizer": optimizer,
            "loss": _loss(model, class_weight),
            "metric": metric or compiled_metric(model, _WHOSE),
            **fields,
        }
    )


def _loss(model: Any, class_weight: Mapping[int, float] | None) -> str | Callable[[], Any]:
    loss = compiled_loss(model, _WHOSE)
    if not class_weight:
        return loss
    plain = loss if isinstance(loss, str) else model.loss
    return lambda: ClassWeightedLoss(plain, class_weight)


def _of_arrays(x: Any, y: Any, validation_data: Any, validation_split: float) -> Data:
    if validation_data is not None:
        if not isinstance(validation_data, tuple | list) or len(validation_data) != 2:
            raise WorkloadError(
                f"{_WHOSE}: validation_data is a {type(validation_data).__name__}; give a pair of"
                " inputs and labels"
            )
        return Data(x, y, *validation_data)
    if not 0 < validation_split < 1:
        raise WorkloadError(
            f"{_WHOSE}: there is nothing to test with; give validation_data=(inputs, labels), or a"
            f" validation_split between 0 and 1 (it is {validation_split!r})"
        )
    # As Keras does it: the last ones.
    kept = math.floor(len(x) * (1 - validation_split))
    return Data(x[:kept], y[:kept], x[kept:], y[kept:])


def _of_pipelines(
    train: Any, test: Any, steps_per_epoch: int | None
) -> tuple[Callable[[], AnyData], int, int]:
    """What loads the data, the examples of a batch, and the batches of an epoch."""
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
    if not isinstance(first, tuple) or len(first) != 2 or hasattr(first[0], "keys"):
        raise WorkloadError(
            f"{_WHOSE}: x yields no pairs of one array of inputs and one of labels; bring it to"
            " that with map()"
        )
    size = len(first[0])
    return lambda: Data.from_datasets(train.unbatch(), test.unbatch()), size, steps_per_epoch


def _digest(name: str, data: Data) -> str:
    """Names the data by what they are."""
    digest = hashlib.sha256()
    for part in (data.train_inputs, data.train_labels, data.test_inputs, data.test_labels):
        digest.update(f"{part.dtype} {part.shape}".encode())
        digest.update(np.ascontiguousarray(part).tobytes())
    return f"{name}-{digest.hexdigest()[:12]}"
