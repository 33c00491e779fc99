"""What may be said of a search before it costs anything; pure."""

from __future__ import annotations

from collections import defaultdict

from syncswitch.searcher.strategies.base import Strategy
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.trainers.job.schedule import percent_to_worker_steps, round_worker_steps


def too_short(identity: WorkloadIdentity, strategy: Strategy) -> str | None:
    """That the job is too short to tell switch points apart; None where it is not."""
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
