"""How many examples a property is tried on: a number of times what the profile says."""

from __future__ import annotations

from typing import Any

from hypothesis import settings


def more_examples(times: int, **others: Any) -> settings:
    """For properties whose examples cost little, or that few examples would not cover.

    Args:
        times: How often the profile's number of examples.
        **others: Further settings.
    """
    return settings(max_examples=times * settings().max_examples, **others)
