"""TensorFlow without its start-up messages, and the only imports of its internals."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from syncswitch.storage.errors import UserError
from syncswitch.trainers.job.loading import need_tensorflow


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences TensorFlow's libraries while they are loaded.

    They write to file descriptor 2 whatever the settings. If TF_CPP_MIN_LOG_LEVEL is set, they may.
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


if os.environ.setdefault("KERAS_BACKEND", "tensorflow") != "tensorflow":
    raise UserError(
        f"KERAS_BACKEND is {os.environ['KERAS_BACKEND']!r}: syncswitch trains with tensorflow; "
        "unset the variable or set it so",
        code="cluster-unusable",
    )
_QUIET_LEVEL = "3"

need_tensorflow()
with _quiet():
    import keras  # (imports more of TensorFlow, and so has more messages)
    import tensorflow

    # Looking for GPUs has messages of its own.
    tensorflow.config.list_physical_devices()

tf = tensorflow


def concrete(body: Callable[..., Any], *arguments: Any) -> Any:
    """Traces a function for arguments of these shapes and types."""
    return tf.function(body, autograph=False).get_concrete_function(*arguments)


def direct(function: Any) -> Callable[..., Sequence[Any]]:
    """Makes a function from tensors to tensors, none nested, of a traced one.

    TensorFlow's own call takes a tenth of a millisecond longer, for its checks in Python.
    """
    from tensorflow.python.eager import context

    eager, captured, outputs = context.context(), function.captured_inputs, len(function.outputs)
    return lambda *given: eager.call_function(function.name, [*given, *captured], outputs)


def for_threads(function: Any, threads: int) -> Callable[..., Any]:
    """Makes a traced function that this number of threads may call at once; others wait.

    Each call has kernels of its own: some of oneDNN's keep values of a call, so that two calls of
    the same kernel mix up their numbers, or crash.
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
    """Adds a library: a function that another process has traced, and those that it calls."""
    from tensorflow.python.eager import context

    eager = context.context()
    for function in library.function:
        eager.add_function_def(function)
    name = library.function[0].signature.name.encode()
    return lambda inputs: eager.call_function(name, inputs, outputs)


def encoded_spec(spec: Any) -> bytes:
    """Encodes types and shapes, which may be nested, as TensorFlow's StructuredValue."""
    from tensorflow.python.saved_model import nested_structure_coder

    content: bytes = nested_structure_coder.encode_structure(spec).SerializeToString()
    return content


def decoded_spec(content: bytes) -> Any:
    """Decodes what `encoded_spec` has encoded."""
    from tensorflow.core.protobuf import struct_pb2
    from tensorflow.python.saved_model import nested_structure_coder

    return nested_structure_coder.decode_proto(struct_pb2.StructuredValue.FromString(content))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds Python, NumPy, Keras and TensorFlow while a model is built.

    TensorFlow drops all its kernels then, as some may be in the middle of their random numbers.
    Making those of a traced step anew takes longer than a hundred steps of a small model, so here
    they are dropped only if such numbers are drawn, which no initializer of Keras does.
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
    """Silences TensorFlow's own log during an attempt that may fail."""
    log = tf.get_logger()
    level = log.level
    log.setLevel("CRITICAL")
    try:
        yield
    finally:
        log.setLevel(level)


def prepare_for_threads(workers: int) -> None:
    """Prepares this process for workers that are threads and compute on CPUs.

    Does nothing after TensorFlow's first operation, which fixes its devices.
    """
    from tensorflow.python.eager import context

    if not context.context()._initialized:
        # TensorFlow would take all memory of all GPUs.
        tf.config.set_visible_devices([], "GPU")
        # All workers together have as many threads as there are cores.
        threads = max(1, (os.cpu_count() or 1) // workers)
        tf.config.threading.set_intra_op_parallelism_threads(threads)
