"""DC-ASGD, to compare with: late gradients corrected for what changed since they were pulled."""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import override

from syncswitch.trainers.protocols import Exchange, ReplicaStep
from syncswitch.trainers.protocols.steps import Ticket
from syncswitch.trainers.simulated.executor import Gradient, TrainingExecutor
from syncswitch.trainers.simulated.trainer import SimulatedTrainer

_STRENGTH, _MEMORY, _LEAST = 2.0, 0.95, 1e-7


class CompensatedExecutor(TrainingExecutor):
    """Corrects each late push by a cheap guess of the Hessian (Zheng et al., arXiv 1609.08326).

    The variant that adapts: `g + lambda * g * g * (now - pulled)` with
    `lambda = 2 / sqrt(mean square of g)`, a moving mean with the memory 0.95, as in the paper's
    experiments. The optimizer then takes the result for the gradient.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._square = np.zeros_like(self.state.parameters)
        self._worker = 0

    @override
    def push(self, ticket: Ticket) -> ReplicaStep | None:
        self._worker = ticket.worker
        return super().push(ticket)

    @override
    def _apply(self, gradient: Gradient, rate: float, step: int) -> None:
        if self._exchange is Exchange.PUSH:
            gradient = self._compensated(gradient)
        super()._apply(gradient, rate, step)

    def _compensated(self, gradient: Gradient) -> Gradient:
        values = gradient.values
        with np.errstate(over="ignore", invalid="ignore"):
            squares = values * values
            self._square = _MEMORY * self._square + (1 - _MEMORY) * squares
            strength = _STRENGTH / np.sqrt(self._square + _LEAST)
            moved = self.state.parameters - self._pulled_parameters[self._worker]
            corrected = values + strength * squares * moved
        return Gradient(gradient.loss, corrected, gradient.contribution, gradient.rows)


class CompensatedTrainer(SimulatedTrainer):
    """The simulated cluster, with DC-ASGD where pushes are applied one by one."""

    _executor_kind = CompensatedExecutor
