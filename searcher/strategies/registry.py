"""Rules by the names that users and databases have for them."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from syncswitch.searcher.strategies.adaptive import AdaptiveRule
from syncswitch.searcher.strategies.base import Rule
from syncswitch.searcher.strategies.comparison import ComparisonRule
from syncswitch.searcher.strategies.grids import switch_points_of
from syncswitch.searcher.strategies.paper import PaperRule
from syncswitch.searcher.strategies.sequential import SequentialRule
from syncswitch.storage.errors import UserError

if TYPE_CHECKING:
    from syncswitch.storage.trials.store import SearchInfo

__all__ = ["DEFAULT_STRATEGY", "STRATEGIES", "make_rule", "stored_rule"]

STRATEGIES: dict[str, type[Rule]] = {
    "adaptive": AdaptiveRule,
    "sequential": SequentialRule,
    "paper": PaperRule,
}
DEFAULT_STRATEGY = "adaptive"

# No strategy to search with, and yet what a database may hold.
_RULES: dict[str, type[Rule]] = {**STRATEGIES, "comparison": ComparisonRule}

# Options of the command line whose names are not those of their fields.
_CALLED = {"switch_points": "grid"}


def make_rule(
    name: str,
    *,
    settings: int,
    runs: int,
    threshold: float,
    target_accuracy: float | None,
    **options: Any,
) -> Rule:
    """The rule of a strategy.

    Args:
        name: One of `STRATEGIES`, or `comparison`.
        settings: M.
        runs: R, the most runs of a setting.
        threshold: beta.
        target_accuracy: A; None to measure it.
        options: Further fields of the rule; None where nothing was asked for. `switch_points` may
            be as `switch_points_of` reads it.

    Raises:
        UserError: The strategy has no such option.
    """
    kind = _RULES[name]
    known = _names(kind)
    given = {option: value for option, value in options.items() if value is not None}
    for option in given:
        if option not in known:
            able = " or ".join(
                other for other, rule in STRATEGIES.items() if option in _names(rule)
            )
            instead = f", or give --strategy {able}" if able else ": no strategy has it"
            called = _CALLED.get(option, option.replace("_", "-"))
            raise UserError(f"--{called} is not for --strategy {name}; leave it out{instead}")
    points = given.get("switch_points")
    if isinstance(points, str):
        given["switch_points"] = switch_points_of(points, settings)
    return kind(settings, runs, threshold, target_accuracy, **given)


def stored_rule(search: SearchInfo) -> Rule:
    """The rule that a stored search is made with."""
    options = {option: _without_lists(value) for option, value in search.options.items()}
    name = search.strategy
    if name == "adaptive":
        options.setdefault("criterion", "mean")
    if name == PaperRule(two_sided=True).name:
        name, options = "paper", {**options, "two_sided": True}
    return make_rule(
        name,
        settings=search.settings,
        runs=search.runs,
        threshold=search.threshold,
        target_accuracy=search.target_accuracy,
        **options,
    )


def _without_lists(value: Any) -> Any:
    return tuple(map(_without_lists, value)) if isinstance(value, list) else value


def _names(rule: type[Rule]) -> set[str]:
    return {field.name for field in fields(rule)}
