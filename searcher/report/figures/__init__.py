"""The figures of a report: each a pure function of what was read.

They need the extra `report`. A figure for which nothing was measured raises a `UserError` that says
what is missing.
"""

from syncswitch.searcher.report.figures.accuracy import accuracy_by_switch
from syncswitch.searcher.report.figures.beliefs import beliefs
from syncswitch.searcher.report.figures.costs import payback, search_cost, training_time
from syncswitch.searcher.report.figures.curves import accuracy_over_time
from syncswitch.searcher.report.figures.measured import events, phases
from syncswitch.searcher.report.figures.search_path import search_path

__all__ = [
    "accuracy_by_switch",
    "accuracy_over_time",
    "beliefs",
    "events",
    "payback",
    "phases",
    "search_cost",
    "search_path",
    "training_time",
]
