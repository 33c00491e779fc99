"""The one place where a search gets its concrete parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syncswitch.searcher.decision import PaperRule
from syncswitch.trainers.local import (
    DEFAULT_LAUNCHER,
    LAUNCHERS,
    load_local_workload,
    open_local_trainer,
)

if TYPE_CHECKING:
    from syncswitch.storage.records import WorkloadIdentity
    from syncswitch.trainers.trainer import Trainer

__all__ = ["DEFAULT_LAUNCHER", "LAUNCHERS", "STRATEGIES", "TRAINERS", "Job", "compose_local"]


@dataclass(frozen=True)
class Job:
    """What a search needs of the training side.

    Attributes:
        identity: The workload on its cluster.
        open_trainer: Starts the cluster: not before the first run needs it.
    """

    identity: WorkloadIdentity
    open_trainer: Callable[[], Trainer]


def compose_local(reference: str, workers: int, protocols: tuple[str, str], launcher: str) -> Job:
    """A job on a TensorFlow cluster on this machine.

    Raises:
        UserError: There is no such workload, or the number of workers is below 1.
    """
    workload = load_local_workload(reference, workers)
    return Job(
        identity=workload.identity(workers, *protocols),
        open_trainer=lambda: open_local_trainer(workload, reference, workers, launcher),
    )


TRAINERS: dict[str, Callable[[str, int, tuple[str, str], str], Job]] = {"local": compose_local}
"""What makes a job of a workload's reference, workers, protocols and launcher, by name."""

STRATEGIES: dict[str, Callable[[int, int, float, float | None, bool], PaperRule]] = {
    "paper": PaperRule
}
"""What makes a rule of M, R, beta, A and whether it is two-sided, by name."""
