"""Output beside a run: where it fails, it is lost, and the run goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable

from syncswitch.storage.errors import reason_of

_LOG = logging.getLogger(__name__)


class SideOutput:
    """One such output. Once it has failed nothing more is tried, and that is said once.

    Args:
        loss: What is lost then; for people.
        tell: Tells them.
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
