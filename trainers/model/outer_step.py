"""The outer step of an average of replicas."""

from __future__ import annotations

import numpy as np

from syncswitch.trainers.model.layout import Vector

OUTER_RATE = 0.7
OUTER_MOMENTUM = 0.9

NO_OUTER: Vector = np.zeros(0, np.float32)
"""The outer state of replicas without outer steps."""


def begun(parameters: Vector) -> Vector:
    """Returns the outer state of replicas that begin: where they were last joined, and zeros."""
    return np.concatenate([parameters, np.zeros_like(parameters)])


def outer_step(outer: Vector, mean: Vector) -> None:
    """Replaces the mean of replicas, in place, by a step of Nesterov's SGD towards it.

    With d, what the replicas have moved away from where they were last joined:
    `velocity = 0.9 * velocity + d; joined -= 0.7 * (d + 0.9 * velocity)`.

    Source: Douillard et al., DiLoCo: Distributed Low-Communication Training of Language Models
    (arXiv 2311.08105), section 2, with the values of its experiments.

    Args:
        outer: The outer state, see `begun`; its velocity changes in place. Shape [2 P].
        mean: The mean of the replicas' parameters. Shape [P].
    """
    joined, velocity = np.split(outer, 2)
    momentum, rate = np.float32(OUTER_MOMENTUM), np.float32(OUTER_RATE)
    # Parameters that diverge become infinite, which the loss reveals.
    with np.errstate(over="ignore", invalid="ignore"):
        moved = joined - mean
        velocity *= momentum
        velocity += moved
        np.subtract(joined, rate * (moved + momentum * velocity), out=mean)


def rejoin(outer: Vector, parameters: Vector) -> None:
    """Notes where the replicas are joined now."""
    outer[: len(parameters)] = parameters
