"""Optimizers as functions of flat vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from syncswitch.storage.errors import UserError, WorkloadError
from syncswitch.trainers.job.embeddings import dense_variables
from syncswitch.trainers.job.keras_parts import build_model, build_optimizer, excluded_variables
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.adam import AdamForm
from syncswitch.trainers.model.layout import FlatLayout, Vector
from syncswitch.trainers.model.tensorflow_api import tf


class Optimizer(ABC):
    """Computes updates of vectors with the `layout` of its slots; keeps no state of training."""

    layout: FlatLayout
    # Whether `fit` would leave averages in the model: the first P of the slots.
    has_averages = False

    def __init__(self, layout: FlatLayout, variables: Sequence[Any]) -> None:
        self._parameters_layout = layout
        self.constraints = [one.constraint for one in variables]

    @property
    def has_constraints(self) -> bool:
        return any(one is not None for one in self.constraints)

    @abstractmethod
    def initial_slots(self) -> Vector:
        """Returns the initial slots."""

    @abstractmethod
    def apply(
        self, parameters: Any, slots: Any, updates: Any, gradient: Any, rate: Any, momentum: Any
    ) -> tuple[Any, Any]:
        """Traces one update, after `updates` others: parameters [P] and slots after it."""

    def project(self, parameters: Any) -> Any:
        """Traces the constraints: where parameters [P] go after they were moved or averaged."""
        values = unpack(parameters, self._parameters_layout)
        pairs = zip(self.constraints, values, strict=True)
        return pack([one if limit is None else limit(one) for limit, one in pairs])


class MomentumSGD(Optimizer):
    """SGD with momentum.

    `accumulator = momentum * accumulator + gradient; parameters -= rate * accumulator`, so that a
    changed rate acts on the whole accumulator at once (as in the paper's TensorFlow). Constraints
    are not part of it: `project` follows.
    """

    def __init__(self, layout: FlatLayout, variables: Sequence[Any] = ()) -> None:
        super().__init__(layout, variables)
        self.layout = FlatLayout(tuple(f"momentum/{name}" for name in layout.names), layout.shapes)

    @override
    def initial_slots(self) -> Vector:
        return np.zeros(self.layout.size, np.float32)

    @override
    def apply(
        self, parameters: Any, slots: Any, updates: Any, gradient: Any, rate: Any, momentum: Any
    ) -> tuple[Any, Any]:
        # Also for numpy arrays.
        accumulator = momentum * slots + gradient
        return parameters - rate * accumulator, accumulator


class KerasOptimizer(Optimizer):
    """Any Keras optimizer: not stateless on TensorFlow, so a state passes through its variables."""

    def __init__(
        self, workload: Workload, layout: FlatLayout, positions: Sequence[tuple[int, Any]]
    ) -> None:
        variables = [variable for _, variable in positions]
        super().__init__(layout, variables)
        self._optimizer = build_optimizer(workload)
        self._owners = _noted_owners(self._optimizer, variables)
        excluded = excluded_variables(self._optimizer)
        if excluded:
            chosen = [one for place, one in positions if place in excluded]
            self._optimizer._exclude_from_weight_decay = set(map(self._optimizer._var_key, chosen))
        try:
            self._optimizer.build(variables)
        except (TypeError, ValueError, NotImplementedError) as error:
            raise WorkloadError(
                f"workload: {type(self._optimizer).__name__} cannot be built for this model "
                f"({error}); give another Keras optimizer"
            ) from error
        self._variables = variables
        # Not its public step count, which counts updates of several accumulated gradients.
        counters = {id(self._optimizer._iterations), id(self._optimizer.learning_rate)}
        self._slots = [one for one in self._optimizer.variables if id(one) not in counters]
        layout = FlatLayout.of(enumerate(self._slots))
        # Keras' names begin with those of layers, which are numbered through in each process.
        kinds = (name.rpartition("_")[2].strip("0123456789") for name in layout.names)
        names = tuple(f"{kind}/{place:03d}" for place, kind in enumerate(kinds))
        self.layout = FlatLayout(names, layout.shapes)
        self._initial = self.layout.pack([variable.numpy() for variable in self._slots])
        if any(np.ptp(one) for one in self.layout.split(self._initial) if one.size):
            raise workload.error(
                f"the optimizer {type(self._optimizer).__name__} begins with copies of the values"
                " that it trains, which differ between runs; take another, such as AdamW"
            )
        self.has_averages = bool(self._optimizer.use_ema)
        if self.has_averages:
            averages = self._optimizer._model_variables_moving_average
            first = self._slots[: len(variables)]
            if any(one is not other for one, other in zip(first, averages, strict=True)):
                raise workload.error(
                    f"the optimizer {type(self._optimizer).__name__} has use_ema, and variables"
                    " before its averages; let its build() begin with super().build(variables)"
                )

    @property
    def adam(self) -> AdamForm | None:
        """The optimizer as a form that needs no TensorFlow; None for others than Adam and AdamW."""
        from keras import optimizers

        own = self._optimizer
        clipped_by = next((one for one in _CLIPPING if getattr(own, one)), "")
        is_plain = type(own) in (optimizers.Adam, optimizers.AdamW) and not (
            own.amsgrad or own.loss_scale_factor or self.has_constraints
        )
        if not is_plain or any(str(one.dtype) != "float32" for one in self._variables):
            return None
        decay = float(own.weight_decay or 0.0)
        decays = [decay if decay and own._use_weight_decay(one) else 0.0 for one in self._variables]
        return AdamForm(
            tuple(self._parameters_layout.sizes),
            tuple(decays),
            float(own.beta_1),
            float(own.beta_2),
            float(own.epsilon),
            clipped_by,
            float(getattr(own, clipped_by)) if clipped_by else 0.0,
        )

    def apply_ahead(
        self, parameters: Any, slots: Any, updates: Any, gradient: Any, rate: Any
    ) -> tuple[Any, Any, Any]:
        """Traces an `AheadUpdate`: the change, the change ahead, both [P], and the slots."""
        moved, slots = self.apply(parameters, slots, updates, gradient, rate, 0.0)
        further, _ = self.apply(parameters, slots, updates + 1, tf.zeros_like(gradient), rate, 0.0)
        return moved - parameters, further - parameters, slots

    def slots_of_variables(self, servers: int) -> list[tuple[int, int | None]]:
        """Returns the size of each slot and the number of its variable; None if it is shared.

        Raises UserError if an update of one variable depends on others.
        """
        optimizer = self._optimizer
        owners = [self._owners.get(id(slot)) for slot in self._slots]
        sizes = self.layout.sizes
        problem = None
        if getattr(optimizer, "global_clipnorm", None):
            problem = "with global_clipnorm needs the norm of the whole gradient"
        elif any(size > 1 and own is None for size, own in zip(sizes, owners, strict=True)):
            problem = "does not say to which parameters its variables belong"
        if problem is not None:
            raise UserError(
                f"the workload's optimizer {type(optimizer).__name__} {problem}",
                parameter="parameter_servers",
                value=servers,
                remedy="use another optimizer, clipnorm or clipvalue, or one parameter server",
            )
        return list(zip(sizes, owners, strict=True))

    @override
    def initial_slots(self) -> Vector:
        return self._initial.copy()

    @override
    def apply(
        self, parameters: Any, slots: Any, updates: Any, gradient: Any, rate: Any, momentum: Any
    ) -> tuple[Any, Any]:
        # Functions run stateful operations in the order in which they were traced.
        assign(self._variables, unpack(parameters, self._parameters_layout))
        assign(self._slots, unpack(slots, self.layout))
        optimizer = self._optimizer
        optimizer._iterations.assign(tf.cast(updates, optimizer._iterations.dtype))
        optimizer.learning_rate.assign(rate)
        # It divides by this factor, which `fit` multiplies the loss with.
        scaled = gradient * (optimizer.loss_scale_factor or 1.0)
        optimizer.apply(unpack(scaled, self._parameters_layout), self._variables)
        moved = pack([variable.value for variable in self._variables])
        return moved, pack([variable.value for variable in self._slots])


# In the order in which Keras asks for them.
_CLIPPING = ("clipnorm", "global_clipnorm", "clipvalue")


def _noted_owners(optimizer: Any, variables: Sequence[Any]) -> dict[int, int]:
    """Notes, while an optimizer is built, the number of the variable of each slot, by its `id`."""
    numbers = {id(variable): number for number, variable in enumerate(variables)}
    owners: dict[int, int] = {}
    add = optimizer.add_variable_from_reference

    def noted(reference_variable: Any, *arguments: Any, **fields: Any) -> Any:
        added = add(reference_variable, *arguments, **fields)
        # Some refer to a variable made for its shape alone.
        if id(reference_variable) in numbers:
            owners[id(added)] = numbers[id(reference_variable)]
        return added

    optimizer.add_variable_from_reference = noted
    return owners


def make_optimizer(
    workload: Workload, layout: FlatLayout, chosen: slice = slice(None)
) -> Optimizer:
    """Makes the workload's optimizer for parameters of this layout, or some of its variables."""
    positions = dense_variables(build_model(workload))[chosen]
    layout = FlatLayout(layout.names[chosen], layout.shapes[chosen])
    if workload.optimizer is not None:
        # Its updates assign variables, and models that are built twice may be one and the same.
        return KerasOptimizer(workload, layout, [(place, _like(one)) for place, one in positions])
    return MomentumSGD(layout, [variable for _, variable in positions])


def _like(variable: Any) -> Any:
    """Makes a variable of the same value with what optimizers look at."""
    import keras

    made = keras.Variable(
        np.asarray(variable), dtype=variable.dtype, trainable=True, name=variable.name
    )
    made._path = variable.path
    for name in ("constraint", "regularizer", "overwrite_with_gradient"):
        setattr(made, name, getattr(variable, name))
    return made


def unpack(flat: Any, layout: FlatLayout) -> list[Any]:
    """Cuts a flat tensor into tensors of the layout's shapes."""
    values, start = [], 0
    for size, shape in zip(layout.sizes, layout.shapes, strict=True):
        # Not tf.split, which copies even aligned pieces.
        values.append(tf.reshape(tf.slice(flat, [start], [size]), shape))
        start += size
    return values


def pack(values: Sequence[Any]) -> Any:
    """Joins tensors to a flat one."""
    if not values:
        return tf.zeros([0])
    return tf.concat([tf.reshape(tf.cast(value, tf.float32), [-1]) for value in values], 0)


def assign(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Assigns values that were kept in float32 to variables of any type."""
    for variable, value in zip(variables, values, strict=True):
        variable.assign(as_dtype(value, variable.dtype))


def as_dtype(value: Any, dtype: Any) -> Any:
    """Returns values that were kept in float32 as those of a variable of this type."""
    if str(dtype) == "bool":
        return tf.greater_equal(value, 0.5)
    return tf.cast(value if "float" in str(dtype) else tf.round(value), dtype)
