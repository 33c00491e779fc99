"""What has to fail with an error of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from syncswitch.storage.errors import ErrorCode, SyncSwitchError


@contextmanager
def fails(
    code: ErrorCode, said: str | None = None
) -> Iterator[pytest.ExceptionInfo[SyncSwitchError]]:
    """The block raises an error with this code; `said` is a pattern of what is special of it."""
    with pytest.raises(SyncSwitchError, match=said) as caught:
        yield caught
    assert caught.value.code == code, caught.value
