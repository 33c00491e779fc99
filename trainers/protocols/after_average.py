"""What becomes of the optimizers of replicas when their parameters are averaged."""

from __future__ import annotations

import enum


class AfterAverage(enum.Enum):
    """What becomes of the workers' optimizers when their replicas are averaged."""

    KEPT = "kept"
    """Each worker goes on with its own momentum, or other variables of the optimizer."""
    AVERAGED = "averaged"
    """All get the mean of these."""
    ZEROED = "zeroed"
    """All begin anew, with zeros."""
    NESTEROV = "nesterov"
    """They are kept, and an outer step takes the place of the average; see `outer_step`."""
