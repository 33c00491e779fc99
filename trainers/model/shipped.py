"""Traced functions and sources of examples on their way to workers in other processes.

They are sent as data: TensorFlow's own form of a graph, and the attributes of a source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from syncswitch.storage.errors import OptionHint, WorkloadError
from syncswitch.trainers.job.loading import class_at, place_of
from syncswitch.trainers.job.pipelines import PipelinePieces
from syncswitch.trainers.job.sources import ArraySource, FileSet, Source
from syncswitch.trainers.job.workload import Workload

# They call Python functions, which only the process that traced them has.
_OF_PYTHON = {"EagerPyFunc", "PyFunc", "PyFuncStateless"}


@dataclass(frozen=True)
class Captured:
    """A value (a TensorProto) that a function has captured, or the first one of a variable."""

    type: str
    values: bytes
    is_variable: bool


@dataclass(frozen=True)
class ShippedFunction:
    """A traced function on its way to another process, which needs none of its source code."""

    library: bytes  # FunctionDefLibrary: the function, followed by those that it calls
    types: tuple[str, ...]  # of its arguments
    outputs: int  # number of outputs
    captured: tuple[Captured, ...]

    @classmethod
    def of(cls, function: Any, workload: Workload) -> ShippedFunction:
        """Packs a concrete function of a workload.

        Raises WorkloadError if it uses something that other processes cannot have.
        """
        from syncswitch.trainers.model.tensorflow_api import tf

        graph = function.graph
        variables = {id(variable.handle): variable for variable in graph.variables}
        captured = []
        given = graph.inputs[: len(graph.inputs) - len(graph.captures)]
        for outer, _ in graph.captures:
            variable = variables.get(id(outer))
            if variable is None and outer.dtype == tf.resource:
                raise _unshippable(workload, "a table, such as those of StringLookup and tf.lookup")
            held = outer if variable is None else variable
            content = tf.io.serialize_tensor(held).numpy()
            captured.append(Captured(held.dtype.name, content, variable is not None))
        called = graph.as_graph_def().library.function
        library = tf.compat.v1.GraphDef().library
        library.function.extend([function.function_def, *called])
        # The traced function removes its own when it ends, also if both are in one process.
        library.function[0].signature.name += "_shipped"
        nodes = chain.from_iterable(one.node_def for one in library.function)
        for operation in sorted({node.op for node in nodes} & _OF_PYTHON):
            raise _unshippable(workload, f"a function of Python ({operation})")
        return cls(
            library.SerializeToString(),
            tuple(one.dtype.name for one in given),
            len(graph.outputs),
            tuple(captured),
        )

    def restored(self) -> Callable[..., Sequence[Any]]:
        """Restores the function in the process that received it; it returns a flat sequence."""
        from syncswitch.trainers.model.tensorflow_api import added, tf

        library = tf.compat.v1.GraphDef().library
        library.ParseFromString(self.library)
        call = added(library, self.outputs)
        values = [tf.io.parse_tensor(one.values, one.type) for one in self.captured]
        kept = [
            tf.Variable(value) if one.is_variable else value
            for value, one in zip(values, self.captured, strict=True)
        ]
        fed = [one.handle if isinstance(one, tf.Variable) else one for one in kept]

        def restored(*arguments: Any) -> Sequence[Any]:
            assert len(kept) == len(fed)  # a handle alone would not keep its variable
            pairs = zip(arguments, self.types, strict=True)
            return call([*(tf.convert_to_tensor(*pair) for pair in pairs), *fed])

        return restored


@dataclass(frozen=True)
class ShippedPipeline:
    """The function that makes the pipeline of a piece, and the StructuredValue of its elements."""

    function: ShippedFunction
    element: bytes

    @classmethod
    def of(cls, pieces: PipelinePieces, workload: Workload) -> ShippedPipeline:
        """Traces the pipelines; see `ShippedFunction`."""
        from syncswitch.trainers.model.tensorflow_api import concrete, encoded_spec, tf

        element = pieces.pipeline(tf.constant(0, tf.int64)).element_spec
        traced = concrete(
            lambda piece: tf.data.experimental.to_variant(pieces.pipeline(piece)),
            tf.TensorSpec([], tf.int64),
        )
        return cls(ShippedFunction.of(traced, workload), encoded_spec(element))

    def restored(self) -> Any:
        from syncswitch.trainers.model.tensorflow_api import decoded_spec, tf

        function, element = self.function.restored(), decoded_spec(self.element)
        return lambda piece: tf.data.experimental.from_variant(function(piece)[0], element)


@dataclass(frozen=True)
class ShippedSource:
    """A source on its way to another process."""

    module: str  # of its class; empty for the file of the workload
    name: str  # qualified name of its class
    state: Any  # its attributes that are data
    files: dict[str, FileSet]  # attributes that are files
    pipeline: ShippedPipeline | None  # of a `PipelinePieces`

    @classmethod
    def of(cls, source: Source, workload: Workload) -> ShippedSource:
        """Packs a source of a workload, which must hold nothing but data.

        Raises WorkloadError if it holds anything else.
        """
        # In Python 3.10 only some classes have this method.
        state = getattr(source, "__getstate__", lambda: vars(source))()
        files, pipeline = {}, None
        if isinstance(state, dict):
            files = {name: value for name, value in state.items() if isinstance(value, FileSet)}
            state = {name: value for name, value in state.items() if name not in files}
        if isinstance(source, PipelinePieces):
            pipeline = ShippedPipeline.of(source, workload)
            state.pop("pipeline")
        if isinstance(source, ArraySource | PipelinePieces):
            state.pop("form", None)  # the step has it
        for odd in _no_data(state):
            raise workload.error(
                f"its source {type(source).__name__} cannot be sent to the workers: it holds a"
                f" {type(odd).__name__}; leave all but numbers, texts, bytes, arrays, and lists and"
                " dicts of these out of it, or out of its __getstate__()"
            )
        return cls(*place_of(type(source)), state, files, pipeline)

    def restored(self, reference: str | None = None) -> Source:
        """Restores the source in the process that received it.

        Its class is one of syncswitch, or comes with the workload (`reference`) for which this
        process was started: the sender cannot have anything else imported. Raises WorkloadError if
        its class is not here.
        """
        kind = class_at(self.module, self.name, reference)
        if kind is None or not issubclass(kind, Source):
            raise WorkloadError(
                f"data: the class {self.name} of the source is not where a worker is; have the"
                " workload's module on each machine, and write the class into it, or import it"
                " there"
            )
        source = kind.__new__(kind)
        state = self.state
        if isinstance(state, dict):
            more = {} if self.pipeline is None else {"pipeline": self.pipeline.restored()}
            state = state | self.files | more
        if hasattr(source, "__setstate__"):
            source.__setstate__(state)
        else:
            vars(source).update(state or {})
        return source


def _no_data(value: Any) -> Iterator[Any]:
    """Yields the parts of a value that are not data."""
    if isinstance(value, dict):
        yield from (key for key in value if not isinstance(key, str | int))
        value = list(value.values())
    if isinstance(value, np.ndarray) and value.dtype == object:
        value = value.ravel().tolist()
    if isinstance(value, list | tuple):
        for one in value:
            yield from _no_data(one)
    elif not isinstance(value, str | bytes | int | float | np.generic | np.ndarray | None):
        yield value


def _unshippable(workload: Workload, what: str) -> WorkloadError:
    return workload.error(
        f"its model, loss, transform or pipeline uses {what}, which cannot be sent to workers that"
        " are processes",
        remedy=("do without it", OptionHint("launcher", "in-process", "use")),
    )
