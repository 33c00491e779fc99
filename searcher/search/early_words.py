"""Warnings about a search before it has cost much; pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from syncswitch.searcher.strategies.base import Strategy
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.trial import Evaluation
from syncswitch.trainers.job.schedule import percent_to_worker_steps, round_worker_steps

_LEAST_TESTS = 5


def too_short(identity: WorkloadIdentity, strategy: Strategy) -> str | None:
    """Returns a warning if the job is too short to tell switch points apart."""
    total = identity.total_worker_steps
    size = round_worker_steps(identity.first_protocol, identity.workers)
    percents: dict[int, list[float]] = defaultdict(list)
    for percent in strategy.grid():
        percents[percent_to_worker_steps(percent, total, size)].append(percent)
    same = next(((step, found) for step, found in percents.items() if len(found) > 1), None)
    if same is None:
        return None
    step, found = same
    listed = " and ".join(f"{percent:g}" for percent in sorted(found))
    return (
        f"{listed} % of this job's {total:,} worker-steps are one switch, after {step:,}, as a"
        f" round has {size:,}: the search could not tell them apart; give fewer --settings, or a"
        " longer job"
    )


def never_moved(identity: WorkloadIdentity, evaluations: Sequence[Evaluation]) -> str | None:
    """Returns a warning if the metric was the same in all tests of the first half of a run.

    Only the first test in the second half warns, while it is the newest.
    """
    half = identity.total_worker_steps / 2
    is_now = len(evaluations) >= _LEAST_TESTS and evaluations[-1].worker_step >= half
    if not is_now or evaluations[-2].worker_step >= half:
        return None
    if len({one.accuracy for one in evaluations}) > 1:
        return None
    metric = identity.decided_by
    return (
        f"{metric.name} was {metric.text(evaluations[-1].accuracy)} in all {len(evaluations)} tests"
        " of half a run: a search cannot tell switch points apart by what never moves; check the"
        " metric, the labels and the learning rate"
    )
