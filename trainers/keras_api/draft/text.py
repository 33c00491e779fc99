"""The text of a workload file; pure."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from syncswitch.storage.errors import WorkloadError

_TESTS = 40
_LIBRARIES = (("numpy", "np"), ("pandas", "pd"))
_APPLICATIONS = "keras.applications:"

_HEAD = '''"""A training job. Its switch point: syncswitch-search run {file}:workload"""

{imports}

'''

_MODEL = '''
def model():
    """Builds the model; called anew for each run, so that the seed decides its first values."""
{body}
'''

_DATA = '''
def data():
    """Loads what is trained and tested on."""
{body}
'''

_LOSS = '''
def loss():
    """The model's outputs are no probabilities yet."""
    import keras

    return keras.losses.{loss}(from_logits=True)
'''

_WORKLOAD = """
workload = Workload(
    name="{name}",
    model=model,
    data=data,
    # The data themselves are not looked at: give them another name when you change them.
    data_set="{name}-1",
    # W, the length of the job. A worker-step is the gradient of one worker on one batch: these are
    # {epochs} epochs of {examples:,} examples, on any number of workers.
    total_worker_steps={steps},
    # B, of one worker.
    batch_size={batch_size},
    # eta, of one worker: workers that wait for each other use n times as much. Where that is too
    # much, largest_scaling=... limits the factor.
    learning_rate=0.01,
    # SGD with momentum is the default; any other: optimizer=lambda: keras.optimizers.Adam().
    momentum=0.9,
    # From these worker-steps on, eta times so much. Adam and the like may need none.
    learning_rate_boundaries=(({half}, 0.1), ({late}, 0.01)),
    # The last five tests make the accuracy of a run; 40 in a job are a good number.
    evaluation_interval_worker_steps={interval},
    loss={loss},
    # metric=... names or builds a Keras metric, such as "mae" or "loss"; without it, accuracy.
    # metric_goal="min" says of one of your own that less is better, metric_unit="km" its unit;
    # further_metrics=("loss",) is recorded beside it.
{metric})
"""

_COMPILED = """
_data = data()
# Optimizer, learning rate, loss and metric are those that the model is compiled with.
workload = from_compiled(
    {built},
    _data.train_inputs,
    _data.train_labels,
    validation_data=(_data.test_inputs, _data.test_labels),
    # B, of one worker.
    batch_size={batch_size},
    # The length of the job: {steps:,} worker-steps, each the gradient of one worker on one batch.
    epochs={epochs},
    name="{name}",
    # The data themselves are not looked at: give them another name when you change them.
    data_set="{name}-1",
)
"""


@dataclass(frozen=True, slots=True)
class Facts:
    """What data and model say.

    Attributes:
        examples: To train with.
        is_compiled: Whether the model says the rest itself.
        loss: Keras' class of the loss that fits outputs and labels; None where it is compiled.
        is_logits: Whether the outputs are no probabilities.
        metric: Of values; None where accuracy fits.
    """

    examples: int
    is_compiled: bool = False
    loss: str | None = None
    is_logits: bool = False
    metric: str | None = None


def data_body(source: str, label: str | None, folder: Path) -> str:
    """The body of `data()`.

    Args:
        source: `file.py:function`, `module:function`, a `.npz` or a `.csv` file.
        label: Column of the labels in a `.csv` file.
        folder: Where the workload file is going to be.

    Raises:
        WorkloadError: It is none of these, or is not there.
    """
    place, colon, function = source.rpartition(":")
    if colon and function.isidentifier():
        return f"    {_import(place, function, folder)}\n\n    return as_data({function}())"
    path = Path(source)
    if path.suffix not in (".npz", ".csv"):
        raise WorkloadError(
            f"--data is {source!r}; give file.py:function, module:function, a .npz or a .csv file"
        )
    if not path.is_file():
        raise WorkloadError(f"--data is {source!r}, and there is no such file")
    where = _beside(path, folder)
    if path.suffix == ".npz":
        return f"    with np.load({where}) as file:\n        return as_data(dict(file))"
    if label is None:
        raise WorkloadError(
            f"--data is the table {source!r}; say which column has the labels, with --label COLUMN"
        )
    return "\n".join(
        [
            f"    table = pd.read_csv({where})",
            f'    labels = table.pop({label!r}).astype("category").cat.codes.to_numpy("int32")',
            "    # Columns of words become one column for each word.",
            '    return as_data((pd.get_dummies(table).to_numpy("float32"), labels))',
        ]
    )


def model_body(source: str, folder: Path, shape: tuple[int, ...], classes: int | None) -> str:
    """The body of `model()`.

    Args:
        source: `file.py:function`, `module:function`, `keras.applications:NAME` or a `.keras` file.
        folder: Where the workload file is going to be.
        shape: Of one example.
        classes: How many the labels have; None where they are none.

    Raises:
        WorkloadError: It is none of these, or is not there.
    """
    if source.startswith(_APPLICATIONS):
        name = source.removeprefix(_APPLICATIONS)
        return "\n".join(
            [
                "    import keras",
                "",
                f"    return keras.applications.{name}(",
                f"        weights=None, input_shape={shape}, classes={classes or 1}",
                "    )",
            ]
        )
    place, colon, function = source.rpartition(":")
    if colon and function.isidentifier():
        return f"    {_import(place, function, folder)}\n\n    return {function}()"
    path = Path(source)
    if path.suffix != ".keras" or not path.is_file():
        raise WorkloadError(
            f"--model is {source!r}; give file.py:function, module:function,"
            " keras.applications:NAME, or a .keras file that is there"
        )
    return f"    import keras\n\n    return keras.saving.load_model({_beside(path, folder)})"


def workload_text(
    file: str, name: str, model: str, data: str, facts: Facts, epochs: int, batch_size: int
) -> str:
    """The whole file.

    Args:
        file: Its name.
        name: Of the job.
        model: See `model_body`.
        data: See `data_body`.
        facts: What came of these two.
        epochs: Length of the job.
        batch_size: B.
    """
    steps = epochs * -(-facts.examples // batch_size)
    function, loss = "", f'"{_snake(facts.loss or "")}"'
    if facts.is_logits:
        function, loss = _LOSS.format(loss=facts.loss) + "\n", "loss"
    workload = (_COMPILED if facts.is_compiled else _WORKLOAD).format(
        name=name,
        examples=facts.examples,
        epochs=epochs,
        steps=steps,
        batch_size=batch_size,
        half=max(1, steps // 2),
        late=max(2, 3 * steps // 4),
        interval=max(1, steps // _TESTS),
        loss=loss,
        metric=f'    metric="{facts.metric}",\n' if facts.metric else "",
        # A file holds one model, of which runs take copies; a function builds one for each.
        built="model()" if "load_model(" in model else "model",
    )
    head = _HEAD.format(file=file, imports=_imports(model, data, is_compiled=facts.is_compiled))
    return f"{head}{functions_text(model, data)}{function}{workload}"


def functions_text(model: str, data: str) -> str:
    """`data()` and `model()` with these bodies."""
    return _DATA.format(body=data) + "\n" + _MODEL.format(body=model) + "\n"


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _imports(model: str, data: str, *, is_compiled: bool) -> str:
    """What the file needs at its top."""
    body = model + data
    standard = ["from pathlib import Path\n"] if "Path(" in body else []
    others = [f"import {name} as {short}" for name, short in _LIBRARIES if f"{short}." in body]
    own = ["from syncswitch.trainers.job.arrays import as_data"]
    if is_compiled:
        own.append("from syncswitch.trainers import from_compiled")
    else:
        own.append("from syncswitch.trainers.job.workload import Workload")
    return "\n".join([*standard, *(["\n".join(others) + "\n"] if others else []), *sorted(own)])


def _import(place: str, function: str, folder: Path) -> str:
    """A line that imports what is in a file beside the workload file, or in a module."""
    if not place.endswith(".py"):
        return f"from {place} import {function}"
    path = Path(place)
    if not path.is_file():
        raise WorkloadError(f"there is no file {place}")
    if path.resolve().parent != folder.resolve():
        raise WorkloadError(
            f"{place} is in another folder than the workload; write the workload beside it, in"
            f" {path.parent}"
        )
    return f"from {path.stem} import {function}"


def _beside(path: Path, folder: Path) -> str:
    """A path as the workload file finds it, wherever it is imported."""
    relative = os.path.relpath(path.resolve(), folder.resolve())
    return f"Path(__file__).parent / {relative!r}"
