"""What people are told after a run of a job."""

from __future__ import annotations

from dataclasses import replace

from syncswitch.searcher.learning.job import JobHistory
from syncswitch.searcher.learning.lessons import shown_percent
from syncswitch.searcher.search.policy_words import spread_text
from syncswitch.storage.records.job import protocol_text
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.storage.uses.summary import is_alone


def spread_words(job: JobHistory) -> list[str]:
    """Says that runs of the first protocol alone differ too much, where the last one is new.

    Of those that collapsed, as the last run shows, it says that.
    """
    policy, goal = job.policy, job.goal
    if not job.uses:
        return []
    first, metric = protocol_text(policy.protocols.first_protocol), policy.job.metric
    last, collapsed = job.uses[-1], job.collapsed
    is_last_alone = is_alone(last)
    if is_last_alone and last.result.converged_accuracy in collapsed:
        which, collapsed = f"this run of {first} alone", [last.result.converged_accuracy]
    else:
        which = f"an earlier run of {first} alone"
        before = replace(job, uses=job.uses[:-1]).collapsed
        collapsed = [one for one in collapsed if one not in before]
    if collapsed:
        is_no_target = "is no target; another one has to measure it"
        if goal is not None:
            is_no_target = f"is no part of the target of {metric.text(goal.accuracy)}"
        return [
            f"{which} collapsed: it ended at {metric.text(one)}, far from the other runs of"
            f" this job, and {is_no_target}"
            for one in collapsed
        ]
    if goal is None or not is_last_alone:
        return []
    said = spread_text(goal, metric, first)
    return [] if said is None else [said]


def diverged_words(job: JobHistory, expected_runs: int | None) -> str:
    """Says what the last run, which diverged, means for the next one, and how that trains.

    It learns if `expected_runs` are given. Raises UserError as `next_percent`.
    """
    last, policy = job.uses[-1], job.policy
    first, second = map(
        protocol_text, (policy.protocols.first_protocol, policy.protocols.second_protocol)
    )
    held = shown_percent(last.held_percent, policy.protocols.first_protocol, last.phases)
    shown = f"{first} alone" if held >= BASELINE_PERCENT else f"a switch at {held:g} %"
    percent = policy.switch_percent
    if expected_runs is not None:
        percent = job.next_percent(expected_runs)
    then = f"switches to {second} at {percent:g} %"
    if percent >= BASELINE_PERCENT:
        then = f"uses {first} alone"
    return f"this run is recorded as one that diverged with {shown}; the next one {then}"
