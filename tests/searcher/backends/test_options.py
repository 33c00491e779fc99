"""What a trainer's option takes from Python."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from syncswitch.searcher.backends.base import TrainerOption
from syncswitch.storage.errors import UserError

COUNT = TrainerOption("--how-many", "So many.", int, least=1, most=1000)
SHARE = TrainerOption("--share", "A part.", float)
KIND = TrainerOption("--kind", "Which.", choices=("a", "b"))
OPEN = TrainerOption("--open", "Whether.", bool)
FOLDER = TrainerOption("--folder", "Where.", Path)


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
