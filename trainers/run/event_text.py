"""Events of a run as text."""

from __future__ import annotations

from syncswitch.storage.records.trial import RunEvent


def event_line(event: RunEvent) -> str:
    """For example `lost at worker-step 1,200: worker 2: no answer`."""
    return f"{event.kind} at worker-step {event.worker_step:,}: {event.reason}"


def is_remarkable(event: RunEvent) -> bool:
    """Whether it is more than the requested switch."""
    # Only that one says its price.
    return event.kind != "switched" or event.seconds is None
