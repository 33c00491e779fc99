"""Doors on this machine, as parts of one and of several machines have them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(params=["unix", "tcp"])
def address(request: pytest.FixtureRequest, folder: Path) -> Any:
    return str(folder / "door") if request.param == "unix" else ("127.0.0.1", 0)


@pytest.fixture
def house(address: Any) -> Iterator[Any]:
    from tests.trainers.cluster.exchange.house import House

    made = House(address)
    yield made
    made.door.close()
