"""Which runs each figure takes, and beside what it shows them."""

from __future__ import annotations

from dataclasses import replace

from syncswitch.searcher.papers.tables import curves, momentum, short_conditions
from tests.searcher.papers.test_comparison import run


def test_another_momentum_is_shown_beside_the_job_as_it_is() -> None:
    usual = [run(100, 0.90, 100), run(25, 0.91, 50), run(0, 0.80, 20)]
    zero = replace(run(25, 0.88, 50), variant="momentum_after_switch=zero")
    others = [
        replace(run(25, 0.95, 50), variant="batch_size=4"),
        run(25, 0.91, 50, under="elastic"),
        run(100, 0.90, 100, workers=16),
    ]
    rows = momentum([*usual, zero, *others])
    assert [(row["run"], row["variant"], row["accuracy"]) for row in rows] == [
        ("BSP", "", 0.90),
        ("BSP 25 %, ASP", "", 0.91),
        ("BSP 25 %, ASP", "momentum_after_switch=zero", 0.88),
    ]
    assert momentum([*usual, *others]) == []


def test_curves_go_from_bsp_to_asp() -> None:
    first_asp = run(25, 0.9, 80, protocols=("asp", "bsp"))
    rows = curves([run(0, 0.8, 20), first_asp, run(50, 0.9, 60), run(100, 0.9, 100)])
    assert list(dict.fromkeys(row["run"] for row in rows)) == [
        "BSP",
        "ASP 25 %, BSP",
        "BSP 50 %, ASP",
        "ASP",
    ]


def test_the_stragglers_of_a_scenario_are_one_word() -> None:
    stragglers = "straggler:worker=6,delay=0.03 straggler:worker=7,delay=0.03"
    assert short_conditions(f"elastic, {stragglers}") == "elastic, stragglers"
    assert short_conditions("restart") == "restart"
