"""What a trainer's option takes from Python, and what its options make of its name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from syncswitch.searcher.backends.base import TrainerChoice, TrainerOption
from syncswitch.searcher.backends.local import LocalTrainer
from syncswitch.searcher.backends.ray import RayCluster
from syncswitch.storage.errors import UserError

COUNT = TrainerOption("--how-many", "So many.", int, least=1, most=1000)
SHARE = TrainerOption("--share", "A part.", float)
KIND = TrainerOption("--kind", "Which.", choices=("a", "b"))
OPEN = TrainerOption("--open", "Whether.", bool)
FOLDER = TrainerOption("--folder", "Where.", Path)

RAY = RayCluster(cpus_per_worker=4, gpus_per_worker=0.5, parameter_servers=2)
LOCAL = LocalTrainer(launcher="processes", gpus_per_worker=0.5, parameter_servers=2)


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
        (COUNT, 0, "--how-many is 0: Input should be greater than or equal to 1"),
        (COUNT, 1001, "--how-many is 1001: Input should be less than or equal to 1000"),
        (COUNT, 1.5, "--how-many is 1.5: Input should be a valid integer"),
        (COUNT, "many", "--how-many is 'many': Input should be a valid integer"),
        (COUNT, math.inf, "--how-many is inf: Input should be a finite number"),
        (SHARE, math.nan, "--share is nan: Input should be a finite number"),
        (SHARE, [], "--share is []: Input should be a valid number"),
        (KIND, "c", "--kind is 'c': Input should be 'a' or 'b'"),
        (OPEN, 5, "--open is 5: Input should be a valid boolean"),
        (FOLDER, 5, "--folder is 5: Input is not a valid path"),
    ],
)
def test_refuses(option: TrainerOption, value: Any, why: str) -> None:
    with pytest.raises(UserError) as error:
        option.checked(value)
    assert str(error.value).startswith(why)


@pytest.mark.parametrize(
    ("trainer", "kind"),
    [
        (RAY, "ray, 4 CPU, 0.5 GPU, 2 parameter servers"),
        (LOCAL, "local/processes, 2 parameter servers, 0.5 GPU"),
    ],
)
def test_the_name_of_a_kind_stays_as_databases_hold_it(trainer: TrainerChoice, kind: str) -> None:
    assert trainer.kind == kind
