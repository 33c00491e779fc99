"""A Keras model as functions of flat vectors, traced into the steps of a cluster."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from syncswitch.trainers.job.data import AnyData
from syncswitch.trainers.job.embeddings import (
    EmbeddingTable,
    Find,
    Lookups,
    dense_variables,
    embeddings_of,
    thin_layers,
)
from syncswitch.trainers.job.keras_parts import build_model, moves_alone
from syncswitch.trainers.job.sources import Array, ArraySource
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.batches import (
    Outputs,
    check_inputs,
    check_labels,
    parsed,
    row_specs,
    sample,
    transformed,
)
from syncswitch.trainers.model.embeddings import Ids, RowGradient, checked_ids
from syncswitch.trainers.model.feed import shuffled
from syncswitch.trainers.model.layout import FlatLayout, Vector
from syncswitch.trainers.model.optimizer import (
    KerasOptimizer,
    MomentumSGD,
    Optimizer,
    as_dtype,
    pack,
    unpack,
)
from syncswitch.trainers.model.own_slots import AheadUpdate
from syncswitch.trainers.model.tensorflow_api import concrete, tf
from syncswitch.trainers.model.updates import (
    Projection,
    Update,
    mean_of,
    momentum_update,
    projected,
)

_FACTORS = (8.0, 512.0)
_DECIMALS = 6
_TOLERANCE = 1e-5


class EmbeddingRows(NamedTuple):
    """Some rows of an embedding: their numbers, int64, ascending, and values, shape [U, width]."""

    ids: Any
    values: Any


def _among(rows: Sequence[EmbeddingRows]) -> Find:
    def find(table: int, ids: Any) -> Any:
        there = rows[table]
        places = tf.searchsorted(there.ids, tf.reshape(ids, [-1]))
        return tf.gather(there.values, tf.reshape(places, tf.shape(ids)))

    return find


def decay_of(move: Callable[[Vector], Vector], start: Vector, is_whole: Any = False) -> Vector:
    """Measures the factor m by which a batch multiplies each statistic, in `s <- m s + c`.

    It moves other values with the same batch, and so works for layers of any kind: m is the
    momentum of an exponential moving average, 1 for a sum or a constant, and 0 for values that
    follow from other variables alone. A value that moves in another way (by a maximum, or a power
    iteration) gets 0 as well: it becomes the result of the last worker, which is bounded however
    stale it is, but loses the work of others meanwhile. Values that are whole (`is_whole`), such as
    counters and flags, are moved by whole numbers.
    """
    decay = np.zeros(start.size, np.float32)
    moved = move(start).astype(np.float64)
    unknown = np.ones(start.size, bool)
    random = np.random.default_rng(0)

    def slope(direction: npt.NDArray[np.float64]) -> Any:
        # Far enough that rounding does not matter, and no two equally far.
        factors = random.uniform(*_FACTORS, start.size)
        steps = direction * factors * (1 + np.abs(start) + np.abs(moved))
        values = (start + np.where(is_whole, np.rint(steps), steps)).astype(np.float32)
        with np.errstate(all="ignore"):
            return (move(values) - moved) / (values.astype(float) - start)

    while unknown.any():
        # Each value up and down; one of these twice, so that no agreement is by chance.
        direction = unknown * random.choice([-1.0, 1.0], start.size)
        slopes = np.stack([slope(direction), slope(-direction), slope(direction)])
        with np.errstate(invalid="ignore"):
            agree = unknown & (np.ptp(slopes, axis=0) < _TOLERANCE)
        if not agree.any():
            break
        decay[agree] = np.round(np.median(slopes[:, agree], axis=0), _DECIMALS)
        # Known values stay as they were from here on, as others may depend on them.
        unknown &= ~agree
    return decay


class ModelFunction:
    """Computes batches, gradients and predictions; keeps no state of the training.

    P is the size of `parameters`, trained variables other than embeddings; S that of `statistics`,
    variables that move without a gradient.
    """

    def __init__(self, workload: Workload, data: AnyData, model: Any = None) -> None:
        self.batch_size = workload.batch_size
        self._workload = workload
        self._data = data
        self._transform = data.transform
        self.model = build_model(workload) if model is None else model
        self.embeddings = embeddings_of(self.model)
        self._lookups = Lookups(thin_layers(self.model))
        self._sample = sample(workload, data, self.model)
        check_inputs(workload, data, self._sample, self.model)
        # Keras' `fit` gives the mode to models that take it.
        parameters = inspect.signature(self.model.call).parameters.values()
        self._takes_training = any(
            one.name == "training" or one.kind is one.VAR_KEYWORD for one in parameters
        )
        self.outputs = Outputs(workload, self.model)
        self.parameters = FlatLayout.of(dense_variables(self.model), "parameter")
        self._moving = moving_variables(self.model)
        # Of whatever type, they are kept in float32.
        self.statistics = FlatLayout.of(enumerate(self._moving))
        check_labels(workload, data, self.outputs.losses, self.model)

    @cached_property
    def statistics_decay(self) -> Vector:
        """Factors m of the statistics in `move`, shape [S], which are measured at first use."""
        if not self.statistics.size:
            return np.zeros(0, np.float32)
        # Outside of any function that is being traced; traced itself, as training is.
        with tf.init_scope():
            values = [tf.constant(one.numpy()) for _, one in dense_variables(self.model)]
            examples = list(map(tf.constant, self._sample))

            def any_rows(table: int, ids: Any) -> Any:
                # They differ, even if the embedding begins with zeros.
                shape = self._shape_of_rows(table, ids)
                return 0.05 * tf.random.stateless_normal(shape, [table, 1])

            def moved(statistics: Any) -> Any:
                inputs, _ = self._made(examples, tf.zeros([2], tf.int64))
                with self._lookups.by(any_rows):
                    return self._forward(values, statistics, inputs)[1]

            start = self.statistics.pack(self._moving)
            move = tf.function(moved, autograph=False).get_concrete_function(tf.constant(start))
            is_whole = np.repeat(
                [not _is_float(one) for one in self._moving], self.statistics.sizes
            )
            return decay_of(
                lambda statistics: move(tf.constant(statistics)).numpy(), start, is_whole
            )

    def move(self, statistics: Any, contribution: Any) -> Any:
        """Returns the statistics after a batch, `m s + c`, of arrays or tensors of shape [S].

        The present ones, s, need not be those that `gradient` was given with the batch of c.
        """
        return self.statistics_decay * statistics + contribution

    def batch(self, examples: Sequence[Any], worker_step: Any, seed: Any) -> tuple[Any, Any, Any]:
        """Makes inputs, labels and a seed, shape [2], of the batch `worker_step` in endless epochs.

        The examples are all training examples if they are in memory, otherwise those of this batch.
        """
        return self.batches([examples], [worker_step], seed)[0]

    def batches(
        self, examples: Sequence[Sequence[Any]], worker_steps: Sequence[Any], seed: Any
    ) -> list[tuple[Any, Any, Any]]:
        if isinstance(self._data.train, ArraySource):
            # The numbers of the examples are those of `Order`, in a traced step.
            B, count = self.batch_size, self._data.train.examples
            steps = tf.convert_to_tensor(worker_steps, tf.int64)
            places = tf.expand_dims(steps * B, -1) + tf.range(B, dtype=tf.int64)
            epochs = tf.reshape(places // count, [-1])
            own = tf.stack([tf.fill(epochs.shape, seed), epochs, tf.zeros_like(epochs)], axis=-1)
            within = tf.reshape(places % count, [-1])
            numbers = shuffled(within, own, tf.constant(count - 1, tf.int64))
            indices = tf.reshape(numbers, places.shape)
            # One gather for all is far quicker than one for each.
            picked = [tf.gather(one, indices) for one in examples[0]]
            examples = list(
                zip(*(tf.unstack(one, len(worker_steps)) for one in picked), strict=True)
            )
        seeds = [tf.stack([seed, step]) for step in worker_steps]
        return [(*self._made(one, own), own) for one, own in zip(examples, seeds, strict=True)]

    def _made(self, examples: Sequence[Any], seed: Any) -> tuple[Any, Any]:
        """Makes inputs, and labels or `Weighted`, of a batch of these examples, transformed."""
        inputs, labels = parsed(self._data, self._data.train, examples)
        if self._transform is not None:
            inputs, labels = transformed(self._transform, inputs, labels, seed)
        return inputs, labels

    def gradient(
        self, parameters: Any, statistics: Any, inputs: Any, labels: Any, seed: Any
    ) -> tuple[Any, Any, Any]:
        """Computes loss, flat gradient [P] and contribution to the statistics (see `move`)."""
        values = unpack(parameters, self.parameters)
        loss, gradients, contribution = self.gradients(values, statistics, inputs, labels, seed)
        return loss, pack(gradients), contribution

    def gradients(
        self,
        values: list[Any],
        statistics: Any,
        inputs: Any,
        labels: Any,
        seed: Any,
        rows: Sequence[EmbeddingRows] = (),
    ) -> tuple[Any, list[Any], Any]:
        """Computes the same by variable, and then for the given rows of each embedding."""
        trained = [*values, *(one.values for one in rows)]
        with tf.GradientTape() as tape:
            tape.watch(trained)
            loss, contribution = self.loss(values, statistics, inputs, labels, seed, rows)
        gradients = tape.gradient(loss, trained)
        for (_, variable), gradient in zip(dense_variables(self.model), gradients, strict=False):
            if gradient is not None:
                continue
            with tf.init_scope():
                is_moved = moves_alone(self._workload)
            if is_moved:
                raise self._workload.error(
                    f"{variable.path!r} has no part in the loss, so that fit leaves it alone, and"
                    " the optimizer would move it; set trainable=False on its layer"
                )
        # An embedding that is trained as a whole has a sparse gradient.
        gradients = [
            tf.zeros_like(value) if gradient is None else tf.convert_to_tensor(gradient)
            for gradient, value in zip(gradients, trained, strict=True)
        ]
        return loss, gradients, contribution

    def loss(
        self,
        values: list[Any],
        statistics: Any,
        inputs: Any,
        labels: Any,
        seed: Any,
        rows: Sequence[EmbeddingRows] = (),
    ) -> tuple[Any, Any]:
        """Computes loss and contribution to the statistics of one batch; see `gradients`."""
        with self._lookups.by(_among(rows)):
            outputs, moved, extra_losses = self._forward(values, statistics, inputs, seed)
        loss = total_loss(self.outputs.loss(labels, outputs, training=True), extra_losses)
        if loss.shape.rank:
            # Without a reduction `fit` shows the mean, and follows the gradient of the sum.
            whole = tf.reduce_sum(loss)
            loss = tf.stop_gradient(tf.reduce_mean(loss)) + (whole - tf.stop_gradient(whole))
        return loss, moved - self.statistics_decay * statistics

    def _forward(
        self,
        values: list[Any],
        statistics: Any,
        inputs: Any,
        seed: Any = (0, 0),
        *,
        training: bool = True,
    ) -> tuple[Any, Any, Any]:
        trained = list(values)
        for table in self.embeddings:  # whose rows are looked up elsewhere
            trained.insert(table.position, tf.zeros([1, table.width]))
        variables = [*self.model.trainable_variables, *self.model.non_trainable_variables]
        seed = tf.convert_to_tensor(seed, tf.int64)
        given = [*trained, *self._untrained(statistics, seed)]
        with _assigning_scope()(list(zip(variables, given, strict=True)), True) as scope:
            outputs = self.model.call(
                inputs, **({"training": training} if self._takes_training else {})
            )
            extra_losses = self.model.losses
        if training:
            self._check_assigned(scope.assigned)
        return outputs, pack(list(map(scope.get_current_value, self._moving))), extra_losses

    def _check_assigned(self, assigned: Sequence[Any]) -> None:
        shared = set(map(id, self._moving))
        for variable in assigned:
            if id(variable) in shared or _is_seed(variable):
                continue
            what = (
                "a trained variable, and workers share its gradients alone; take a constraint, or"
                " a variable that is not trained"
                if variable.trainable
                else f"{variable.dtype}, or begins beyond {_MOST_WHOLE:,}, and workers share"
                " float32; take float32, or smaller numbers"
            )
            raise self._workload.error(
                f"a layer assigns {variable.path!r} in its call, which is {what}"
            )

    def predict(self, *model_and_inputs: Any) -> Any:
        return self.tested(*model_and_inputs)[0]

    def tested(
        self, parameters: Any, statistics: Any, inputs: Any, rows: Sequence[EmbeddingRows] = ()
    ) -> tuple[Any, Any]:
        """Computes the model's outputs in inference mode, and the losses of its layers."""
        with self._lookups.by(_among(rows)):
            values = unpack(parameters, self.parameters)
            outputs, _, losses = self._forward(values, statistics, inputs, training=False)
            return outputs, losses

    def ids(self, inputs: Any, trained: Any, *, training: bool) -> list[Any]:
        """Finds the rows that a batch looks up; `trained` stands for all trained values."""
        asked = [[tf.zeros([0], tf.int64)] for _ in self.embeddings]

        def note(table: int, ids: Any) -> Any:
            asked[table].append(tf.reshape(ids, [-1]))
            return tf.fill(self._shape_of_rows(table, ids), trained)

        values = [tf.fill(shape, trained) for shape in self.parameters.shapes]
        statistics = tf.fill([self.statistics.size], trained)
        with self._lookups.by(note):
            self._forward(values, statistics, inputs, training=training)
        return [tf.concat(one, 0) for one in asked]

    def _shape_of_rows(self, table: int, ids: Any) -> Any:
        return tf.concat([tf.shape(ids), [self.embeddings[table].width]], 0)

    def _untrained(self, statistics: Any, seed: Any) -> list[Any]:
        """Returns the values of the variables that are not trained.

        Seeds of random layers follow from the batch, so that dropout differs between workers and
        is the same when a step is repeated.
        """
        of_moving = unpack(statistics, self.statistics)
        moving = dict(zip(map(id, self._moving), of_moving, strict=True))
        values = []
        for index, variable in enumerate(self.model.non_trainable_variables):
            if id(variable) in moving:
                values.append(as_dtype(moving[id(variable)], variable.dtype))
            elif _is_seed(variable):
                values.append(tf.cast(seed + index, variable.dtype))
            else:
                with tf.init_scope():  # within a traced function a variable has no value
                    kept = variable.numpy()
                values.append(tf.constant(kept))
        return values


def total_loss(loss: Any, of_layers: Sequence[Any]) -> Any:
    """Adds the losses of layers to that of the outputs, as Keras' `compute_loss` does."""
    if not of_layers:
        return loss
    return loss + tf.add_n([tf.cast(tf.reduce_sum(one), loss.dtype) for one in of_layers])


def moving_variables(model: Any) -> list[Any]:
    """Returns the variables that training moves without a gradient, such as BatchNorm's means."""
    return [variable for variable in model.non_trainable_variables if _is_moving(variable)]


def _is_float(variable: Any) -> bool:
    return "float" in str(variable.dtype)


def _is_seed(variable: Any) -> bool:
    return "seed" in variable.name and tuple(variable.shape) == (2,)


# Up to here float32 holds all whole numbers.
_MOST_WHOLE = 1 << 24


def _is_moving(variable: Any) -> bool:
    if _is_seed(variable) or str(variable.dtype) in ("float64", "string"):
        return False
    if _is_float(variable):
        return True
    with tf.init_scope():
        return bool((np.abs(variable.numpy().astype(np.float64)) <= _MOST_WHOLE).all())


@cache
def _assigning_scope() -> Any:
    import keras

    class AssigningScope(keras.StatelessScope):  # type: ignore[misc]  # Keras has no types
        """Notes what is assigned; as with variables, no gradient passes through an assignment."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.assigned: list[Any] = []

        def add_update(self, update: Any) -> None:
            variable, value = update
            self.assigned.append(variable)
            super().add_update((variable, tf.stop_gradient(value)))

    return AssigningScope


# TensorFlow joins gradients of fewer values; longer ones are joined when they are kept.
_SHORT = 1 << 18
_ALIGNMENT = 64


def trace_step(
    function: ModelFunction, data: AnyData, beside: str | None = None, *, is_compiled: bool = False
) -> Any:
    """Traces one worker-step up to its gradient.

    Its batch is made on the device `beside`; XLA compiles the rest if `is_compiled` and it can.

    Returns:
        A concrete function `(model, examples ..., worker-step and seed) -> (loss, contribution,
        parts of the gradient ...)`; the model is parameters and statistics, shape [P + S]. With
        embeddings the numbers and values of rows follow as arguments, their gradients as results.
    """
    sizes = [function.parameters.size, function.statistics.size]
    variables = len(function.parameters.shapes)
    examples = row_specs(data, function.batch_size)
    own = len(examples) + 1

    def compute(model: Any, batch: Any, embedding_rows: Any) -> tuple[Any, Any, list[Any]]:
        parameters, statistics = model[: sizes[0]], model[sizes[0] :]
        values = unpack(parameters, function.parameters)
        inputs, labels, seed = batch
        return function.gradients(values, statistics, inputs, labels, seed, embedding_rows)

    computed = tf.function(compute, autograph=False, jit_compile=True) if is_compiled else compute

    def step(model: Any, *given: Any) -> tuple[Any, ...]:
        given, of_embeddings = given[:own], given[own:]
        *examples, numbers = given
        with tf.device(beside):
            batch = function.batch(examples, numbers[0], numbers[1])
        embedding_rows = list(map(EmbeddingRows, of_embeddings[::2], of_embeddings[1::2]))
        loss, gradients, contribution = computed(model, batch, embedding_rows)
        dense, rows = gradients[:variables], gradients[variables:]
        if sizes[0] <= _SHORT:
            dense = [pack(dense)]
        flat = [tf.reshape(one, [-1]) for one in dense]
        return tf.cast(loss, tf.float32), contribution, *flat, *rows

    of_rows: list[Any] = []
    for table in function.embeddings:
        of_rows += [tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, table.width])]
    numbers = tf.TensorSpec([2], tf.int64)
    return concrete(step, tf.TensorSpec([sum(sizes)]), *examples, numbers, *of_rows)


def trace_update(optimizer: Optimizer, parameters: int) -> Any:
    """Traces `Optimizer.apply` for a number of parameters."""
    return concrete(
        optimizer.apply,
        tf.TensorSpec([parameters]),
        tf.TensorSpec([optimizer.layout.size]),
        tf.TensorSpec([], tf.int64),
        tf.TensorSpec([parameters]),
        tf.TensorSpec([]),
        tf.TensorSpec([]),
    )


def trace_projection(optimizer: Optimizer, parameters: int) -> Any:
    """Traces `Optimizer.project` for a number of parameters; None without constraints."""
    if not optimizer.has_constraints:
        return None
    return concrete(optimizer.project, tf.TensorSpec([parameters]))


def flat_update(function: Callable[..., Sequence[Any]]) -> Update:
    """Makes an update of arrays from one that `trace_update` has traced."""

    def update(
        parameters: Vector,
        moved: Vector,
        slots: Vector,
        updates: int,
        gradients: Sequence[Vector],
        rate: float,
        momentum: float,
    ) -> None:
        result = function(
            as_tensor(parameters),
            as_tensor(slots),
            tf.constant(updates, tf.int64),
            as_tensor(mean_of(gradients)),
            tf.constant(rate, tf.float32),
            tf.constant(momentum, tf.float32),
        )
        moved[:], slots[:] = map(as_array, result)

    return update


def flat_projection(function: Callable[..., Any]) -> Projection:
    """Makes a projection of arrays from one that `trace_projection` has traced."""

    def project(parameters: Vector) -> None:
        result = function(as_tensor(parameters))
        parameters[:] = as_array(result[0] if isinstance(result, list | tuple) else result)

    return project


def make_projection(optimizer: Optimizer, parameters: int) -> Projection | None:
    """Makes the projection of this many parameters; None without constraints."""
    traced = trace_projection(optimizer, parameters)
    return None if traced is None else flat_projection(traced)


def make_update(optimizer: Optimizer, parameters: int, project: Projection | None) -> Update:
    """Makes the update of this many parameters; the optimizers of Keras project them themselves."""
    if isinstance(optimizer, MomentumSGD):
        return projected(momentum_update, project)
    return flat_update(trace_update(optimizer, parameters))


def trace_ahead(optimizer: KerasOptimizer, parameters: int) -> Any:
    """Traces `KerasOptimizer.apply_ahead` for a number of parameters."""
    return concrete(
        optimizer.apply_ahead,
        tf.TensorSpec([parameters]),
        tf.TensorSpec([optimizer.layout.size]),
        tf.TensorSpec([], tf.int64),
        tf.TensorSpec([parameters]),
        tf.TensorSpec([]),
    )


def flat_ahead(function: Callable[..., Sequence[Any]]) -> AheadUpdate:
    """Makes an update of arrays from one that `trace_ahead` has traced."""

    def update(
        parameters: Vector,
        gradient: Vector,
        ahead: Vector,
        slots: Vector,
        updates: int,
        rate: float,
    ) -> None:
        result = function(
            as_tensor(parameters),
            as_tensor(slots),
            tf.constant(updates, tf.int64),
            as_tensor(gradient),
            tf.constant(rate, tf.float32),
        )
        gradient[:], ahead[:], slots[:] = map(as_array, result)

    return update


def make_ahead(optimizer: Optimizer, parameters: int) -> AheadUpdate | None:
    """Makes the update of a worker with slots of its own; None for the built-in SGD."""
    if not isinstance(optimizer, KerasOptimizer):
        return None
    if (form := optimizer.adam) is not None:
        return form.turn
    return flat_ahead(trace_ahead(optimizer, parameters))


def as_tensor(values: Array) -> Any:
    """Makes a tensor of an array; it shares the array's memory if that is aligned and writable."""
    if values.ctypes.data % _ALIGNMENT or not values.flags.writeable:
        return tf.constant(values)
    return tf.experimental.dlpack.from_dlpack(values.__dlpack__())


def as_array(tensor: Any) -> Vector:
    """Returns the values of a tensor; they are copied only if they lie on a GPU."""
    if tensor.device.endswith("CPU:0"):
        return np.asarray(memoryview(tensor))
    return np.asarray(tensor.numpy())


class EmbeddingSteps:
    """Finds the rows of embeddings that a batch needs (with `trace_ids`), and passes them on."""

    def __init__(
        self, embeddings: Sequence[EmbeddingTable], ids: Callable[..., Sequence[Any]]
    ) -> None:
        self._embeddings = embeddings
        self._ids = ids

    def wanted(self, examples: Sequence[Any], numbers: Any) -> list[Ids]:
        """Returns the numbers of the rows of each embedding that a batch needs.

        Raises ValueError if an embedding does not have one of them.
        """
        asked = self._ids(*examples, numbers, tf.constant(0.0))
        return [
            checked_ids(table, np.unique(as_array(one)))
            for table, one in zip(self._embeddings, asked, strict=True)
        ]

    @staticmethod
    def arguments(ids: Sequence[Ids], rows: Sequence[Vector]) -> list[Any]:
        """Returns the arguments of the traced step for rows: their numbers and values."""
        pairs = zip(ids, rows, strict=True)
        return [tf.constant(one) for pair in pairs for one in pair]

    @staticmethod
    def gradients(ids: Sequence[Ids], parts: Sequence[Any]) -> list[RowGradient]:
        """Returns the gradients of rows, from the last results of the traced step."""
        return [RowGradient(one, as_array(part)) for one, part in zip(ids, parts, strict=True)]


def trace_ids(function: ModelFunction, workload: Workload, examples: Sequence[Any]) -> Any:
    """Traces the look-up of rows: `(examples ..., worker-step and seed, 0) -> rows ...`.

    Raises WorkloadError if the rows depend on trained values.
    """

    def asked(*given: Any) -> list[Any]:
        *held, numbers, trained = given
        inputs, _, _ = function.batch(held, numbers[0], numbers[1])
        return function.ids(inputs, trained, training=True)

    traced = concrete(asked, *examples, tf.TensorSpec([2], tf.int64), tf.TensorSpec([]))
    trained = traced.graph.inputs[len(examples) + 1]
    for table, ids in zip(function.embeddings, traced.outputs, strict=True):
        if _depends_on(ids, trained):
            raise workload.error(
                f"the rows that layer {table.layer!r} looks up depend on what is trained, so that"
                " they cannot be fetched before the step; look rows up by the inputs alone, or set"
                " least_embedding_values to None"
            )
    return traced


def _depends_on(tensor: Any, source: Any) -> bool:
    waiting, seen = [tensor], set()
    while waiting:
        tensor = waiting.pop()
        if tensor is source:
            return True
        if id(tensor.op) not in seen:
            seen.add(id(tensor.op))
            waiting.extend(tensor.op.inputs)
    return False
