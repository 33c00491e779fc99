"""The options that describe a user's training command, for searches and for single runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.metric import GOALS
from syncswitch.trainers.command import DEFAULT_FOLDER, DEFAULT_METRIC_FILE, DEFAULT_SILENCE_SECONDS
from syncswitch.trainers.options import TrainerOption

if TYPE_CHECKING:
    from syncswitch.trainers.command.job import CommandJob

USUAL_COMMAND_PROTOCOLS = "first,second"
"""Default names of a command's two ways of training."""

COMMAND_OPTIONS = (
    TrainerOption(
        "--command",
        "A training command with placeholders: {switch_step}, {switch_percent}, {seed},"
        " {replicate}, {output_dir}, {resume_from}, {plan}, {total_steps}, {workers}; also in its"
        " environment, as SYNCSWITCH_SWITCH_STEP, .... It is not run by a shell; {{ and }} are"
        " braces.",
        metavar="TEXT",
    ),
    TrainerOption(
        "--total-steps",
        "Steps of a whole training, as the command counts them (--command).",
        int,
        metavar="N",
    ),
    TrainerOption(
        "--metric-file",
        'Where the command writes lines such as {"step": 100, "seconds": 12.5, "accuracy":'
        " 0.91} while it trains (--command).",
        metavar="PATH",
        default=DEFAULT_METRIC_FILE,
    ),
    TrainerOption(
        "--metric-pattern",
        "Read the results from the command's output instead: a regular expression with"
        " the groups step and accuracy, perhaps seconds and loss (--command).",
        metavar="REGEX",
    ),
    TrainerOption(
        "--metric-name",
        "Name of the metric that compares runs, in the command's lines or as a group, such as"
        " val_loss; needs --metric-goal (--command). Default: accuracy, from 0 to 1.",
        metavar="NAME",
    ),
    TrainerOption(
        "--metric-goal",
        "Whether more of the metric is better, or less (--command).",
        choices=GOALS,
    ),
    TrainerOption(
        "--metric-unit", "Unit of the metric, for people, such as km (--command).", metavar="UNIT"
    ),
    TrainerOption(
        "--timeout",
        "A run that takes longer has failed (--command). Default: no limit.",
        float,
        name="timeout_seconds",
        metavar="SECONDS",
    ),
    TrainerOption(
        "--silence",
        "A run that neither prints nor reports for this long has failed (--command).",
        float,
        name="silence_seconds",
        metavar="SECONDS",
        default=DEFAULT_SILENCE_SECONDS,
    ),
    TrainerOption(
        "--output-folder",
        "Every run gets a folder in it, which is kept (--command).",
        Path,
        default=DEFAULT_FOLDER,
    ),
)


@dataclass(frozen=True)
class CommandChoice:
    """A training command as the user describes it; see `CommandJob` for the fields."""

    command: str | None
    total_steps: int | None
    metric_file: str
    metric_pattern: str | None
    metric_name: str | None
    metric_goal: str | None
    metric_unit: str | None
    timeout_seconds: float | None
    silence_seconds: float
    output_folder: Path

    def __post_init__(self) -> None:
        """Raises UserError if the command or the length of its training is missing."""
        if self.command is None:
            raise UserError(
                '--trainer command needs your training command: add --command "PROGRAM'
                ' ARGUMENTS {switch_step}"'
            )
        if self.total_steps is None:
            raise UserError(
                "--trainer command needs the steps of a whole training: add --total-steps N"
            )

    def command_job(self, name: str | None, workers: int, protocols: tuple[str, str]) -> CommandJob:
        """Makes the job, named after its script by default; raises UserError if it is not valid."""
        from syncswitch.trainers.command.job import CommandJob, CommandTemplate, command_metric

        assert self.command is not None
        assert self.total_steps is not None
        template = CommandTemplate.parse(self.command)
        return CommandJob(
            template=template,
            name=template.default_name if name is None else name,
            total_steps=self.total_steps,
            workers=workers,
            protocols=protocols,
            metric_file=self.metric_file,
            metric_pattern=self.metric_pattern,
            metric=command_metric(self.metric_name, self.metric_goal, self.metric_unit),
            timeout_seconds=self.timeout_seconds,
            silence_seconds=self.silence_seconds,
            output_folder=self.output_folder,
        )
