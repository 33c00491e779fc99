"""A cluster on a virtual clock: real gradients, true staleness, the same protocols."""

from __future__ import annotations

DEFAULT_PROFILE = "uniform"
"""Name of the cluster that is simulated where none is chosen."""
