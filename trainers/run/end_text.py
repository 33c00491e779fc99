"""What a training says at its end that `syncswitch` has not started; pure, standard library."""

from __future__ import annotations

from collections.abc import Sequence

from syncswitch.storage.records.guard import FailedSwitch
from syncswitch.storage.records.job import ScheduledJob, protocol_text
from syncswitch.storage.records.trial import PhaseRecord

UNRECORDED = "It is not recorded: only runs with a policy file, or of a training command, are"


def end_text(
    job: ScheduledJob,
    failed: Sequence[FailedSwitch],
    held_percent: float,
    phases: Sequence[PhaseRecord],
    lost_seconds: float,
    *,
    is_watched: bool,
) -> str:
    """Says whether the switch held and what time it saved, in a sentence without its full stop.

    Args:
        job: The job.
        failed: The switches that have failed.
        held_percent: The switch after these that the run has made; 100 if there is none.
        phases: What counts of the run, in its two ways.
        lost_seconds: What it has gone back from.
        is_watched: Whether tests could show that the last switch fails.
    """
    first = protocol_text(job.first_protocol)
    if failed:
        *others, last = (f"{one.switch_percent:g}" for one in failed)
        several, at = ("es", f"{', '.join(others)} and {last}") if others else ("", last)
        what = f"the switch{several} at {at} % failed, and "
        if held_percent >= 100:
            what += f"{first} did the rest"
        else:
            what += f"that at {held_percent:g} % {'held' if is_watched else 'was not watched'}"
    elif held_percent >= 100:
        what = f"all steps were made in {first}"
    elif is_watched:
        what = f"the switch at {held_percent:g} % held"
    else:
        what = f"nothing shows whether the switch at {held_percent:g} % held"
    seconds = sum(one.seconds for one in phases) + lost_seconds
    return f"{what}; the training took {seconds:,.1f} s{_saved(job, phases, seconds, lost_seconds)}"


def _saved(
    job: ScheduledJob, phases: Sequence[PhaseRecord], seconds: float, lost_seconds: float
) -> str:
    text = f", {lost_seconds:,.1f} s of it for what failed" if lost_seconds else ""
    before = [one for one in phases if one.protocol == job.first_protocol]
    steps = sum(one.end_worker_step - one.start_worker_step for one in before)
    alone_seconds = sum(one.seconds for one in before) / max(1, steps) * job.total_worker_steps
    if alone_seconds <= 0 or (len(phases) == 1 and not lost_seconds):
        return text
    share = f"{seconds / alone_seconds:.2f}"
    first = protocol_text(job.first_protocol)
    return f"{text}, {share} of the time of {first} alone at its pace in this run"
