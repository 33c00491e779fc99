"""What is said of the pairs of protocols of a search; pure."""

from __future__ import annotations

import math

from syncswitch.searcher.results.pairs import PairOutcome
from syncswitch.searcher.strategies.base import Decided
from syncswitch.searcher.strategies.pairs import LEAST_GAIN
from syncswitch.searcher.text.values import counted, percent_text, seconds_text


def why_dropped(pair: PairOutcome, best: PairOutcome) -> str:
    """Why a pair is not the answer, as a clause: `given up after 2 runs: with a switch at ...`."""
    assert isinstance(best.found, Decided)
    switch = percent_text(best.found.switch_percent)
    takes = f"{best.name} {seconds_text(best.seconds)} s with a switch at {switch}"
    mine = f"{seconds_text(pair.seconds)} s with a switch at"
    least = f"{100 * LEAST_GAIN:g} % faster"
    if isinstance(pair.found, Decided):
        if math.isinf(pair.seconds):
            return f"not known to be faster: none of its runs tells how long it takes, and {takes}"
        mine = f"{mine} {percent_text(pair.found.switch_percent)}"
        return f"not {least}: it takes {mine}, and {takes}"
    after = f"given up after {counted(pair.found.runs, 'run')}"
    mine = f"{mine} {percent_text(pair.found.percent)}"
    if pair.found.chance is None:
        return f"{after}: it may keep the accuracy and take {mine} at best, and {takes}"
    chance = f"{100 * pair.found.chance:.1f} %"
    return f"{after}: that it keeps the accuracy and is {least} has a chance of {chance}; {takes}"
