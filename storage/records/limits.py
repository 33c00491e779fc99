"""What the columns of a policy file may hold, beyond the types of their values."""

from __future__ import annotations

from typing import NamedTuple

LARGEST_INTEGER = 2**31 - 1
"""The largest number that an integer column holds in every database."""

LARGEST_WORKER_STEP = 2**63 - 1


class Limits(NamedTuple):
    """The limits of a column; None for none.

    Attributes:
        least: Least number.
        most: Largest number.
        shortest: Least length of a text.
        longest: Largest length of a text.
        pattern: Regular expression of a text.
        form: The format of a text, as JSON Schema names it.
    """

    least: float | None = None
    most: float | None = None
    shortest: int | None = None
    longest: int | None = None
    pattern: str | None = None
    form: str | None = None


COUNT = Limits(1, LARGEST_INTEGER)
INDEX = Limits(0, LARGEST_INTEGER)
LENGTH = Limits(1, LARGEST_WORKER_STEP)
WORKER_STEP = Limits(0, LARGEST_WORKER_STEP)  # the model may be tested before it is trained
NOT_NEGATIVE = Limits(0)
PERCENT = Limits(0, 100)
SHARE = Limits(0, 1)
NAME = Limits(shortest=1)
CLUSTER = Limits(shortest=1, longest=64)
REASON = Limits(shortest=1, longest=255)
DIGEST = Limits(pattern="^[0-9a-f]{64}$")
MOMENT = Limits(form="date-time")
