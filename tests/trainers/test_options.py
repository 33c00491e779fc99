"""What a trainer's option takes from Python, and the conditions of a job."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import RunConditions
from syncswitch.trainers.conditions import ConditionsChoice
from syncswitch.trainers.options import TrainerOption

COUNT = TrainerOption("--how-many", "So many.", int, least=1, most=1000)
SHARE = TrainerOption("--share", "A part.", float)
KIND = TrainerOption("--kind", "Which.", choices=("a", "b"))
OPEN = TrainerOption("--open", "Whether.", bool)
FOLDER = TrainerOption("--folder", "Where.", Path, name="place")


@pytest.mark.parametrize(
    ("option", "value", "taken"),
    [
        (COUNT, None, None),
        (COUNT, 1000, 1000),
        (COUNT, "3", 3),
        (SHARE, 1, 1.0),
        (SHARE, "0.5", 0.5),
        (KIND, "b", "b"),
        (OPEN, True, True),
        (FOLDER, "runs", Path("runs")),
        (FOLDER, Path("runs"), Path("runs")),
    ],
)
def test_takes(option: TrainerOption, value: Any, taken: Any) -> None:
    found = option.checked(value)
    assert found == taken
    assert type(found) is type(taken)


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        (COUNT, 0, "--how-many is 0: give 1 or more"),
        (COUNT, 1001, "--how-many is 1001: give 1000 or less"),
        (COUNT, 1.5, "--how-many is 1.5: give a whole number"),
        (COUNT, True, "--how-many is True: give a whole number"),
        (COUNT, "many", "--how-many is 'many': give a whole number"),
        (COUNT, math.inf, "--how-many is inf: give a whole number"),
        (SHARE, math.nan, "--share is nan: give a number"),
        (SHARE, [], "--share is []: give a number"),
        (KIND, "c", "--kind is 'c': give one of a, b"),
        (OPEN, "yes", "--open is 'yes': give True or False"),
        (FOLDER, 5, "--folder is 5: give a text"),
    ],
)
def test_refuses(option: TrainerOption, value: Any, why: str) -> None:
    with pytest.raises(UserError) as error:
        option.checked(value)
    assert str(error.value) == why


def test_a_parameter_is_called_as_its_flag_unless_it_has_a_name() -> None:
    assert (COUNT.parameter, FOLDER.parameter) == ("how_many", "place")


NOTHING = ConditionsChoice("none", "hot")


def test_what_is_recorded_is_canonical() -> None:
    chosen = ConditionsChoice("greedy", "restart", ("mild", "kill:worker=01, at=5.0%"))
    assert chosen.conditions(4, 20.0, "bsp", "processes") == RunConditions(
        "greedy",
        "restart",
        ("straggler:worker=3,at=5%,for=10%,delay=10ms", "kill:worker=1,at=5%"),
    )


@pytest.mark.parametrize("first_protocol", ["bsp", "asp", "ds-sync:2"])
def test_the_default_fits_every_job(first_protocol: str) -> None:
    assert NOTHING.conditions(1, 0.0, first_protocol, "in-process") == RunConditions()


@pytest.mark.parametrize(
    ("chosen", "first_protocol", "words"),
    [
        (ConditionsChoice("greedy", "hot"), "asp", "--online greedy acts while workers wait"),
        (ConditionsChoice("elastic", "hot"), "ds-sync:2", "and ds-sync:2 before the switch has"),
        (ConditionsChoice("none", "hot", ("hang:worker=1,at=1%",)), "bsp", "no process to hang"),
        (ConditionsChoice("none", "hot", ("hang:worker=4,at=1%",)), "bsp", "numbered from 0 to 3"),
    ],
)
def test_what_does_not_fit_is_refused(
    chosen: ConditionsChoice, first_protocol: str, words: str
) -> None:
    with pytest.raises(UserError) as caught:
        chosen.conditions(4, 20.0, first_protocol, "in-process")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("chosen", "option"),
    [
        (ConditionsChoice("greedy", "hot"), "--online greedy"),
        (ConditionsChoice("none", "restart"), "--switch restart"),
        (ConditionsChoice("none", "hot", ("mild",)), "--inject"),
    ],
)
def test_nothing_may_be_chosen_for_recorded_runs(chosen: ConditionsChoice, option: str) -> None:
    NOTHING.check_nothing_chosen("why")
    with pytest.raises(UserError, match=f"^{option} cannot be used: why; leave it out$"):
        chosen.check_nothing_chosen("why")
