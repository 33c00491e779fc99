"""New guesses against a density whose moments are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import qmc

from syncswitch.searcher.strategies.adaptive.belief import effective_size, renewed
from syncswitch.searcher.strategies.adaptive.guesses import Floats

MEANS = np.array([0.3, 0.7])
DEVIATIONS = np.array([0.004, 0.02])


def log_density(cube: Floats) -> Floats:
    """Two sharp normal distributions; the other numbers stay uniform."""
    z = (cube[:, :2] - MEANS) / DEVIATIONS
    density: Floats = -0.5 * (z * z).sum(axis=1)
    return density


def test_they_are_as_likely_as_the_evidence_says() -> None:
    first = qmc.Sobol(5, seed=1).random(4096)
    log_weights = log_density(first)
    weights = np.exp(log_weights - log_weights.max())
    assert effective_size(weights / weights.sum()) < 5
    found = renewed(first, log_density, log_weights)
    assert ((found >= 0) & (found <= 1)).all()
    assert len(np.unique(found, axis=0)) > 0.95 * len(found)
    assert found[:, :2].mean(axis=0) == pytest.approx(MEANS, abs=0.003)
    assert found[:, :2].std(axis=0) == pytest.approx(DEVIATIONS, rel=0.2)
    assert found[:, 2:].mean(axis=0) == pytest.approx(0.5, abs=0.07)
    assert found[:, 2:].std(axis=0) == pytest.approx(12**-0.5, abs=0.05)
    np.testing.assert_array_equal(renewed(first, log_density, log_weights), found)


def test_of_equal_weights_all_count() -> None:
    assert effective_size(np.full(8, 1 / 8)) == pytest.approx(8)
    assert effective_size(np.array([1.0, 0.0])) == 1
