"""Adam and AdamW on flat vectors, piece by piece; without TensorFlow."""

from __future__ import annotations

from itertools import accumulate

import msgspec
import numpy as np

from syncswitch.trainers.model.layout import Vector, squared_length
from syncswitch.trainers.model.updates import each_piece


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
        first, second = np.float32(1 - self.beta_1), np.float32(1 - self.beta_2)
        alpha, next_alpha = (self._step_size(updates + more, rate) for more in (1, 2))
        next_alpha *= np.float32(self.beta_1)
        shrink, epsilon = np.float32(np.sqrt(self.beta_2)), np.float32(self.epsilon)

        for start, size, decay in zip(self._starts, self.sizes, self.decays, strict=True):
            own = slice(start, start + size)
            theta, change, after = parameters[own], gradient[own], ahead[own]
            mean, square = slots[2 * start : 2 * start + 2 * size].reshape(2, size)
            decayed = np.float32(decay * rate)

            def move(
                piece: slice,
                theta: Vector = theta,
                change: Vector = change,
                after: Vector = after,
                mean: Vector = mean,
                square: Vector = square,
                decayed: np.float32 = decayed,
            ) -> None:
                g, m, v, u, further = (one[piece] for one in (change, mean, square, change, after))
                m += (g - m) * first
                v += (g * g - v) * second
                root = np.sqrt(v)
                np.divide(m * -next_alpha, root * shrink + epsilon, out=further)
                root += epsilon
                np.divide(m * -alpha, root, out=u)
                if decayed:
                    lost = theta[piece] * decayed
                    u -= lost
                    further -= lost

            # Values that diverge become infinite, which the loss reveals.
            with np.errstate(over="ignore", invalid="ignore"):
                each_piece(size, move)

    @property
    def _starts(self) -> list[int]:
        return list(accumulate(self.sizes, initial=0))[:-1]

    def _step_size(self, update: int, rate: float) -> np.float32:
        step, one = np.float32(update), np.float32(1)
        first, second = (one - np.float32(beta) ** step for beta in (self.beta_1, self.beta_2))
        return np.float32(np.float32(rate) * np.sqrt(second) / first)

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
