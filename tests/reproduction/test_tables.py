"""The runs that each figure takes and compares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from reproduction.tables import (
    batch,
    curves,
    momentum,
    order,
    protocols,
    short_conditions,
    stragglers,
    summary,
    timing,
)
from tests.reproduction.test_comparison import run

ASP_FIRST = ("asp", "bsp")


@pytest.mark.parametrize(
    ("table", "variant", "other"),
    [
        (momentum, "momentum_after_switch=zero", "batch_after_switch=global"),
        (batch, "batch_after_switch=global", "momentum_after_switch=zero"),
    ],
    ids=["momentum", "batch"],
)
def test_another_momentum_or_batch_is_shown_beside_the_job_as_it_is(
    table: Callable[..., list[dict[str, Any]]], variant: str, other: str
) -> None:
    usual = [run(100, 0.90, 100), run(25, 0.91, 50), run(0, 0.80, 20)]
    varied = replace(run(25, 0.88, 50), variant=variant)
    others = [
        replace(run(25, 0.95, 50), variant="batch_size=4"),
        replace(run(25, 0.93, 50), variant=other),
        run(25, 0.91, 50, under="elastic"),
        run(100, 0.90, 100, workers=16),
    ]
    rows = table([*usual, varied, *others])
    assert [(row["run"], row["variant"], row["accuracy"]) for row in rows] == [
        ("BSP", "", 0.90),
        ("BSP 25 %, ASP", "", 0.91),
        ("BSP 25 %, ASP", variant, 0.88),
    ]
    assert table([*usual, *others]) == []


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


def test_a_cluster_is_shown_where_it_has_what_the_figure_is_about() -> None:
    switched = [run(100, 0.9, 100), run(50, 0.9, 60)]
    backwards = [run(100, 0.9, 200, workers=4), run(50, 0.8, 90, workers=4, protocols=ASP_FIRST)]
    mixed = [
        replace(run(100, 0.9, 100, protocols=(name, "asp")), cluster="mixed")
        for name in ("bsp", "dssp:3-15", "ds-sync:2")
    ]
    no_target = [run(50, 0.9, 60, workers=2)]
    runs = [*switched, *backwards, *mixed, *no_target]
    shown = {
        name: {(row["workers"], row["cluster"]) for row in rows}
        for name, rows in {
            "summary": summary(runs),
            "timing": timing(runs),
            "curves": curves(runs),
            "order": order(runs),
            "dssp": protocols(runs, "dssp"),
            "gba": protocols(runs, "gba"),
        }.items()
    }
    usual, other = (8, ""), (4, "")
    assert shown == {
        "summary": {usual, other},
        "timing": {usual, other},
        "curves": {usual, other},
        "order": {other},
        "dssp": {(8, "mixed")},
        "gba": set(),
    }
    # Where nothing can be compared with BSP, there is no better choice.
    assert [row["workers"] for row in timing(no_target)] == [2]
    under = [*switched, run(50, 0.9, 70, under="straggler:worker=1"), *backwards]
    assert {row["workers"] for row in stragglers(under)} == {8}
