from __future__ import annotations

import pytest

from syncswitch.storage.records.guard import later_switch_points


@pytest.mark.parametrize(
    ("percent", "later"),
    [
        (0.0, (1.5625, 3.125, 6.25, 12.5, 25.0, 50.0)),
        (6.25, (12.5, 25.0, 50.0)),
        (37.5, (50.0,)),
        (50.0, ()),
        (75.0, ()),
        (100.0, ()),
    ],
)
def test_a_run_that_fails_switches_again_at_the_halvings_that_are_later(
    percent: float, later: tuple[float, ...]
) -> None:
    assert later_switch_points(percent) == later
