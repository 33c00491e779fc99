"""What arrives at another process."""

from __future__ import annotations

from typing import Any

from syncswitch.trainers.cluster.exchange.wire import Message, packed
from syncswitch.trainers.job.sources import Source
from syncswitch.trainers.model.shipped import ShippedSource
from tests.trainers.jobs import CONSTANT


def received(message: Any, kind: Any = None) -> Any:
    """A message at the other end, of its own type or of this one."""
    content, arrays = packed(message)
    return Message(memoryview(content), arrays).read(kind or type(message))


def shipped(source: Source, reference: str | None = None) -> Any:
    """A source in the process of a worker."""
    return received(ShippedSource.of(source, CONSTANT)).restored(reference)
