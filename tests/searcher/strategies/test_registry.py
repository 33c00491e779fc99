"""Switch points as users say them."""

from __future__ import annotations

import pytest

from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.registry import make_strategy, switch_points_of
from syncswitch.storage.errors import UserError


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("halving", (25.0, 50.0)),
        ("fine", (25.0, 37.5, 50.0, 75.0)),
        ("60,40,20", (20.0, 40.0, 60.0)),
        ("100, 12.5", (12.5,)),
    ],
)
def test_what_is_meant(text: str, points: tuple[float, ...]) -> None:
    assert switch_points_of(text, 2) == points
    options = {"settings": 2, "runs": 5, "threshold": 0.01, "target_accuracy": None}
    strategy = make_strategy("adaptive", switch_points=text, **options)  # type: ignore[arg-type]
    assert strategy.grid() == (*points, 100.0)


@pytest.mark.parametrize("text", ["", "coarse", "0", "101", "nan", "100", "50,,25", "-5"])
def test_what_is_not(text: str) -> None:
    with pytest.raises(UserError, match=r"--grid is .*: give halving, fine, or 1 to 64 percents"):
        switch_points_of(text, 2)


def test_it_is_for_the_adaptive_strategy() -> None:
    options = {"settings": 2, "runs": 5, "threshold": 0.01, "target_accuracy": None}
    with pytest.raises(UserError, match="--grid is not for --strategy paper"):
        make_strategy("paper", switch_points="fine", **options)  # type: ignore[arg-type]


def test_where_only_some_can_be_run() -> None:
    strategy = AdaptiveStrategy(settings=2)
    assert strategy.grid() == (25.0, 50.0, 75.0, 100.0)
    assert strategy.among((25.0, 50.0, 75.0, 100.0)) == strategy
    assert strategy.among((25.0, 50.0, 100.0)).grid() == (25.0, 50.0, 100.0)
