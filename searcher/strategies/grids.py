"""Switch points to choose from, as users say them."""

from __future__ import annotations

import itertools

from syncswitch.storage.errors import UserError

_MOST_POINTS = 64


def halvings(settings: int) -> tuple[float, ...]:
    """100 % and its repeated halves, descending."""
    return tuple(100.0 / 2**halved for halved in range(settings + 1))


def switch_points_of(text: str, settings: int) -> tuple[float, ...]:
    """Switch points in percent, ascending, without the first protocol alone.

    Args:
        text: `halving`; `fine`, with a switch point in the middle between each two of these; or
            percents with commas between.
        settings: M, how often the range is halved.

    Raises:
        UserError: It is none of these.
    """
    halved = halvings(settings)
    if text == "halving":
        return tuple(sorted(halved[1:]))
    if text == "fine":
        middles = ((higher + lower) / 2 for higher, lower in itertools.pairwise(halved))
        return tuple(sorted({*halved[1:], *middles}))
    try:
        percents = {float(part) for part in text.split(",")}
    except ValueError:
        percents = {0.0}
    percents.discard(100.0)
    if not (0 < len(percents) <= _MOST_POINTS and all(0 < percent < 100 for percent in percents)):
        raise UserError(
            f"--grid is {text}: give halving, fine, or 1 to {_MOST_POINTS} percents above 0 and"
            " below 100, such as 75,50,40,30"
        )
    return tuple(sorted(percents))
