"""The only place that imports TensorFlow's internals, and that quietens its start-up messages."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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


if os.environ.setdefault("KERAS_BACKEND", "tensorflow") != "tensorflow":
    raise UserError(
        f"KERAS_BACKEND is {os.environ['KERAS_BACKEND']!r}: syncswitch trains with tensorflow; "
        "unset the variable or set it so"
    )
_QUIET_LEVEL = "3"
# Also a note: that results may differ in the last bit from another build's.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

with _quiet():
    # A server does without it; see `do_without_keras`.
    if sys.modules.get("keras", sys) is not None:
        import keras  # noqa: F401  (imports more of TensorFlow, and so more notes)
    import tensorflow

    # The look for GPUs has notes of its own.
    tensorflow.config.list_physical_devices()

tf = tensorflow

# A lost server shows as any of these, the last two in the moment in which it dies.
TRANSIENT_ERRORS: tuple[type[Exception], ...] = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.InternalError,
    tf.errors.UnknownError,
)


# Set by a chief whose servers may come back elsewhere.
_HAS_STREAMS = os.environ.get("TF_ENABLE_EAGER_CLIENT_STREAMING_ENQUEUE") != "False"


def constant_on(device: str, values: Sequence[float], dtype: Any) -> Any:
    """A constant on a device, which may be that of a server.

    To make it there holds the lock of Python's interpreter until it has been sent. Without streams
    that is when the server has it, so that one that hangs would stop every thread of the chief.
    """
    if _HAS_STREAMS:
        with tf.device(device):
            return tf.constant(values, dtype)
    local = tf.constant(values, dtype)
    with tf.device(device):
        return tf.identity(local)


def concrete(body: Callable[..., Any], *arguments: Any) -> Any:
    """Traces a function for arguments like these."""
    return tf.function(body, autograph=False).get_concrete_function(*arguments)


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


@contextmanager
def own_executor() -> Iterator[None]:
    """Gives this thread a private eager executor.

    The default one is shared: an operation that fails on a dead worker would fail every thread.
    """
    from tensorflow.python.eager import context, executor

    own = executor.new_executor(enable_async=False)
    try:
        with context.executor_scope(own):
            yield
    finally:
        # What it still waits for has failed before, and is known; unasked it would be printed.
        try:
            own.wait()
        except tf.errors.OpError:
            own.clear_error()


def reconnect(addresses: Mapping[str, Sequence[str]]) -> None:
    """Connects to a cluster again, of which some servers are new, here or elsewhere.

    What is on the others stays there. All have to answer.

    Args:
        addresses: By job, as they are now.
    """
    from tensorflow.python.eager import context

    current = context.context()
    server_def = current.get_server_def()
    for job in server_def.cluster.job:
        for task, address in enumerate(addresses[job.name]):
            job.tasks[task] = address
    current.update_server_def(server_def)


def is_initialized() -> bool:
    """Whether TensorFlow has fixed its devices in this process."""
    from tensorflow.python.eager import context

    return bool(context.context()._initialized)
