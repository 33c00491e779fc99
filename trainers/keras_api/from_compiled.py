"""A workload from a compiled model and the arguments of its `fit`."""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import keras
import numpy as np

from syncswitch.storage.errors import WorkloadError, one_line
from syncswitch.storage.files import OwnedFolder
from syncswitch.trainers.job.data import AnyData, Data, StreamedData, has_accuracy
from syncswitch.trainers.job.keras_parts import EXCLUDED, check_model, check_optimizer, warn_once
from syncswitch.trainers.job.pipelines import Leaf, flatten, read_pipeline, take_rows, unflatten
from syncswitch.trainers.job.workload import LOSS_METRIC, Workload
from syncswitch.trainers.keras_api.arguments import check_fields, check_unchanged, scheduled_rate
from syncswitch.trainers.run.callbacks import usable_callbacks


def compiled_fields(model: Any) -> dict[str, Any]:
    """Returns the optimizer, learning rate, loss and loss weights of a compiled model.

    Raises WorkloadError if it is not a compiled Keras model, or cannot be trained as it is.
    """
    if not isinstance(model, keras.Model) or not getattr(model, "compiled", False):
        raise WorkloadError("the model is not compiled; call its compile() before")
    whose = f"model {model.name!r}"
    check_model(model, whose)
    check_optimizer(model.optimizer, whose)
    if model.loss is None:
        raise WorkloadError(f"{whose} is compiled without a loss; compile it with one")
    config = model.optimizer.get_config()
    rate = config["learning_rate"]
    build = _rebuilding(model, {**config, "learning_rate": 1.0}, whose)
    factors = (model.get_compile_config() or {}).get("loss_weights")
    values = list(factors.values()) if isinstance(factors, dict) else factors
    if any(isinstance(one, str) for one in keras.tree.flatten(values)):
        raise WorkloadError(
            f"model {model.name!r} is compiled with loss_weights {values}, which are not numbers;"
            " the third argument of compile is loss_weights, so write metrics=[...]"
        )

    def schedule() -> Any:
        return keras.optimizers.schedules.deserialize(rate)

    return {
        "optimizer": build,
        # Keras keeps 0.02 in float32, 0.019999999552965164: the same job needs the same rate.
        "learning_rate": schedule if isinstance(rate, dict) else float(str(np.float32(rate))),
        "loss": model.loss,
        "loss_weights": factors,
    }


def _rebuilding(model: Any, config: Mapping[str, Any], whose: str) -> Callable[[], Any]:
    """Returns a function that builds optimizers like that of a model, with what it holds beside."""
    given = model.optimizer
    kind, chosen = type(given), getattr(given, "_exclude_from_weight_decay", None) or ()
    pattern = getattr(given, "_exclude_from_weight_decay_pattern", None)
    names = () if pattern is None else tuple(sorted(pattern.pattern.split("|")))
    variables = enumerate(model.trainable_variables)
    places = tuple(place for place, one in variables if given._var_key(one) in chosen)
    if len(places) < len(chosen):
        raise WorkloadError(
            f"{whose}: its optimizer excludes variables from weight decay that the model does not"
            " train; leave them out of exclude_from_weight_decay"
        )

    def build() -> Any:
        built = kind.from_config(dict(config))
        if names or places:
            built.exclude_from_weight_decay(var_names=list(names))
            setattr(built, EXCLUDED, places)
        return built

    for name, value in vars(build()).items():
        own = vars(given).get(name, value)
        if type(value) in _PLAIN and name not in _PASSING and own != value:
            raise WorkloadError(
                f"{whose}: its {kind.__name__} has {name} {own!r}, and get_config() builds one with"
                f" {value!r}; give a function that builds and compiles the model, or complete its"
                " get_config()"
            )
    if given.built and int(given._iterations):
        warn_once(
            f"{whose}: its optimizer has made {int(given._iterations):,} updates; runs begin"
            " with a fresh one"
        )
    return build


_PLAIN = (bool, int, float, str, type(None))
_PASSING = ("name", "built", "_built", "_lock", "_name")


def compiled_metric(model: Any) -> tuple[Any, str | None, bool]:
    """Finds the first metric of a model, the output that it judges, and whether it is weighted."""
    outputs = list(getattr(model, "output_names", None) or ())
    # The configuration would only name functions and classes of the user's own.
    compiled = getattr(model, "_compile_metrics", None)
    for kind in ("metrics", "weighted_metrics"):
        for output, metric in _metrics(getattr(compiled, f"_user_{kind}", None), outputs):
            build = metric if isinstance(metric, str) else partial(_built_metric, metric)
            return build, output, kind == "weighted_metrics"
    return None, outputs[0] if len(outputs) > 1 else None, False


def _metrics(given: Any, outputs: list[str]) -> Iterator[tuple[str | None, Any]]:
    """Yields the metrics given to `compile`, each with its output if there are several."""
    by_output = [(outputs[0] if outputs else None, given)]
    if isinstance(given, dict):
        names = sorted(given, key=lambda one: outputs.index(one) if one in outputs else -1)
        by_output = [(name, given[name]) for name in names]
    elif isinstance(given, list | tuple) and len(given) == len(outputs) > 1:
        # A list has an entry for each output, unless there is only one output.
        by_output = list(zip(outputs, given, strict=True))
    for output, metrics in by_output:
        for metric in keras.tree.flatten(metrics):
            if metric is not None:
                yield (output if len(outputs) > 1 else None), metric


def _built_metric(given: Any) -> Any:
    try:
        if isinstance(given, keras.metrics.Metric):
            return type(given).from_config(given.get_config())
    except (TypeError, ValueError) as error:
        raise WorkloadError(
            f"the metric {given!r} that the model is compiled with cannot be built again; give"
            " metric, the name of one or a function that builds one"
        ) from error
    name = getattr(given, "__name__", type(given).__name__)
    return keras.metrics.MeanMetricWrapper(given, name=name)


def copies(model: Any, *, is_fresh: bool) -> Callable[[], Any]:
    """Returns a function that builds copies of a model, trained values drawn anew if `is_fresh`.

    Variables that are not trained, such as those of frozen layers, keep their values. Raises
    WorkloadError if Keras cannot copy the model.
    """
    values = [np.asarray(one) for one in model.weights]
    is_kept = [not (is_fresh and one.trainable) for one in model.weights]
    # A compiled model is copied with its loss and metrics, which works for registered ones only.
    model.compiled = False
    try:
        plain = _clone(model)
        if len(plain.weights) != len(values):
            raise ValueError("the copy has no variables")
    except Exception as error:
        raise WorkloadError(
            f"Keras cannot copy model {model.name!r}, a {type(model).__name__} ({one_line(error)});"
            " give a function that builds and compiles it instead of the model itself"
        ) from error
    finally:
        model.compiled = True

    def build() -> Any:
        copy = _clone(plain)
        for variable, value, keep in zip(copy.weights, values, is_kept, strict=True):
            if keep:
                variable.assign(value)
        for layer in copy._flatten_layers():
            # Normalization computes with what it derives from its variables here.
            if hasattr(layer, "finalize_state"):
                layer.finalize_state()
        return copy

    return build


def _clone(model: Any) -> Any:
    copy = keras.models.clone_model(model)
    for layer, copied in zip(model._flatten_layers(), copy._flatten_layers(), strict=True):
        if not hasattr(layer, "save_assets"):
            continue
        # The way to a file and back: no configuration has a vocabulary that was adapted.
        variables: dict[str, Any] = {}
        layer.save_own_variables(variables)
        copied.load_own_variables(variables)
        with OwnedFolder("syncswitch-copy-") as folder:
            layer.save_assets(folder)
            copied.load_assets(folder)
    return copy


def ensure_built(model: Any, sample: Any) -> None:
    """Gives a model its variables, as `fit` does with its first batch."""
    if not (model.built and model.weights):
        model(sample)


BATCH_SIZE = 32
_TESTS = 40
_YIELDED = "(inputs, labels), or (inputs, labels, weights)"


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
    total_worker_steps: int | None = None,
    evaluation_interval_worker_steps: int | None = None,
    validation_steps: int | None = None,
    validation_freq: int | None = None,
    verbose: Any = None,
    shuffle: Any = True,
    initial_epoch: int = 0,
    validation_batch_size: int | None = None,
    **fields: Any,
) -> Workload:
    """Makes a workload of a compiled Keras model and the arguments of its `fit`.

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
            copy; or a function that builds and compiles one, which most classes of your own need.
            The model itself is not trained.
        x: Training inputs, shape [examples, ...], or a dict, tuple or list of such arrays, which
            may be ragged or sparse; or a `tf.data.Dataset` or `keras.utils.PyDataset` of batches of
            inputs, labels and perhaps weights, which is read once, into memory; or a `Data` or
            `StreamedData`, which holds labels and tests as well.
        y: Training labels, for several outputs a dict, tuple or list; None if x has them.
        validation_data: Inputs and labels that the model is tested with, perhaps with weights for
            `weighted_metrics`; or a Dataset, as `x` may be.
        validation_split: Share of the examples, the last ones, to test with instead.
        batch_size: B; None for 32, or the size of the batches of a Dataset.
        epochs: Length of the job.
        steps_per_epoch: Batches of an epoch; None to count them, which some Datasets do not allow.
        sample_weight: Weights of the training examples in the loss.
        callbacks: Callbacks of `fit`, called as the `callbacks` of `Workload` are. Those whose work
            a run does anyway, such as `TerminateOnNaN`, are left out; a `LearningRateScheduler`
            becomes a schedule over worker-steps; those that no run can call are refused.
        class_weight: Weight in the loss by class; 1 for those left out.
        name: Name of the job; None for the model's name.
        data_set: Name of the data; None for a digest of arrays, so that other data are another
            job, and for `name` if x is a Dataset.
        metric: Name of a Keras metric, or a function that builds one; None for the first one
            of `compile` (with several outputs, of the first that has one), and if there is none,
            for accuracy if the labels are classes, else for the loss of the tests.
        is_pretrained: Start each run from the model's present values, which have to be the same
            wherever this is imported. Otherwise each run draws new values of what is trained, by
            its seed; frozen layers always keep theirs.
        total_worker_steps: W; None for the batches of all epochs.
        evaluation_interval_worker_steps: Worker-steps between tests; None for 40 tests in a job.
        validation_steps: Batches of `validation_data` to test with; None for all.
        validation_freq: Epochs between tests, instead of worker-steps.
        verbose: Has no effect: a run shows its progress where it is started.
        shuffle: True, as the order of the examples follows from the seed of a run.
        initial_epoch: 0, as a run begins with its first step.
        validation_batch_size: Size of the `validation_steps`; None for that of the training.
        fields: Further fields of `Workload`, such as `largest_scaling`.

    Raises:
        WorkloadError: The model is not compiled, or the arguments do not fit together.
    """
    check_fields(fields, inspect.signature(from_compiled).parameters)
    check_unchanged(shuffle, initial_epoch, 1 if validation_freq is None else validation_freq)
    if not isinstance(epochs, int) or epochs < 1:
        raise WorkloadError(
            f"epochs is {epochs!r}; give a whole number from 1 on", code="parameter-invalid"
        )
    whose = f"workload {name!r}" if name else "from_compiled"
    rate_setting = keras.callbacks.LearningRateScheduler
    told = usable_callbacks([one for one in callbacks if not isinstance(one, rate_setting)], whose)
    build = None if isinstance(model, keras.Model) or not callable(model) else model
    if build is not None:
        model = build()
    compiled = compiled_fields(model)
    name = name or _own_name(model)
    first_metric, output, is_weighted = compiled_metric(model)
    if class_weight and sample_weight is not None:
        raise WorkloadError(
            "there are class_weight and sample_weight; multiply them yourself, and give"
            " sample_weight alone",
            code="parameters-conflict",
        )

    if validation_steps is not None and validation_data is not None:
        validation_data = _first_batches(
            validation_data, validation_steps, validation_batch_size or batch_size or BATCH_SIZE
        )
    data: AnyData | None = None
    examples: tuple[Any, Any] | None = None  # inputs and labels, from the first on
    if isinstance(x, Data | StreamedData):
        if y is not None or validation_data is not None:
            raise WorkloadError(
                f"x is a {type(x).__name__}, which holds labels and tests as well; leave out y and"
                " validation_data",
                code="parameters-conflict",
            )
        data = x
    elif y is None:
        examples, steps = _look_at_batches(x, validation_data, steps_per_epoch)
        batch_size = batch_size or len(flatten("y", examples[1])[0][0])
    else:
        arrays = _split((x, y, sample_weight), validation_data, validation_split)
        if validation_steps is not None and validation_data is None:
            size = validation_batch_size or batch_size or BATCH_SIZE
            arrays = arrays[0], _first_batches(arrays[1], validation_steps, size)
        data = _joined(*arrays, ())
    if data is not None:
        batch_size = batch_size or BATCH_SIZE
        steps = steps_per_epoch or math.ceil(data.train.examples / max(1, batch_size))
    if isinstance(data, Data):
        examples = data.train_inputs, data.train_labels
    inputs, labels = (None, None) if examples is None else map(_first, examples)
    ensure_built(model, inputs)
    if metric is None and str(first_metric).lower() not in ("accuracy", "acc"):
        metric = first_metric or _usual_metric(model, labels)
        if warning := _judged_by(model, first_metric, metric):
            warn_once(f"workload {name!r}: {warning}")
    if metric == LOSS_METRIC:
        output = None
    further = fields.get("further_metrics", ())
    # Weights of tests count in the loss, and in metrics that are compiled as weighted.
    wanted = [is_weighted or one == LOSS_METRIC for one in (metric, *further)]
    if y is not None:
        data = _joined(*arrays, wanted)
        data_set = data_set or _digest(name, data)
    total = total_worker_steps or epochs * steps
    interval = evaluation_interval_worker_steps
    if interval is None:
        interval = max(1, total // _TESTS) if validation_freq is None else validation_freq * steps
    rate = fields.pop("learning_rate", compiled["learning_rate"])
    compiled["learning_rate"], _ = scheduled_rate(callbacks, rate, steps, total)

    def load() -> AnyData:
        if data is not None:
            return data
        return _joined(_read(x, "x"), _read(validation_data, "validation_data"), wanted)

    def built_anew() -> Any:
        made = build()  # type: ignore[misc]  # it is only used where there is a function
        ensure_built(made, inputs)
        # A compiled model is saved with its loss and metrics, which only registered ones allow.
        made.compiled = False
        return made

    return Workload(
        **{
            **compiled,
            "name": name,
            "model": built_anew if build else copies(model, is_fresh=not is_pretrained),
            "data": load,
            "data_set": data_set or name,
            "total_worker_steps": total,
            "batch_size": batch_size,
            "evaluation_interval_worker_steps": interval,
            "class_weight": class_weight,
            "metric": metric,
            "metric_output": output,
            "callbacks": (lambda: told) if told else None,
            **fields,
        }
    )


def _own_name(model: Any) -> str:
    """The name of a model without the number that Keras gives to the next one of a process."""
    name, _, number = model.name.rpartition("_")
    is_counted = number.isdigit() and name.replace("_", "") == type(model).__name__.lower()
    return name if is_counted else str(model.name)


def _judged_by(model: Any, first: Any, metric: Any) -> str | None:
    """Says by what a run is judged where the user may not expect it."""
    compiled = getattr(model, "_compile_metrics", None)
    given = [getattr(compiled, f"_user_{kind}", None) for kind in ("metrics", "weighted_metrics")]
    metrics = [one for one in keras.tree.flatten(given) if one is not None]
    other = "'loss'" if metric != LOSS_METRIC else "'mae'"
    how = f"to judge by another, give metric, such as {other}"
    if not metrics:
        found = "accuracy" if metric is None else "the loss of its evaluations"
        return f"a run is judged by {found}, as compile names no metric; {how}"
    if len(metrics) > 1:
        return (
            f"a run is judged by {metric_name(first)}, the first of the {len(metrics)} metrics of"
            f" compile; {how}"
        )
    return None


def metric_name(metric: Any) -> str:
    """Returns the name of a metric, or of a function that builds one, in the logs of `fit`."""
    if isinstance(metric, str):
        return metric
    built = metric() if isinstance(metric, partial) else metric
    return str(getattr(built, "name", None) or getattr(built, "__name__", "metric"))


def compiled_metrics(model: Any) -> dict[str, Any]:
    """Returns the metrics of a model with a single output as `Workload` takes them, by name."""
    outputs = list(getattr(model, "output_names", None) or ())
    compiled = getattr(model, "_compile_metrics", None)
    if len(outputs) > 1:
        return {}
    given = _metrics(getattr(compiled, "_user_metrics", None), outputs)
    built = [one if isinstance(one, str) else partial(_built_metric, one) for _, one in given]
    return {metric_name(one): one for one in built}


def _first_batches(given: Any, batches: int, batch_size: int) -> Any:
    if not isinstance(batches, int) or batches < 1:
        raise WorkloadError(
            f"validation_steps is {batches!r}; give a whole number from 1 on",
            code="parameter-invalid",
        )
    if hasattr(given, "unbatch"):
        return given.take(batches)
    if isinstance(given, tuple | list) and len(given) in (2, 3):
        number = min(batches * batch_size, len(flatten("validation_data", given[0])[0][0]))
        return tuple(None if one is None else take_rows(one, np.arange(number)) for one in given)
    raise WorkloadError(
        f"validation_steps is {batches}, and validation_data is a {type(given).__name__}; leave it"
        " out, and give the data to test with as a Dataset or arrays",
        code="parameter-invalid",
    )


def _usual_metric(model: Any, labels: Any) -> str | None:
    if labels is None or isinstance(labels, dict | tuple | list):
        return None
    shape = getattr(model, "output_shape", None)
    is_single = isinstance(shape, tuple) and not isinstance(shape[0], tuple)
    has_one = has_accuracy(np.asarray(labels), (shape or ()) if is_single else ())
    return None if has_one else LOSS_METRIC


def _look_at_batches(
    train: Any, test: Any, steps_per_epoch: int | None
) -> tuple[tuple[Any, Any], int]:
    """Returns the first batch of a Dataset, and the number of batches of an epoch."""
    _check_readable(train, "x")
    if test is None:
        raise WorkloadError(
            "there is nothing to test with; give validation_data, another Dataset or arrays, as"
            " validation_split is for arrays",
            code="parameter-missing",
        )
    if not isinstance(test, tuple | list):
        _check_readable(test, "validation_data")
    is_pipeline = hasattr(train, "unbatch")
    if steps_per_epoch is None:
        steps_per_epoch = int(train.cardinality() if is_pipeline else train.num_batches or 0)
        if steps_per_epoch < 1:
            raise WorkloadError(
                "x does not know how many batches it has; give steps_per_epoch, and a pipeline that"
                " ends (without repeat())"
            )
    first = next(iter(train.take(1)), None) if is_pipeline else train[0]
    if not isinstance(first, tuple) or len(first) not in (2, 3):
        raise WorkloadError(f"x does not yield {_YIELDED}; bring it to that with map()")
    return (first[0], first[1]), steps_per_epoch


def _check_readable(given: Any, name: str) -> None:
    if not (hasattr(given, "unbatch") or isinstance(given, keras.utils.PyDataset)):
        raise WorkloadError(
            f"{name} is a {type(given).__name__}, and there is no y; give arrays x and y, or as x a"
            " tf.data.Dataset or keras.utils.PyDataset of batches that ends (a generator:"
            " tf.data.Dataset.from_generator(...).take(BATCHES))"
        )


def _read(given: Any, name: str) -> tuple[Any, ...]:
    if hasattr(given, "unbatch"):
        return read_pipeline(given.unbatch(), name)
    if isinstance(given, keras.utils.PyDataset):
        if given.num_batches is None:
            raise WorkloadError(f"{name} is endless; give it a __len__, its batches")
        batches = [flatten(name, given[number]) for number in range(given.num_batches)]
        tree_spec = batches[0][1] if batches else None
        if not isinstance(tree_spec, tuple) or len(tree_spec) not in (2, 3):
            raise WorkloadError(f"{name} does not yield {_YIELDED}")
        columns = zip(*(rows for rows, _ in batches), strict=True)
        return tuple(unflatten(tree_spec, map(np.concatenate, columns)))
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        raise WorkloadError(
            f"{name} is a {type(given).__name__}; give a pair of inputs and labels, or these and"
            " weights, or a Dataset of batches"
        )
    return tuple(given)


def _split(given: Sequence[Any], test: Any, share: float) -> tuple[Sequence[Any], Sequence[Any]]:
    """Returns what to train and to test with: `test`, or else the last examples, as with Keras."""
    if test is not None:
        return given, _read(test, "validation_data")
    if not 0 < share < 1:
        raise WorkloadError(
            "there is nothing to test with; give validation_data=(inputs, labels), or a"
            f" validation_split between 0 and 1 (it is {share!r})",
            code="parameter-missing",
        )
    numbers = np.arange(len(flatten("y", given[1])[0][0]))
    kept = math.floor(len(numbers) * (1 - share))
    parts = [one for one in given if one is not None]
    train, test = ([take_rows(one, half) for one in parts] for half in np.split(numbers, [kept]))
    return train, test


def _joined(train: Sequence[Any], test: Sequence[Any], wanted: Sequence[bool]) -> Data:
    """Joins arrays; `wanted` says for each metric whether the weights of tests count in it."""
    weights = test[2] if len(test) > 2 else None
    if weights is not None and len(set(wanted)) > 1:
        raise WorkloadError(
            "validation_data has weights, which count in the loss and in weighted_metrics, and not"
            " in other metrics: a run can evaluate metrics of one kind only; leave out the others"
        )
    return Data(
        train[0],
        train[1],
        test[0],
        test[1],
        train_weights=train[2] if len(train) > 2 else None,
        test_weights=weights if any(wanted) else None,
    )


def _first(given: Any) -> Any:
    return take_rows(given, np.arange(min(BATCH_SIZE, len(flatten("x", given)[0][0]))))


def _digest(name: str, data: Data) -> str:
    digest = hashlib.sha256()
    for source in (data.train, data.test):
        if source.form != (Leaf(), Leaf()):
            digest.update(repr(source.form).encode())
        for one in source.rows:
            digest.update(f"{one.dtype} {one.shape}".encode())
            # The bytes of an array of objects are addresses in memory.
            is_text = one.dtype == object
            digest.update(repr(one.tolist()).encode() if is_text else one.tobytes())
    return f"{name}-{digest.hexdigest()[:12]}"
