"""`--trainer local`: a TensorFlow cluster on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from syncswitch.searcher.cli.trainers.base import Job, JobRequest, OwnOption, TrainerChoice
from syncswitch.storage.errors import UserError
from syncswitch.trainers.local import (
    DEFAULT_LAUNCHER,
    LAUNCHERS,
    load_local_workload,
    open_local_trainer,
)
from syncswitch.trainers.protocols import check_protocols
from syncswitch.trainers.trial_check import check_length

if TYPE_CHECKING:
    from syncswitch.storage.records import RunConditions
    from syncswitch.trainers.run_options import ConditionsChoice

__all__ = ["LocalTrainer", "named"]


@dataclass(frozen=True)
class LocalTrainer(TrainerChoice):
    """Attributes: launcher: Where servers and workers run."""

    name = "local"
    summary = "a TensorFlow cluster on this machine"
    options = (
        OwnOption(
            "--launcher",
            type=click.Choice(LAUNCHERS),
            default=DEFAULT_LAUNCHER,
            show_default=True,
            help="in-process = workers are threads; processes = servers of their own.",
        ),
    )

    launcher: str

    @property
    def kind(self) -> str:
        """See `TrainerChoice.kind`."""
        return f"{self.name}/{self.launcher}"

    def job(self, request: JobRequest) -> Job:
        """See `TrainerChoice.job`."""
        reference, launcher = named(request), self.launcher
        workers = request.size
        check_protocols(request.protocols, workers)
        workload = load_local_workload(reference, workers)
        identity = workload.identity(workers, *request.protocols)
        check_length(identity)
        return Job(
            identity=identity,
            open_trainer=lambda: open_local_trainer(workload, reference, workers, launcher),
        )

    def conditions(
        self, chosen: ConditionsChoice, workers: int, switch_percent: float, first_protocol: str
    ) -> RunConditions:
        """See `TrainerChoice.conditions`."""
        return chosen.conditions(workers, switch_percent, first_protocol, self.launcher)


def named(request: JobRequest) -> str:
    """The workload of a request that cannot do without.

    Raises:
        UserError: None was named.
    """
    if request.reference is None:
        raise UserError(
            "no WORKLOAD is named; give a built-in name (digits, resnet32-cifar10,"
            " resnet50-cifar100), file.py:attribute or package.module:attribute"
        )
    return request.reference
