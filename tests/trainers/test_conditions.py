"""The conditions of a job, as a user chooses them."""

from __future__ import annotations

import pytest

from syncswitch.storage.errors import ErrorCode
from syncswitch.storage.records.job import RunConditions
from syncswitch.trainers.conditions import ConditionsChoice
from tests.failing import fails
from tests.wording import Said

NOTHING = ConditionsChoice("none", "hot")


def test_what_is_recorded_is_canonical() -> None:
    chosen = ConditionsChoice("greedy", "restart", ("mild", "kill:worker=01, at=5.0%"))
    assert chosen.conditions(4, 20.0, "bsp", "processes") == RunConditions(
        "greedy", "restart", ("straggler:worker=3,at=5%,for=10%,delay=10ms", "kill:worker=1,at=5%")
    )


@pytest.mark.parametrize("first_protocol", ["bsp", "asp", "ds-sync:2"])
def test_the_default_fits_every_job(first_protocol: str) -> None:
    assert NOTHING.conditions(1, 0.0, first_protocol, "in-process") == RunConditions()


def test_what_does_not_fit_is_refused(said: Said) -> None:
    code: ErrorCode
    for code, chosen, first_protocol in (
        ("parameters-conflict", ConditionsChoice("greedy", "hot"), "asp"),
        ("parameters-conflict", ConditionsChoice("elastic", "hot"), "ds-sync:2"),
        ("parameter-invalid", ConditionsChoice("none", "hot", ("hang:worker=1,at=1%",)), "bsp"),
        ("parameter-invalid", ConditionsChoice("none", "hot", ("hang:worker=4,at=1%",)), "bsp"),
    ):
        said.refusal(code, chosen.conditions, 4, 20.0, first_protocol, "in-process")


@pytest.mark.parametrize(
    ("chosen", "option"),
    [
        (ConditionsChoice("greedy", "hot"), "online"),
        (ConditionsChoice("none", "restart"), "switch"),
        (ConditionsChoice("none", "hot", ("mild",)), "inject"),
    ],
)
def test_nothing_may_be_chosen_for_recorded_runs(chosen: ConditionsChoice, option: str) -> None:
    NOTHING.check_nothing_chosen("why")
    with fails("parameters-conflict", f"^{option} cannot be used: why; leave it out$"):
        chosen.check_nothing_chosen("why")
