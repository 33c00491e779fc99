"""How far a worker raises its learning rate after the switch."""

from __future__ import annotations

import math

import numpy as np

from syncswitch.trainers.model.layout import Vector

OVERSHOOT = 0.02
"""The cosine of a gradient with the last movement from which on a rate is lowered.

A gradient that points along the movement says that it went too far. On the open half of
`benchmarks.panel` it is -0.1 to 0.01 where a higher rate helps, and 0.03 to 0.1 where it hurts.
"""

RISE, FALL = 1.03, 1.1
"""The factors of one step upwards and downwards: a rate falls faster than it rises."""

_MEMORY = 10  # gradients that the mean cosine covers
_MOST_VALUES = 1 << 18


class Descent:
    """Whether all workers together move downhill, as the gradients of one of them tell.

    A gradient is compared with what has moved the shared parameters since the worker's last one.
    Of long vectors it looks at 262,144 values, evenly spread.
    """

    def __init__(self) -> None:
        self.seen = 0
        self._cosine = 0.0
        self._before: Vector | None = None

    @property
    def is_downhill(self) -> bool:
        """By the mean over the last gradients; what is not finite counts as too far."""
        return self._cosine < OVERSHOOT

    def see(self, parameters: Vector, gradient: Vector) -> None:
        """Compares a gradient [P] at these parameters [P] with their movement."""
        if not len(parameters):  # all may be trained by rows
            return
        spread = slice(None, None, -(-len(parameters) // _MOST_VALUES) or 1)
        now, gradient = parameters[spread], gradient[spread]
        if self._before is None:
            self._before = now.copy()
            return
        with np.errstate(over="ignore", invalid="ignore"):
            moved = now - self._before
            lengths = math.sqrt(float(np.dot(moved, moved)) * float(np.dot(gradient, gradient)))
            cosine = float(np.dot(moved, gradient)) / lengths if lengths else 0.0
        self._before[:] = now
        self.seen += 1
        self._cosine += (cosine - self._cosine) / min(self.seen, _MEMORY)


class Steering:
    """Raises a rate as long as the shared parameters move downhill.

    An adaptive optimizer that sees the gradients of single batches keeps the pace of one that
    saw the mean of n if its rate falls by the root of n, not by n (Malladi et al., "On the SDEs
    and Scaling Rules for Adaptive Gradient Algorithms", arXiv 2205.10287). Stale gradients may
    not allow that much. So a worker begins with its usual rate and raises it up to `most`
    times, while its new gradient says that what all workers have moved since its last one went
    downhill, and lowers it where they went too far (the sign of the hypergradient of Baydin et
    al., "Online Learning Rate Adaptation with Hypergradient Descent", arXiv 1703.04782).
    """

    def __init__(self, most: float) -> None:
        self._most = most
        self._factor = 1.0
        self._descent = Descent()

    def factor(self, parameters: Vector, gradient: Vector) -> float:
        """Returns the factor on the rate for a gradient [P] at these parameters [P]."""
        if self._most <= 1:
            return 1.0
        self._descent.see(parameters, gradient)
        if self._descent.seen:
            turn = RISE if self._descent.is_downhill else 1 / FALL
            self._factor = min(self._most, max(1.0, self._factor * turn))
        return self._factor
