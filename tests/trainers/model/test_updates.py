"""DiLoCo's outer step."""

from __future__ import annotations

import numpy as np
import pytest

from syncswitch.trainers.model.updates import first_outer_state, outer_step, rejoin


def test_it_goes_further_the_longer_replicas_move_alike() -> None:
    """They move by -1 from where they were joined, each time."""
    outer = first_outer_state(np.array([10.0, 0.0], np.float32))
    moves = []
    for _ in range(3):
        before = outer[:2].copy()
        parameters = before - 1
        outer_step(outer, parameters)
        rejoin(outer, parameters)
        moves.append(parameters - before)
    # The velocity is 1, 1.9 and 2.71; each step is 0.7 * (1 + 0.9 * velocity).
    assert np.array(moves) == pytest.approx(
        np.repeat([[-1.33], [-1.897], [-2.4073]], 2, axis=1), rel=1e-5
    )


def test_what_diverges_becomes_infinite_without_a_warning() -> None:
    outer = first_outer_state(np.full(1, 3e38, np.float32))
    mean = np.full(1, -3e38, np.float32)
    outer_step(outer, mean)
    assert not np.isfinite(mean[0])
