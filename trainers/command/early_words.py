"""What may be said of a run before it has cost much; pure."""

from __future__ import annotations

from syncswitch.trainers.command.report_log import ReportLog

# Of output that says nothing, before somebody should look.
_SECONDS = 60.0
_LINES = 100
# A result is the mean of five tests: who makes them has made the first by then.
_SHARE = 1 / 5


def no_accuracy(
    reports: ReportLog, total_steps: int, seconds: float, lines: int, *, is_heard: bool
) -> str | None:
    """That an accuracy should have been understood by now; None where one was, or may yet come.

    Args:
        reports: So far.
        total_steps: Of the whole run.
        seconds: Since the start of the command.
        lines: Read, whether understood or not.
        is_heard: Whether the command has written anything.
    """
    done, where = reports.step - reports.start_step, ""
    if reports.evaluations or reports.diverged:
        return None
    if done:
        is_late = done >= _SHARE * (total_steps - reports.start_step)
        where = f", at step {reports.step:,} of {total_steps:,}"
    else:
        is_late = is_heard and (seconds > _SECONDS or lines >= _LINES)
    name = reports.metric.name
    return f"the command has said nothing of its {name} so far{where}" if is_late else None
