"""The fixtures of the trainers' tests: both programs train."""

from __future__ import annotations

from tests.trainers.conftest import cluster_of, make_trainer  # noqa: F401 (fixtures)
