"""Commands are imported when they are called."""

from __future__ import annotations

import gc

import pytest
from click import Context

from syncswitch.cli.search.main import main


@pytest.mark.parametrize("is_enabled", [True, False])
def test_after_the_import_the_collector_is_as_it_was(is_enabled: bool) -> None:
    try:
        (gc.enable if is_enabled else gc.disable)()
        assert main.get_command(Context(main), "status") is not None
        assert gc.isenabled() is is_enabled
    finally:
        gc.enable()
