"""The optimizer of a worker that has slots of its own after the switch."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from syncswitch.trainers.model.layout import Vector, squared_length
from syncswitch.trainers.model.steering import Descent, Steering
from syncswitch.trainers.model.updates import PIECE

NOISE_SHARE = 0.5
"""Share of a gradient's noise in the bound. With 1 some trainings diverge that do not with half."""

GROWTH = 0.01
"""How much the square of the bound grows with each step that it shortens.

Gradients may become longer for good, as on examples that are seldom alike; within a hundred steps
the bound has followed them. A training that diverges multiplies within a few.
"""

DOWNHILL_GROWTH = 1.0
"""The same while all workers together move downhill.

A training that begins on a plateau has short gradients at the switch, and long ones once it has
left it. One that diverges goes uphill.
"""

LEAST_SEEN = 3
"""Gradients that show whether it is downhill."""

AheadUpdate = Callable[[Vector, Vector, Vector, Vector, int, float], None]
"""`(parameters, gradient, ahead, slots, updates, rate)`: an update, and a look ahead.

It turns the gradient, in place, into what the update changes; `ahead` receives what one more update
with a gradient of zero would change. The slots change in place by the first of these; `updates` is
the number of updates before it.
"""


class OwnSlots:
    """Turns a worker's gradients into what is to be added to the shared parameters.

    With the built-in SGD (`update` is None) it keeps the momentum v of its own gradients g, and
    looks ahead by what that will have moved the parameters when the worker pulls again:
    `v = momentum * v + g; parameters -= rate * (momentum * v + g)`. This is DANA-Slim (Hakimi et
    al., "Taming Momentum in a Distributed Asynchronous Environment", arXiv 1907.11612), and with
    one worker Nesterov's SGD.

    Gradients that are too stale for the rate make the momentum grow without end. If `is_bounded`, a
    step is no longer than it would be if nothing were stale, see `_longest_square`,
    `GROWTH` and `DOWNHILL_GROWTH`.

    Any other optimizer has all its variables to itself. With U, the change of its update, and L,
    what one more update with a gradient of zero would change, it adds `U + L - L before`: the same
    look-ahead, without knowing the optimizer. With momentum SGD this is the change above, and with
    Adam that of Nadam. Its rate rises up to `most_raise` times, see `Steering`.
    """

    def __init__(
        self,
        slots: Vector,
        updates: int,
        update: AheadUpdate | None = None,
        *,
        is_bounded: bool = False,
        most_raise: float = 1.0,
    ) -> None:
        self.slots = slots
        self.updates = updates
        self._update = update
        self._is_bounded = is_bounded
        self._longest: float | None = None
        self._steering = Steering(most_raise)
        self._descent = Descent()
        # What is taken in advance: by the last change, and by the one that is being made.
        self._before: Vector | None = None
        self._ahead = slots[:0]

    def turn(self, parameters: Vector, gradient: Vector, rate: float, momentum: float) -> float:
        """Turns a gradient, in place, into a change; `parameters` are those that it is of.

        Returns the rate, which may have been raised.
        """
        # Values that diverge become infinite, which the loss reveals.
        with np.errstate(over="ignore", invalid="ignore"):
            if self._update is None:
                if self._is_bounded:
                    self._descent.see(parameters, gradient)
                self._look_ahead(gradient, rate, momentum)
            else:
                rate *= self._steering.factor(parameters, gradient)
                self._look_ahead_with(self._update, parameters, gradient, rate)
        self.updates += 1
        return rate

    def _look_ahead_with(
        self, update: AheadUpdate, parameters: Vector, gradient: Vector, rate: float
    ) -> None:
        if self._before is None:
            # The slots at the start look ahead as well: where they lead to is not new.
            self._before, self._ahead = np.zeros_like(gradient), np.zeros_like(gradient)
            slots = self.slots.copy()
            update(parameters, self._before, self._ahead, slots, self.updates, rate)
        update(parameters, gradient, self._ahead, self.slots, self.updates, rate)
        for start in range(0, len(gradient), PIECE):
            piece = slice(start, start + PIECE)
            gradient[piece] += self._ahead[piece]
            gradient[piece] -= self._before[piece]
        self._before, self._ahead = self._ahead, self._before

    def _look_ahead(self, gradient: Vector, rate: float, momentum: float) -> None:
        if self._is_bounded and self._longest is None:
            self._longest = _longest_square(self.slots, gradient, momentum)
        mu, eta = np.float32(momentum), np.float32(-rate)
        square = 0.0
        for start in range(0, len(gradient), PIECE):
            piece = slice(start, start + PIECE)
            change, accumulator = gradient[piece], self.slots[piece]
            accumulator *= mu
            accumulator += change
            change += mu * accumulator
            change *= eta
            if self._is_bounded:
                square += squared_length(change)
        if self._longest is None:
            return
        longest_square = rate**2 * self._longest
        if longest_square < square < math.inf:
            share = np.float32(math.sqrt(longest_square / square))
            gradient *= share
            self.slots *= share
            is_downhill = self._descent.seen >= LEAST_SEEN and self._descent.is_downhill
            self._longest *= 1 + (DOWNHILL_GROWTH if is_downhill else GROWTH)


def _longest_square(accumulator: Vector, gradient: Vector, momentum: float) -> float:
    """The squared length of the longest step, from the state at the switch.

    The momentum of rounds is what the workers' gradients have in common. It goes on, or grows to
    what the part of the first gradient in its direction comes to in the long run. To this the
    worker's own noise adds up, which is independent from step to step.
    """
    common = squared_length(accumulator)
    along = max(0.0, float(np.dot(gradient, accumulator)) / math.sqrt(common)) if common else 0.0
    noise = max(0.0, squared_length(gradient) - along**2) / (1 - momentum**2)
    return max(common, (along / (1 - momentum)) ** 2) + NOISE_SHARE * noise
