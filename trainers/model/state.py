"""All that changes while a model is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from syncswitch.storage.errors import UserError
from syncswitch.storage.records import TrialSpec
from syncswitch.trainers.keras_parts import build_model
from syncswitch.trainers.model.checkpoint import Checkpoint, read_checkpoint
from syncswitch.trainers.model.function import ModelFunction, moving_variables
from syncswitch.trainers.model.layout import FlatLayout, Vector, assign
from syncswitch.trainers.model.optimizer import Optimizer
from syncswitch.trainers.schedule import switch_worker_step
from syncswitch.trainers.trial_check import check_position
from syncswitch.trainers.workload import Workload

__all__ = ["ModelState", "StateForm", "restored_model"]


@dataclass(frozen=True)
class ModelState:
    """The state of a training, as flat vectors.

    Attributes:
        parameters: Trained variables.
        slots: The optimizer's variables.
        statistics: Variables that are not trained: moving means and variances.
        updates: Updates applied.
    """

    parameters: Vector
    slots: Vector
    statistics: Vector
    updates: int = 0


class StateForm:
    """How the state of one workload is made, and what it is called in a checkpoint.

    Args:
        workload: What is trained.
        function: Its model.
        optimizer: Its optimizer.
    """

    def __init__(self, workload: Workload, function: ModelFunction, optimizer: Optimizer) -> None:
        self._workload = workload
        self._optimizer = optimizer
        self.parameters = function.parameters
        self.statistics = function.statistics
        self.slots = optimizer.layout

    def initial(self, seed: int) -> ModelState:
        """Fresh values, as the workload's model function makes them under `seed`."""
        import keras

        keras.utils.set_random_seed(seed)
        model = build_model(self._workload)
        return ModelState(
            self.parameters.pack(model.trainable_variables),
            self._optimizer.initial_slots(),
            self.statistics.pack(moving_variables(model)),
        )

    def to_checkpoint(
        self, state: ModelState, spec: TrialSpec, worker_step: int, elapsed_seconds: float
    ) -> Checkpoint:
        """A checkpoint of `spec` after so many worker-steps."""
        return Checkpoint(
            model=spec.identity.model or "",
            seed=spec.seed,
            worker_step=worker_step,
            first_protocol_worker_steps=min(worker_step, switch_worker_step(spec)),
            updates=state.updates,
            elapsed_seconds=elapsed_seconds,
            parameters=self.parameters.name(state.parameters),
            slots=self.slots.name(state.slots),
            statistics=self.statistics.name(state.statistics),
        )

    def load(self, spec: TrialSpec) -> tuple[ModelState, Checkpoint | None]:
        """The state with which a trial begins, and the checkpoint that it comes from.

        Raises:
            UserError: The checkpoint cannot be read, or is of another job.
        """
        if spec.fork_from is None:
            return self.initial(spec.seed), None
        checkpoint = read_checkpoint(spec.fork_from)
        check_position(spec, checkpoint.worker_step, checkpoint.first_protocol_worker_steps)
        try:
            if checkpoint.model != spec.identity.model:
                raise ValueError(f"structure {checkpoint.model[:12]}")
            state = ModelState(
                self.parameters.from_named(checkpoint.parameters),
                self.slots.from_named(checkpoint.slots),
                self.statistics.from_named(checkpoint.statistics),
                checkpoint.updates,
            )
        except (KeyError, ValueError) as error:
            raise UserError(
                f"checkpoint {spec.fork_from} is of another model or optimizer than workload "
                f"{self._workload.name!r} ({error}); give one of this workload"
            ) from error
        return state, checkpoint


def restored_model(
    workload: Workload, parameters: Mapping[str, Vector], statistics: Mapping[str, Vector]
) -> Any:
    """The workload's Keras model with values by logical name."""
    model = build_model(workload)
    for variables, named, what in (
        (model.trainable_variables, parameters, "parameter"),
        (moving_variables(model), statistics, "statistic"),
    ):
        layout = FlatLayout.of(variables, what)
        assign(variables, layout.split(layout.from_named(named)))
    return model
