"""A workload of what `model.fit` would get."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.data import Data, StreamedData, has_accuracy
from syncswitch.trainers.job.keras_parts import (
    check_own_training,
    check_precision,
    check_unscaled,
)
from syncswitch.trainers.job.workload import LOSS_METRIC, Workload
from syncswitch.trainers.keras_api.compiled import (
    check_compiled,
    compiled_loss,
    compiled_loss_weights,
    compiled_metric,
    compiled_optimizer,
)
from syncswitch.trainers.keras_api.copying import built_anew, copies, ensure_built
from syncswitch.trainers.keras_api.given import Given, given_arrays, given_data, given_pipeline
from syncswitch.trainers.run.callbacks import usable_callbacks

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
        callbacks: Of `fit`, as the `callbacks` of `Workload` are told. What a run does anyway, such
            as `TerminateOnNaN`, is left out; of what it cannot do a line says what to do instead.
        class_weight: Weight of the loss by class; 1 for those left out.
        name: What people call the job; None for the model's name.
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
    check_compiled(model, _WHOSE)
    check_precision(model, _WHOSE)
    check_own_training(model, _WHOSE)
    check_unscaled(model.optimizer, _WHOSE)
    callbacks = usable_callbacks(callbacks, _WHOSE)
    name, judged = name or model.name, compiled_metric(model, _WHOSE)
    given = _given(
        x,
        y,
        sample_weight,
        validation_data,
        validation_split,
        steps_per_epoch,
        name,
        batch_size,
        is_test_weighted=judged.is_weighted,
    )
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
    optimizer, rate = compiled_optimizer(model)
    return Workload(
        **{
            "name": name,
            "model": copies(model, _WHOSE, is_fresh=not is_pretrained)
            if build is None
            else built_anew(build, inputs),
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
            "metric": metric,
            "metric_output": judged.output,
            "callbacks": (lambda: callbacks) if callbacks else None,
            **fields,
        }
    )


def _given(
    x: Any,
    y: Any,
    sample_weight: Any,
    test: Any,
    validation_split: float,
    steps_per_epoch: int | None,
    name: str,
    batch_size: int | None,
    *,
    is_test_weighted: bool,
) -> Given:
    """What there is to train and to test with."""
    if isinstance(x, Data | StreamedData):
        return given_data(x, name, batch_size)
    if y is None:
        return given_pipeline(
            _WHOSE, x, test, steps_per_epoch, name, is_test_weighted=is_test_weighted
        )
    return given_arrays(
        _WHOSE,
        (x, y, sample_weight),
        test,
        validation_split,
        name,
        batch_size,
        is_test_weighted=is_test_weighted,
    )


def _usual_metric(model: Any, sample: tuple[Any, Any] | None) -> str | None:
    """Of a model that was compiled without one: accuracy where labels are classes, or the loss."""
    if sample is None or isinstance(sample[1], dict | tuple | list):
        return None
    shape = getattr(model, "output_shape", None)
    is_single = isinstance(shape, tuple) and not isinstance(shape[0], tuple)
    has_one = has_accuracy(np.asarray(sample[1]), (shape or ()) if is_single else ())
    return None if has_one else LOSS_METRIC
