"""Listeners for parts on the same machine and on several machines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(params=["unix", "tcp"])
def address(request: pytest.FixtureRequest, folder: Path) -> Any:
    """The path is longer than the name of a socket may be."""
    if request.param == "tcp":
        return "127.0.0.1", 0
    (folder / ("long" * 40)).mkdir()
    return str(folder / ("long" * 40) / "listener")


@pytest.fixture
def host(address: Any) -> Iterator[Any]:
    from tests.trainers.cluster.exchange.host import Host

    made = Host(address)
    yield made
    made.listener.close()
