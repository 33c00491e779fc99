"""The only place that imports TensorFlow's internals, and that quietens its start-up messages."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from queue import SimpleQueue
from typing import Any

from syncswitch.storage.errors import UserError


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences what TensorFlow's libraries print while they are loaded.

    They go to file descriptor 2 past every setting. Whoever sets TF_CPP_MIN_LOG_LEVEL sees them.
    """
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", _QUIET_LEVEL) != _QUIET_LEVEL:
        yield
        return
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = _QUIET_LEVEL
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


class _WrappersWhenUsed(MetaPathFinder):
    """Keras's wrappers for scikit-learn are loaded when somebody uses them.

    They import all of it and SciPy's statistics: a quarter of the seconds that all takes.
    """

    def __enter__(self) -> None:
        sys.meta_path.insert(0, self)

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if not fullname.endswith("keras.wrappers"):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


if os.environ.setdefault("KERAS_BACKEND", "tensorflow") != "tensorflow":
    raise UserError(
        f"KERAS_BACKEND is {os.environ['KERAS_BACKEND']!r}: syncswitch trains with tensorflow; "
        "unset the variable or set it so"
    )
_QUIET_LEVEL = "3"

with _quiet(), _WrappersWhenUsed():
    import keras  # (imports more of TensorFlow, and so more notes)
    import tensorflow

    # The look for GPUs has notes of its own.
    tensorflow.config.list_physical_devices()

tf = tensorflow


def concrete(body: Callable[..., Any], *arguments: Any) -> Any:
    """Traces a function for arguments like these."""
    return tf.function(body, autograph=False).get_concrete_function(*arguments)


def direct(function: Any) -> Callable[..., Sequence[Any]]:
    """A traced function as one from tensors to tensors that does not check its arguments.

    TensorFlow's own call takes a tenth of a millisecond longer, for its checks in Python.

    Args:
        function: A concrete function whose arguments and results are tensors, none nested.
    """
    from tensorflow.python.eager import context

    eager, captured, outputs = context.context(), function.captured_inputs, len(function.outputs)
    return lambda *given: eager.call_function(function.name, [*given, *captured], outputs)


def for_threads(function: Any, threads: int) -> Callable[..., Any]:
    """The same traced function, for so many threads at once; more than these wait.

    Each has kernels of its own: some of oneDNN's keep what a call has told them, so that two calls
    of the same one mix their numbers up, or crash.
    """
    arguments = function.structured_input_signature[0]
    copies = SimpleQueue[Any]()
    copies.put(direct(function))
    for _ in range(threads - 1):
        copies.put(direct(concrete(lambda *given: function(*given), *arguments)))

    def call(*given: Any) -> Any:
        copy = copies.get()
        try:
            return copy(*given)
        finally:
            copies.put(copy)

    return call


def added(library: Any, outputs: int) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Adds functions that another process has traced, which costs far less than to trace them.

    Args:
        library: The function, and then those that it calls.
        outputs: Number of its outputs.

    Returns:
        The first of them, from its input tensors to its outputs.
    """
    from tensorflow.python.eager import context

    eager = context.context()
    for function in library.function:
        eager.add_function_def(function)
    name = library.function[0].signature.name.encode()
    return lambda inputs: eager.call_function(name, inputs, outputs)


def encoded_spec(spec: Any) -> bytes:
    """Types and shapes, nested as they may be, as TensorFlow's StructuredValue."""
    from tensorflow.python.saved_model import nested_structure_coder

    content: bytes = nested_structure_coder.encode_structure(spec).SerializeToString()
    return content


def decoded_spec(content: bytes) -> Any:
    """The types and shapes that `encoded_spec` encoded."""
    from tensorflow.core.protobuf import struct_pb2
    from tensorflow.python.saved_model import nested_structure_coder

    return nested_structure_coder.decode_proto(struct_pb2.StructuredValue.FromString(content))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds Python, NumPy, Keras and TensorFlow, for whoever builds a model within.

    TensorFlow forgets all its kernels then, as some may be in the middle of their random numbers;
    to make those of a traced step anew takes longer than a hundred steps of a small model. Here it
    does so only once somebody draws such numbers, as no initializer of Keras does.
    """
    from tensorflow.python.eager import context
    from tensorflow.python.framework import random_seed

    eager, get_seed = context.context(), random_seed.get_seed

    def set_alone(seed: int) -> None:
        eager._seed, eager._rng = seed, random.Random(seed)

    def forget_first(*arguments: Any) -> Any:
        random_seed.get_seed = get_seed
        tf.random.set_seed(seed)
        return get_seed(*arguments)

    eager._set_global_seed = set_alone
    try:
        keras.utils.set_random_seed(seed)
    finally:
        del eager._set_global_seed
    random_seed.get_seed = forget_first
    try:
        yield
    finally:
        random_seed.get_seed = get_seed


@contextmanager
def quiet_log() -> Iterator[None]:
    """Silences TensorFlow's own log, for what is tried and may fail."""
    log = tf.get_logger()
    level = log.level
    log.setLevel("CRITICAL")
    try:
        yield
    finally:
        log.setLevel(level)


def prepare_for_threads(workers: int) -> None:
    """Prepares this process for workers that are threads, which compute on CPUs.

    Does nothing once TensorFlow has fixed its devices, which its first operation does.
    """
    from tensorflow.python.eager import context

    if not context.context()._initialized:
        # Otherwise it would take all memory of all of them.
        tf.config.set_visible_devices([], "GPU")
        # Together they have as many threads as there are cores.
        threads = max(1, (os.cpu_count() or 1) // workers)
        tf.config.threading.set_intra_op_parallelism_threads(threads)
