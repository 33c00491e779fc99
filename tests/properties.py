"""How properties are tried, on top of what the profile says."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

FIXTURES_STAY = settings(
    suppress_health_check=[*settings().suppress_health_check, HealthCheck.function_scoped_fixture]
)
"""For a test all of whose examples share its fixtures."""


def more_examples(times: int, base: settings | None = None) -> settings:
    """For properties whose examples cost little, or that few examples would not cover.

    Args:
        times: How often the profile's number of examples.
        base: Further switch points.
    """
    return settings(base, max_examples=times * settings().max_examples)
