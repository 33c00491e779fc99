"""The workload's optimizer, for rows of embeddings."""

from __future__ import annotations

from typing import Any

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.keras_parts import build_optimizer
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.embeddings.rules import (
    AdagradRule,
    AdamRule,
    AnyRule,
    KerasMomentumRule,
    KerasSGDRule,
    MomentumRule,
)

# Each acts on more than the rows that a batch has used, or on a norm of all.
_OFF = {
    "weight_decay": None,
    "clipnorm": None,
    "clipvalue": None,
    "global_clipnorm": None,
    "use_ema": False,
    "loss_scale_factor": None,
    "gradient_accumulation_steps": None,
    "nesterov": False,
    "amsgrad": False,
}


def row_rule(workload: Workload) -> AnyRule:
    """How the workload's optimizer updates rows.

    Raises:
        WorkloadError: It cannot update them alone.
    """
    from keras import optimizers

    if workload.optimizer is None:
        return MomentumRule()
    built = build_optimizer(workload)
    config = built.get_config()
    on = [name for name, off in _OFF.items() if config.get(name, off) not in (off, None, 0.0)]
    if on:
        raise _refused(workload, f"{type(built).__name__} with {on[0]} {config[on[0]]}")
    if type(built) is optimizers.SGD:
        momentum = float(config["momentum"])
        return KerasMomentumRule(momentum) if momentum else KerasSGDRule()
    if type(built) is optimizers.Adagrad:
        return AdagradRule(float(config["epsilon"]), float(config["initial_accumulator_value"]))
    if type(built) is optimizers.Adam:
        return AdamRule(*(float(config[name]) for name in ("beta_1", "beta_2", "epsilon")))
    raise _refused(workload, type(built).__name__)


def _refused(workload: Workload, what: Any) -> WorkloadError:
    return WorkloadError(
        f"workload {workload.name!r}: the optimizer is {what}, and the model has an Embedding of"
        f" {workload.least_embedding_values:,} values or more, of which steps move single rows:"
        " take the built-in SGD, or Keras' SGD, Adagrad or Adam without nesterov, amsgrad, weight"
        " decay, clipping and averages; or set least_embedding_values to None, so that each step"
        " moves all"
    )
