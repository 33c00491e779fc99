"""`--trainer command`: the user's own training command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from syncswitch.searcher.backends.base import Job, JobRequest, TrainerChoice
from syncswitch.storage.records.job import RunConditions
from syncswitch.trainers.command.options import (
    COMMAND_OPTIONS,
    USUAL_COMMAND_PROTOCOLS,
    CommandChoice,
)

if TYPE_CHECKING:
    from syncswitch.trainers.conditions import ConditionsChoice


@dataclass(frozen=True)
class UsersCommand(CommandChoice, TrainerChoice):
    """A training command, as its options describe it."""

    name = "command"
    summary = "any training command of yours (--command, --total-steps)"
    default_workers = 1
    default_protocols = USUAL_COMMAND_PROTOCOLS
    options = COMMAND_OPTIONS

    @override
    def pair(self, text: str | None) -> tuple[str, str]:
        """Returns the command's own names for its two ways of training."""
        from syncswitch.trainers.protocols import parse_named_pair

        return parse_named_pair(text or self.default_protocols)

    @override
    def job(self, request: JobRequest) -> Job:
        """Returns the job; the request's workload is a name for it."""
        from syncswitch.trainers.command.job import command_with_policy
        from syncswitch.trainers.command.trainer import CommandTrainer

        job = self.command_job(request.reference, request.size, request.protocols)
        note = (
            "note: --command has neither {switch_step} nor {switch_percent}; it has to read"
            " SYNCSWITCH_SWITCH_STEP or SYNCSWITCH_SWITCH_PERCENT from its environment"
        )
        return Job(
            identity=job.identity,
            open_trainer=lambda: CommandTrainer(job),
            reference=job.name,
            can_fork=False,
            can_go_back=job.template.can_go_back,
            command_with=lambda policy: command_with_policy(job, policy.switch_percent),
            note=None if job.template.names_switch or "plan" in job.template.names else note,
        )

    @override
    def conditions(
        self, chosen: ConditionsChoice, workers: int, switch_percent: float, first_protocol: str
    ) -> RunConditions:
        chosen.check_nothing_chosen("--trainer command has no cluster of syncswitch's")
        return RunConditions()
