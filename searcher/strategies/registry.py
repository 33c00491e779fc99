"""Strategies by the names that users and databases have for them."""

from __future__ import annotations

import itertools
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy, halved_percents
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.baseline import allowed_loss
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.searcher.strategies.sweep import SweepStrategy
from syncswitch.storage.errors import OptionHint, UserError
from syncswitch.storage.records.goal import AllowedLoss
from syncswitch.storage.records.metric import USUAL_THRESHOLD

if TYPE_CHECKING:
    from syncswitch.storage.records.job import SearchInfo

STRATEGIES: dict[str, type[Strategy]] = {"adaptive": AdaptiveStrategy, "paper": PaperStrategy}
DEFAULT_STRATEGY = "adaptive"

# A sweep is no strategy to search with, but a database may hold one.
_BY_NAME: dict[str, type[Strategy]] = {**STRATEGIES, "sweep": SweepStrategy}

_MOST_POINTS = 64


def make_strategy(
    name: str,
    *,
    halvings: int,
    runs: int,
    threshold: float | None,
    target_accuracy: float | None,
    threshold_runs: int | None = None,
    **options: Any,
) -> Strategy:
    """Returns a strategy with its options; None stands for an option's default.

    `switch_points` may be a text for `switch_points_of`. Raises UserError if the strategy has no
    such option, or two contradict each other.
    """
    kind = _BY_NAME[name]
    names = _names(kind)
    given = {option: value for option, value in options.items() if value is not None}
    for option in given:
        if option not in names:
            able = " or ".join(
                other for other, strategy in STRATEGIES.items() if option in _names(strategy)
            )
            out = "leave it out" if able else "leave it out: no strategy has it"
            value = options[option] if isinstance(options[option], bool) else None
            raise UserError(
                f"is not for the strategy {name}",
                parameter=option,
                value=value,
                remedy=(out, OptionHint("strategy", able)) if able else out,
                code="parameters-conflict",
            )
    points = given.get("switch_points")
    if isinstance(points, str):
        given["switch_points"] = switch_points_of(points, halvings)
    allowed = allowed_loss(threshold, threshold_runs) or AllowedLoss(USUAL_THRESHOLD)
    return kind(halvings, runs, target_accuracy=target_accuracy, **given).with_allowed(allowed)


def switch_points_of(text: str, halvings: int) -> tuple[float, ...]:
    """Returns switch points in percent, ascending, without the first protocol alone.

    The text is `halving`; `fine`, which adds a switch point in the middle between each two of
    these; or percents with commas between. Raises UserError if it is none of these.
    """
    halved = halved_percents(halvings)
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
            f"give halving, fine, or 1 to {_MOST_POINTS} percentages above 0 and below 100, such as"
            " 75,50,40,30",
            parameter="switch_points",
            value=text,
        )
    return tuple(sorted(percents))


def stored_strategy(search: SearchInfo) -> Strategy:
    """Returns the strategy of a stored search, for the protocols that it looks at."""
    options = {option: _without_lists(value) for option, value in search.options.items()}
    if search.protocols.pair in search.pairs[1:]:
        options.pop("recorded", None)  # these are runs with the first pair
    strategy = _BY_NAME[search.strategy](
        search.halvings, search.runs, search.threshold, search.target_accuracy, **options
    )
    rule = search.protocols.momentum_after_switch
    return strategy.with_momentum(rule) if search.pairs else strategy


def _without_lists(value: Any) -> Any:
    return tuple(map(_without_lists, value)) if isinstance(value, list) else value


def _names(strategy: type[Strategy]) -> set[str]:
    return {field.name for field in fields(strategy)}
