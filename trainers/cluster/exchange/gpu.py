"""The step of a worker that may have a GPU."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from syncswitch.storage.errors import UserError, one_line
from syncswitch.trainers.cluster.exchange.plans import WorkerPlan
from syncswitch.trainers.model.batches.feed import Feed
from syncswitch.trainers.model.steps import as_array
from syncswitch.trainers.model.tensorflow_api import tf

_LOG = logging.getLogger(__name__)


def step_of(plan: WorkerPlan, feed: Feed) -> Callable[..., Sequence[Any]]:
    """What a plan's worker calls for each step; on a GPU compiled, where that can be.

    Raises:
        UserError: There is no GPU.
    """
    step = plan.step.restored()
    if plan.compiled is None:
        return step
    if not tf.config.list_logical_devices("GPU"):
        raise UserError(
            "--gpus-per-worker: this worker sees no GPU; look at its driver and its"
            " CUDA_VISIBLE_DEVICES, install TensorFlow with CUDA (pip install"
            " tensorflow[and-cuda]), or use --gpus-per-worker 0"
        )
    return compiled_or(step, plan, feed)


def compiled_or(
    step: Callable[..., Sequence[Any]], plan: WorkerPlan, feed: Feed
) -> Callable[..., Any]:
    """The compiled step, if its results can be had; the plain one otherwise."""
    assert plan.compiled is not None
    model = np.zeros(plan.sizes.model, np.float32)
    try:
        compiled = plan.compiled.restored()
        found = compiled(model, *feed.rows(0, 0), np.zeros(2, np.int64))
        as_array(found[0])
    except Exception as error:  # XLA says in many ways that it cannot
        _LOG.warning("the step is not compiled: %s", one_line(error))
        return step
    return compiled
