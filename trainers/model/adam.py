"""Adam and AdamW on flat vectors, piece by piece; without TensorFlow."""

from __future__ import annotations

from itertools import accumulate

import msgspec
import numpy as np
import numpy.typing as npt

from syncswitch.trainers.model.layout import Vector, squared_length
from syncswitch.trainers.model.updates import each_piece


def step_size(beta_1: float, beta_2: float, update: int, rate: float) -> np.float32:
    """Returns the step size of an update, from 1 on, computed in float32 as in Keras."""
    step, one = np.float32(update), np.float32(1)
    first, second = (one - np.float32(beta) ** step for beta in (beta_1, beta_2))
    return np.float32(np.float32(rate) * np.sqrt(second) / first)


class AdamForm(msgspec.Struct, frozen=True):
    """Keras' Adam or AdamW for the variables of one model.

    Attributes:
        sizes: How many values each variable has. In the slots its first moments stand before its
            second moments, variable by variable.
        decays: The weight decay of each variable.
        beta_1: Decay of the first moments.
        beta_2: Decay of the second moments.
        epsilon: Added to the root of the second moments.
        clipped_by: `clipnorm`, `global_clipnorm` or `clipvalue`; empty without clipping.
        limit: What it clips to.
    """

    sizes: tuple[int, ...]
    decays: tuple[float, ...]
    beta_1: float
    beta_2: float
    epsilon: float
    clipped_by: str = ""
    limit: float = 0.0

    def turn(
        self,
        parameters: Vector,
        gradient: Vector,
        ahead: Vector,
        slots: Vector,
        updates: int,
        rate: float,
    ) -> None:
        """Turns a gradient into the change of one update, as an `AheadUpdate`."""
        self._clip(gradient)
        betas = self.beta_1, self.beta_2
        step_sizes = step_size(*betas, updates + 1, rate), step_size(*betas, updates + 2, rate)
        for start, size, decay in zip(self._starts, self.sizes, self.decays, strict=True):
            own = slice(start, start + size)
            moments = slots[2 * start : 2 * (start + size)].reshape(2, size)
            self._turn_variable(
                parameters[own], gradient[own], ahead[own], moments, step_sizes, decay * rate
            )

    def _turn_variable(
        self,
        parameters: Vector,
        gradient: Vector,
        ahead: Vector,
        moments: npt.NDArray[np.float32],
        step_sizes: tuple[np.float32, np.float32],
        decay: float,
    ) -> None:
        first, second = np.float32(1 - self.beta_1), np.float32(1 - self.beta_2)
        shrink, epsilon = np.float32(np.sqrt(self.beta_2)), np.float32(self.epsilon)
        alpha, next_alpha = step_sizes[0], step_sizes[1] * np.float32(self.beta_1)

        def turn(piece: slice) -> None:
            change, further = gradient[piece], ahead[piece]
            mean, square = moments[:, piece]
            # Values that diverge become infinite, which the loss reveals.
            with np.errstate(over="ignore", invalid="ignore"):
                mean += (change - mean) * first
                square += (change * change - square) * second
                root = np.sqrt(square)
                np.divide(mean * -next_alpha, root * shrink + epsilon, out=further)
                root += epsilon
                np.divide(mean * -alpha, root, out=change)
                if decay:
                    lost = parameters[piece] * np.float32(decay)
                    change -= lost
                    further -= lost

        each_piece(len(parameters), turn)

    @property
    def _starts(self) -> list[int]:
        return list(accumulate(self.sizes, initial=0))[:-1]

    def _clip(self, gradient: Vector) -> None:
        if self.clipped_by == "clipvalue":
            np.clip(gradient, -self.limit, self.limit, out=gradient)
        elif self.clipped_by == "global_clipnorm":
            self._shorten(gradient)
        elif self.clipped_by == "clipnorm":
            for start, size in zip(self._starts, self.sizes, strict=True):
                self._shorten(gradient[start : start + size])

    def _shorten(self, vector: Vector) -> None:
        length = float(np.sqrt(squared_length(vector)))
        if length > self.limit or length != length:
            vector *= np.float32(self.limit / length)
