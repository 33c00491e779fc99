"""`run` with several pairs of protocols: what it prints, and bad input."""

from __future__ import annotations

import json

import pytest
from command_line import Invoke, error_line

PAIRS = ["--protocols", "bsp,asp", "--protocols", "bsp,ssp:3"]
PAPER = ["--strategy", "paper", "--runs", "1", "--settings", "2"]


def test_one_policy_and_why_the_others_were_dropped(invoke: Invoke) -> None:
    done = invoke("run", "generated", *PAIRS, *PAPER)
    assert done.exit_code == 0, done.stderr
    assert "bsp,asp:\n" in done.stderr
    assert "bsp,ssp:3:\n" in done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["protocols", "switch", "at", "seconds", "runs", "paid", "seconds"]
    # The generated second protocols are equally fast; BSP alone is trained once.
    assert lines[2:4] == [
        ["bsp,asp", "25", "%", "55.0", "3", "225.0"],
        ["bsp,ssp:3", "-", "-", "2", "70.0"],
    ]
    assert (
        "bsp,ssp:3 was given up after 2 runs: it may keep the accuracy and take 55.0 s with a"
        " switch at 25 % at best, and bsp,asp 55.0 s with a switch at 25 %.\n"
        "All pairs together cost 3.0 BSP trainings.\n"
    ) in done.stdout
    policies = json.loads(invoke("policy", "list", "--json").stdout)
    assert [(one["second_protocol"], one["version"]) for one in policies] == [("asp", 1)]

    again = invoke("run", "generated", *PAIRS, *PAPER, "--json")
    found = json.loads(again.stdout)["pairs"]
    assert [one["protocols"] for one in found] == [["bsp", "asp"], ["bsp", "ssp:3"]]
    assert found[0]["dropped"] is None
    assert found[1]["dropped"].startswith("given up after 2 runs: ")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--protocols", "any", "--protocols", "bsp,asp"],
            "--protocols any already names several pairs; leave it out, or the others",
        ),
        (
            ["--protocols", "asp,bsp", "--protocols", "bsp,asp"],
            "--protocols begin with asp and bsp: pairs that are searched together must"
            " begin with the same protocol, which sets the target accuracy; search the others"
            " separately",
        ),
        (
            [*PAIRS, "--dry-run"],
            "--dry-run forecasts the search of one pair; give it with --protocols",
        ),
    ],
)
def test_what_cannot_be_searched_together(invoke: Invoke, options: list[str], message: str) -> None:
    assert error_line(invoke("run", "generated", *options)) == f"error: {message}"
