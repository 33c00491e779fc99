"""Sentences on how a policy has done in the runs that used it; pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from syncswitch.storage.uses.drift import Drift
from syncswitch.storage.uses.summary import UseSummary


def uses_text(summary: UseSummary) -> str:
    """For example `used 41 times, 39 kept, 1.43 times as fast; the guard went back twice`."""
    if not summary.uses:
        return "not used yet"
    parts = [f"used {_times(summary.uses)}", f"{summary.kept:,} kept"]
    if summary.speed_up is not None:
        parts.append(f"{summary.speed_up:.2f} times as fast")
    text = ", ".join(parts)
    if summary.alarms:
        text += f"; the guard went back {_times(summary.alarms)}"
    return text if summary.drift is None else f"{text}; {drift_text(summary.drift)}"


def drift_text(drift: Drift) -> str:
    """For example `of the last 10 runs 4 kept the accuracy, of the 40 before them 38: ...`."""
    return (
        f"of the last {drift.newest} runs {drift.newest_kept} kept the accuracy, of the"
        f" {drift.former} before them {drift.former_kept}: the job has changed, search again"
    )


def uses_sentence(summary: UseSummary) -> str:
    """`uses_text` as a sentence."""
    text = uses_text(summary)
    return f"{text[0].upper()}{text[1:]}."


def uses_as_json(summary: UseSummary) -> dict[str, Any]:
    """The summary for programs."""
    last = summary.last_ended_at
    return {**asdict(summary), "last_ended_at": None if last is None else last.isoformat()}


def _times(number: int) -> str:
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")
