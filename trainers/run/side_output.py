"""Output beside a run, which goes on if that output fails."""

from __future__ import annotations

import logging
from collections.abc import Callable

from syncswitch.storage.errors import reason_of

_LOG = logging.getLogger(__name__)


class SideOutput:
    """An output that is given up, with one warning, as soon as writing it fails.

    Args:
        loss: The loss, as the warning names it.
        tell: Function that warns.
    """

    def __init__(self, loss: str, tell: Callable[[str], object] = _LOG.warning) -> None:
        self._loss = loss
        self._tell = tell
        self._is_over = False

    def __call__(self, write: Callable[..., object], *arguments: object) -> None:
        """Writes a part of it."""
        if self._is_over:
            return
        try:
            write(*arguments)
        except Exception as error:  # whatever it is, no run may fail for it
            self._is_over = True
            self._tell(f"{self._loss}: {reason_of(error)}")
