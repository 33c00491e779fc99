"""Additional output of a run, whose failure does not end the run."""

from __future__ import annotations

from collections.abc import Callable

from syncswitch.storage.errors import reason_of


class SideOutput:
    """An output that is given up, as soon as writing it fails, with one warning of the loss."""

    def __init__(self, loss: str, tell: Callable[[str], object]) -> None:
        self._loss = loss
        self._tell = tell
        self._is_over = False

    def __call__(self, write: Callable[..., object], *arguments: object) -> None:
        """Writes a part of the output."""
        if self._is_over:
            return
        try:
            write(*arguments)
        except Exception as error:  # no run may fail because of it
            self._is_over = True
            self._tell(f"{self._loss}: {reason_of(error)}")
