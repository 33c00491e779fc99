"""Writes a workload file for a model and data that somebody names, and tries it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from syncswitch.storage.errors import WorkloadError, one_line
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.job.data import AnyData, Data, class_numbers
from syncswitch.trainers.job.loading import import_text, load_workload
from syncswitch.trainers.keras_api.draft.text import (
    Facts,
    data_body,
    functions_text,
    model_body,
    workload_text,
)

_STEPS = 3


@dataclass(frozen=True, slots=True)
class Tried:
    """What three steps with the new workload have shown.

    Attributes:
        parameters: That are trained.
        seconds: One worker-step.
    """

    parameters: int
    examples: int
    test_examples: int
    total_worker_steps: int
    seconds: float


def draft(
    path: Path, name: str, model: str, data: str, label: str | None, epochs: int, batch_size: int
) -> str:
    """The text of a workload file.

    Args:
        path: Where it is going to be.
        name: Of the job.
        model: See `model_body`.
        data: See `data_body`.
        label: See `data_body`.
        epochs: Length of the job.
        batch_size: B.

    Raises:
        WorkloadError: Model or data are not there, fail, or do not fit together.
    """
    from syncswitch.trainers.model import tensorflow_api  # noqa: F401  (it keeps TensorFlow quiet)

    folder = path.absolute().parent
    loading = data_body(data, label, folder)
    examples = _called(path, functions_text("    return None", loading), "data")
    if not isinstance(examples, Data):
        raise WorkloadError(
            f"--data makes a {type(examples).__name__}, for which a workload is written by hand:"
            " give it to Workload(data=...)"
        )
    classes = _classes(examples)
    shape = getattr(examples.train_inputs, "shape", (0,))[1:]
    building = model_body(model, folder, shape, classes)
    built = _called(path, functions_text(building, "    return None"), "model")
    facts = _facts(built, examples, classes)
    return workload_text(path.name, name, building, loading, facts, epochs, batch_size)


def try_workload(reference: str) -> Tried:
    """Trains three steps. Raises WorkloadError where the workload cannot be trained."""
    from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
    from syncswitch.trainers.job.fingerprint import workload_identity
    from syncswitch.trainers.job.keras_parts import build_model

    workload = load_workload(reference)
    short = replace(
        workload,
        total_worker_steps=_STEPS,
        evaluation_interval_worker_steps=_STEPS,
        learning_rate_boundaries=(),
    )
    parameters = sum(math.prod(one.shape) for one in build_model(workload).trainable_variables)
    spec = TrialSpec(workload_identity(short, 1, "bsp", "asp"), 0.0, 0)
    with ClusterTrainer(short, 1) as trainer:
        trainer.train(spec)  # the first step of all is slower
        seconds = trainer.train(spec).training_seconds / _STEPS
    data = workload.load_data()
    return Tried(
        parameters,
        data.train.examples,
        data.test.examples,
        workload.total_worker_steps,
        seconds,
    )


def _called(path: Path, text: str, function: str) -> Any:
    """What a function of the file would make, before there is one."""
    head = (
        "from pathlib import Path\nimport numpy as np\nimport pandas as pd\n"
        "from syncswitch.trainers.job.arrays import as_data\n"
    )
    try:
        return getattr(import_text(path, head + text), function)()
    except (WorkloadError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise WorkloadError(f"--{function} failed with {one_line(error)}") from error


def _classes(data: AnyData) -> int | None:
    """How many classes the labels have; None where they are none."""
    assert isinstance(data, Data)
    if not isinstance(data.train_labels, np.ndarray):
        return None
    if data.train_labels.dtype.kind in "OSU":
        raise WorkloadError(
            f"the labels of --data are text such as {data.train_labels.flat[0]!r}; give numbers of"
            " classes: np.unique(labels, return_inverse=True)[1]"
        )
    numbers = class_numbers(data.train_labels)
    if numbers is None:
        return None
    one_hot = data.train_labels.ndim == 2 and data.train_labels.shape[1] > 1
    return int(data.train_labels.shape[1]) if one_hot else int(numbers.max()) + 1


def _facts(model: Any, data: Data, classes: int | None) -> Facts:
    import keras

    if not isinstance(model, keras.Model):
        raise WorkloadError(f"--model makes a {type(model).__name__}; return a keras.Model")
    examples = data.train.examples
    if model.compiled:
        return Facts(examples, is_compiled=True)
    shape = getattr(model, "output_shape", None)
    is_single = isinstance(shape, tuple) and isinstance(shape[-1], int)
    outputs = int(shape[-1]) if shape and is_single else 0
    if classes is None and outputs == 1 and isinstance(data.train_labels, np.ndarray):
        return Facts(examples, loss="MeanSquaredError", metric="mae")
    if classes is None or not outputs:
        raise WorkloadError(
            "the labels of --data are no classes of a single output, and the model is not compiled:"
            " have --model return one that is compiled with a loss and a metric"
        )
    if outputs == 1 and classes <= 2:
        loss = "BinaryCrossentropy"
    elif outputs < classes:
        raise WorkloadError(
            f"the labels of --data are classes up to {classes - 1}, and the model has {outputs}"
            f" outputs; give it {classes}"
        )
    else:
        is_one_hot = data.train_labels.ndim == 2 and data.train_labels.shape[1] > 1
        loss = "CategoricalCrossentropy" if is_one_hot else "SparseCategoricalCrossentropy"
    last = getattr(model.layers[-1], "activation", None)
    return Facts(examples, loss=loss, is_logits=getattr(last, "__name__", "") == "linear")
