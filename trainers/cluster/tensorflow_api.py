"""The only place that imports TensorFlow's internals, and that quietens its start-up messages."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any

# Read when the library is loaded; a user who sets them keeps his own values.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import tensorflow as tf

__all__ = ["TRANSIENT_ERRORS", "executor_scope", "is_initialized", "new_executor", "tf"]

TRANSIENT_ERRORS: tuple[type[Exception], ...] = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)


def new_executor() -> Any:
    """A private eager executor for one thread.

    The default one is shared: an operation that fails on a dead worker would fail every thread.
    """
    from tensorflow.python.eager import executor

    return executor.new_executor(enable_async=False)


def executor_scope(executor: Any) -> AbstractContextManager[None]:
    """Runs what this thread executes on `executor`."""
    from tensorflow.python.eager import context

    scope: AbstractContextManager[None] = context.executor_scope(executor)
    return scope


def is_initialized() -> bool:
    """Whether TensorFlow has fixed its devices in this process."""
    from tensorflow.python.eager import context

    return bool(context.context()._initialized)
