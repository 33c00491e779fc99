"""The pairs that `--protocols` stands for."""

from __future__ import annotations

from syncswitch.cli.search.launch.run import chosen_pairs
from syncswitch.searcher.backends.replay import RecordedRuns
from syncswitch.searcher.backends.simulated import SimulatedCluster


def test_any_is_each_second_protocol_with_the_rate_of_the_workload() -> None:
    seconds = ["asp", "qsr:8:0.16:zeroed", "local-sgd:8:zeroed", "selsync:0.3"]
    seconds += ["ssp:3", "dssp:3-15", "gba:3"]
    found = chosen_pairs(SimulatedCluster(), ["any"], "breast-cancer", 8)
    assert found == tuple(("bsp", second) for second in seconds)
    # Nobody knows the rates of recorded runs.
    seconds.remove("qsr:8:0.16:zeroed")
    found = chosen_pairs(RecordedRuns("recorded.db"), ["any"], "breast-cancer", 8)
    assert found == tuple(("bsp", second) for second in seconds)
