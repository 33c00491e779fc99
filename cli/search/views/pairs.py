"""What a search over pairs of protocols says of each: a table, or JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from syncswitch.cli.console import echo, print_table, print_text
from syncswitch.searcher.search.pairs import PairOutcome, best_of, paid_trainings, why_dropped
from syncswitch.searcher.strategies.base import Decided
from syncswitch.searcher.words import NONE, percent_text, seconds_text


def pairs_as_json(pairs: Sequence[PairOutcome]) -> list[dict[str, Any]]:
    """A value for each pair; those that are not the answer say why."""
    best = best_of(pairs)
    return [
        {
            "protocols": [pair.identity.first_protocol, pair.identity.second_protocol],
            "study": pair.study,
            "switch_percent": _switch_percent(pair),
            "seconds": _seconds(pair),
            "trials": pair.runs,
            "paid_seconds": pair.paid_seconds,
            "dropped": None if best is None or pair is best else why_dropped(pair, best),
        }
        for pair in pairs
    ]


def print_pairs(pairs: Sequence[PairOutcome], baseline_seconds: float | None) -> None:
    """The table, why all but one were dropped, and what all of them cost."""
    best = best_of(pairs)
    assert best is not None  # a search that ended has one
    print_table(
        ["protocols", "switch at", "seconds", "runs", "paid seconds"],
        [
            [
                pair.name,
                NONE if (percent := _switch_percent(pair)) is None else percent_text(percent),
                seconds_text(_seconds(pair)),
                str(pair.runs),
                seconds_text(pair.paid_seconds),
            ]
            for pair in pairs
        ],
    )
    echo()
    for pair in pairs:
        if pair is not best:
            print_text(f"{pair.name} was {why_dropped(pair, best)}.")
    trainings = paid_trainings(pairs, baseline_seconds)
    if trainings is not None:
        first = best.identity.first_protocol.upper()
        print_text(f"All pairs together cost {trainings:.1f} {first} trainings.")
    echo()


def _switch_percent(pair: PairOutcome) -> float | None:
    return pair.found.switch_percent if isinstance(pair.found, Decided) else None


def _seconds(pair: PairOutcome) -> float | None:
    is_known = isinstance(pair.found, Decided) and math.isfinite(pair.seconds)
    return pair.seconds if is_known else None
