from __future__ import annotations

import pytest

from syncswitch.storage.errors import UserError
from syncswitch.trainers.protocols import PROTOCOLS, parse_pair


def test_the_table_is_keyed_by_name() -> None:
    assert {name: kind.name for name, kind in PROTOCOLS.items()} == {
        name: name for name in PROTOCOLS
    }


@pytest.mark.parametrize("text", ["bsp,asp", " BSP , asp "])
def test_a_pair_is_read_in_its_order(text: str) -> None:
    assert parse_pair(text) == ("bsp", "asp")
    assert parse_pair("asp,bsp") == ("asp", "bsp")


@pytest.mark.parametrize("text", ["", "bsp", "bsp,bsp", "bsp,asp,bsp", "bsp,", "bsp,nonsense"])
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UserError) as error:
        parse_pair(text)
    message = str(error.value)
    assert "\n" not in message
    assert "asp" in message.split("known:")[1]
