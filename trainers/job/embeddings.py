"""Large `Embedding` layers, built without their tables, which are kept on parameter servers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

Find = Callable[[int, Any], Any]
"""`(index of the embedding, indices of rows, of any shape) -> rows`, in TensorFlow."""


@dataclass(frozen=True)
class EmbeddingTable:
    """The table of one layer."""

    position: int  # of its variable among the trained variables of its model
    name: str  # in checkpoints
    layer: str  # name of the layer, for people
    rows: int
    width: int


@dataclass
class ThinBuilding:
    """The large layers of a model that is built."""

    thin: dict[int, Any] = field(default_factory=dict)  # built without their tables, by number
    wanted: set[int] = field(default_factory=set)  # whose table is not only looked up
    whole: dict[int, str] = field(default_factory=dict)  # why others keep their tables
    seen: int = 0  # number of large layers


_BUILDING = threading.RLock()
_USED = "the model brings values for its table, or uses it for more than looking up rows"


@contextmanager
def thin_embeddings(least_values: int, but: set[int]) -> Iterator[ThinBuilding]:
    """Returns a context in which large `Embedding` layers are built with a single row.

    Tables are large from this number of values on; those with the indices `but` are built whole.
    """
    # Whoever looked at the class before the lock might restore what another thread has changed.
    with _BUILDING, _changed_embeddings(least_values, but) as building:
        yield building


@contextmanager
def _changed_embeddings(least_values: int, but: set[int]) -> Iterator[ThinBuilding]:
    from keras import layers, ops

    embedding, building = layers.Embedding, ThinBuilding()
    build, embeddings, call = embedding.build, embedding.embeddings, embedding.call
    load = embedding.load_own_variables

    def thin_build(layer: Any, *arguments: Any, **named: Any) -> None:
        if layer.built or layer.input_dim * layer.output_dim < max(2, least_values):
            build(layer, *arguments, **named)
            return
        number = building.seen
        building.seen += 1
        reason = _why_whole(layer)
        if reason or number in but:
            building.whole[number] = (
                f"layer {layer.name!r} has {layer.input_dim:,} rows, and each step moves all of"
                f" them: {reason or _USED}"
            )
            build(layer, *arguments, **named)
            return
        rows, layer.input_dim = layer.input_dim, 1
        try:
            build(layer, *arguments, **named)
        finally:
            layer.input_dim = rows
        building.thin[number] = layer

    def watched(layer: Any) -> Any:
        building.wanted |= {number for number, one in building.thin.items() if one is layer}
        return embeddings.fget(layer)

    def watched_load(layer: Any, store: Any) -> None:
        # It may be told to pass over what has another shape.
        building.wanted |= {number for number, one in building.thin.items() if one is layer}
        load(layer, store)

    def thin_call(layer: Any, inputs: Any) -> Any:
        if not is_thin(layer):
            return call(layer, inputs)
        # There is one row only, whatever the indices are.
        return call_with(layer, inputs, lambda ids: ops.zeros((*ops.shape(ids), layer.output_dim)))

    embedding.build, embedding.embeddings = thin_build, property(watched)
    embedding.call, embedding.load_own_variables = thin_call, watched_load
    try:
        yield building
    finally:
        embedding.build, embedding.embeddings, embedding.call = build, embeddings, call
        embedding.load_own_variables = load
    building.wanted |= {number for number, one in building.thin.items() if not one.trainable}


def _why_whole(layer: Any) -> str | None:
    """The reason why the rows of a layer cannot be trained separately; None if they can."""
    from keras import initializers, layers

    by_rows = ("RandomUniform", "RandomNormal", "TruncatedNormal", "Zeros", "Ones")
    made_by = layer.embeddings_initializer
    is_constant = type(made_by) is initializers.Constant and isinstance(made_by.value, int | float)
    if type(layer) is not layers.Embedding:
        return f"its class is {type(layer).__name__}; only keras.layers.Embedding is cut into rows"
    if not layer.trainable:
        return "it is not trained"
    if layer.embeddings_regularizer is not None or layer.embeddings_constraint is not None:
        return "it has a regularizer or a constraint, which needs the whole table"
    if layer.lora_rank or layer.quantization_mode:
        return "it is quantized or uses LoRA"
    if str(layer.variable_dtype) != "float32":
        return f"it is {layer.variable_dtype}"
    if not (is_constant or type(made_by) in [getattr(initializers, name) for name in by_rows]):
        return (
            f"its initializer is {type(made_by).__name__}, which cannot make single rows; take"
            " 'uniform', RandomNormal, TruncatedNormal or a constant"
        )
    return None


def is_thin(layer: Any) -> bool:
    """Whether a layer was built without its table."""
    from keras import layers

    is_embedding = type(layer) is layers.Embedding and layer.built
    return is_embedding and int(layer._embeddings.shape[0]) != int(layer.input_dim)


def true_shape(layer: Any, variable: Any) -> tuple[int, ...]:
    """Shape that a layer's variable has if the layer is built with its table."""
    if is_thin(layer):
        return layer.input_dim, layer.output_dim
    return tuple(variable.shape)


def thin_layers(model: Any) -> list[Any]:
    """Layers without their tables, in the order of the model's trained variables."""
    holders = {id(one._embeddings): one for one in model._flatten_layers() if is_thin(one)}
    return [holders[id(one)] for one in model.trainable_variables if id(one) in holders]


def embeddings_of(model: Any) -> tuple[EmbeddingTable, ...]:
    """Tables that a model was built without, in the order of its trained variables."""
    positions = {id(one): place for place, one in enumerate(model.trainable_variables)}
    return tuple(
        EmbeddingTable(
            place := positions[id(layer._embeddings)],
            f"{place:03d}-{layer._embeddings.name}",
            layer.name,
            layer.input_dim,
            layer.output_dim,
        )
        for layer in thin_layers(model)
    )


def dense_variables(model: Any) -> list[tuple[int, Any]]:
    """Positions and values of the trained variables of a model, except its tables."""
    apart = {id(layer._embeddings) for layer in thin_layers(model)}
    return [
        (place, one) for place, one in enumerate(model.trainable_variables) if id(one) not in apart
    ]


class Lookups:
    """Makes the layers of one model that have no tables (`thin_layers`) look up rows elsewhere."""

    def __init__(self, layers: Sequence[Any]) -> None:
        self._finding = threading.local()
        for number, layer in enumerate(layers):
            self._redirect(number, layer)

    @contextmanager
    def by(self, find: Find) -> Iterator[None]:
        """Returns a context in which this thread finds rows with `find`."""
        self._finding.find = find
        try:
            yield
        finally:
            del self._finding.find

    def _redirect(self, number: int, layer: Any) -> None:
        def call(inputs: Any) -> Any:
            find = self._finding.find
            return call_with(layer, inputs, lambda ids: find(number, ids))

        layer.call = call


def call_with(layer: Any, inputs: Any, rows_of: Callable[[Any], Any]) -> Any:
    """Calls the layer on its inputs, with rows from elsewhere."""
    from keras import ops

    if inputs.dtype not in ("int32", "int64"):
        inputs = ops.cast(inputs, "int32")
    ids = ops.cast(inputs, "int64")
    # Like Keras, count negative ones from the end.
    ids = ops.where(ids < 0, ids + layer.input_dim, ids)
    return ops.cast(rows_of(ids), layer.compute_dtype)
