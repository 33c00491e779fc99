"""`--trainer command`: any training command of the user's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from typing_extensions import override

from syncswitch.searcher.backends.base import Job, JobRequest, OwnOption, TrainerChoice
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import RunConditions
from syncswitch.trainers.cli.console import print_note
from syncswitch.trainers.command import DEFAULT_FOLDER, DEFAULT_METRIC_FILE, DEFAULT_SILENCE_SECONDS

if TYPE_CHECKING:
    from syncswitch.trainers.cli.conditions import ConditionsChoice


@dataclass(frozen=True)
class UsersCommand(TrainerChoice):
    """See `CommandJob` for the fields."""

    name = "command"
    summary = "any training command of yours (--command, --total-steps)"
    default_workers = 1
    default_protocols = "first,second"
    options = (
        OwnOption(
            "--command",
            metavar="TEXT",
            help="A training command with placeholders: {switch_step}, {switch_percent}, {seed},"
            " {replicate}, {output_dir}, {resume_from}, {total_steps}, {workers}; also in its"
            " environment, as SYNCSWITCH_SWITCH_STEP, .... No shell runs it; {{ and }} are braces.",
        ),
        OwnOption(
            "--total-steps",
            type=int,
            metavar="N",
            help="Steps of a whole training, as the command counts them (--command).",
        ),
        OwnOption(
            "--metric-file",
            metavar="PATH",
            default=DEFAULT_METRIC_FILE,
            show_default=True,
            help='Where the command writes lines such as {"step": 100, "seconds": 12.5, "accuracy":'
            " 0.91} while it trains (--command).",
        ),
        OwnOption(
            "--metric-pattern",
            metavar="REGEX",
            help="Read the results from the command's output instead: a regular expression with"
            " the groups step and accuracy, perhaps seconds and loss (--command).",
        ),
        OwnOption(
            "--timeout",
            "timeout_seconds",
            type=float,
            metavar="SECONDS",
            help="A run that takes longer has failed (--command). Default: no limit.",
        ),
        OwnOption(
            "--silence",
            "silence_seconds",
            type=float,
            metavar="SECONDS",
            default=DEFAULT_SILENCE_SECONDS,
            show_default=True,
            help="A run that neither prints nor reports for so long has failed (--command).",
        ),
        OwnOption(
            "--output-folder",
            type=click.Path(file_okay=False, path_type=Path),
            default=DEFAULT_FOLDER,
            show_default=True,
            help="Every run has a folder in it, which stays (--command).",
        ),
    )

    command: str | None
    total_steps: int | None
    metric_file: str
    metric_pattern: str | None
    timeout_seconds: float | None
    silence_seconds: float
    output_folder: Path

    def __post_init__(self) -> None:
        """Raises UserError: there is no command, or nobody says how long it trains."""
        if self.command is None:
            raise UserError(
                '--trainer command needs your training command: add --command "PROGRAM'
                ' ARGUMENTS {switch_step}"'
            )
        if self.total_steps is None:
            raise UserError(
                "--trainer command needs the steps of a whole training: add --total-steps N"
            )

    @override
    def pair(self, text: str | None) -> tuple[str, str]:
        """What the command calls its two ways of training."""
        from syncswitch.trainers.protocols import parse_named_pair

        return parse_named_pair(text or self.default_protocols)

    @override
    def job(self, request: JobRequest) -> Job:
        """The workload is a name for the job."""
        from syncswitch.trainers.command.job import CommandJob, command_with_policy
        from syncswitch.trainers.command.template import CommandTemplate
        from syncswitch.trainers.command.trainer import CommandTrainer

        assert self.command is not None
        assert self.total_steps is not None
        template = CommandTemplate.parse(self.command)
        name = template.default_name if request.reference is None else request.reference
        job = CommandJob(
            template=template,
            name=name,
            total_steps=self.total_steps,
            workers=request.size,
            protocols=request.protocols,
            metric_file=self.metric_file,
            metric_pattern=self.metric_pattern,
            timeout_seconds=self.timeout_seconds,
            silence_seconds=self.silence_seconds,
            output_folder=self.output_folder,
        )
        if not template.names_switch:
            print_note(
                "note: --command has neither {switch_step} nor {switch_percent}; it has to read"
                " SYNCSWITCH_SWITCH_STEP or SYNCSWITCH_SWITCH_PERCENT from its environment"
            )
        return Job(
            identity=job.identity,
            open_trainer=lambda: CommandTrainer(job),
            reference=name,
            can_fork=False,
            command_with=lambda policy: command_with_policy(job, policy.switch_percent),
        )

    @override
    def conditions(
        self, chosen: ConditionsChoice, workers: int, switch_percent: float, first_protocol: str
    ) -> RunConditions:
        chosen.check_nothing_chosen("--trainer command has no cluster of syncswitch's")
        return RunConditions()
