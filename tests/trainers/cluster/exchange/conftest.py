"""Listeners for parts on the same machine and on several machines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(params=["unix", "tcp"])
def address(request: pytest.FixtureRequest, folder: Path) -> Any:
    return str(folder / "listener") if request.param == "unix" else ("127.0.0.1", 0)


@pytest.fixture
def host(address: Any) -> Iterator[Any]:
    from tests.trainers.cluster.exchange.host import Host

    made = Host(address)
    yield made
    made.listener.close()
