from __future__ import annotations

import pytest

from syncswitch.storage.errors import UserError
from syncswitch.trainers.job.phases import PhasePlan, parse_phases


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("bsp:10,asp:80,bsp:10", PhasePlan(("bsp", "asp"), 10.0, (90.0,))),
        ("ASP:50, ssp:3:50", PhasePlan(("asp", "ssp:3"), 50.0)),
        ("bsp:100", PhasePlan(("bsp", "asp"), 100.0)),
        (
            ",".join(["bsp:10,asp:10"] * 5),
            PhasePlan(("bsp", "asp"), 10.0, (20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0)),
        ),
    ],
)
def test_phases_as_they_are_written(text: str, plan: PhasePlan) -> None:
    assert parse_phases(text) == plan


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bsp",
        "bsp:ten,asp:90",
        "bsp:10,asp:80",
        "bsp:10,bsp:90",
        "bsp:10,asp:0,bsp:90",
        "bsp:10,asp:-10,bsp:100",
        "bsp:nan,asp:50",
        "bsp:10,asp:40,ssp:3:50",
    ],
)
def test_what_is_no_plan_of_phases_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"^--phases is .*: give phases of two protocols in turns"):
        parse_phases(text)


def test_an_unknown_protocol_is_named() -> None:
    with pytest.raises(UserError, match="no protocol 'bulk'; known: "):
        parse_phases("bulk:50,asp:50")
