"""The trainer `command`: the user's own training command."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from syncswitch.searcher.backends.base import JobRequest, TrainableJob, TrainerChoice, option
from syncswitch.storage.errors import OptionHint, UserError
from syncswitch.storage.records.job import ScheduledJob
from syncswitch.storage.records.metric import GOALS
from syncswitch.trainers.command import DEFAULT_FOLDER, DEFAULT_METRIC_FILE, DEFAULT_SILENCE_SECONDS

if TYPE_CHECKING:
    from syncswitch.trainers.command.job import CommandJob


@dataclass(frozen=True)
class UsersCommand(TrainerChoice):
    """A training command, as its options describe it."""

    name = "command"
    summary = "your own training command"
    default_workers = 1
    default_protocols = "first,second"
    simulated_cluster: ClassVar[None] = None
    search_options: ClassVar[tuple[OptionHint, ...]] = (
        OptionHint("trainer", "command"),
        OptionHint("command", "..."),
        OptionHint("total_steps", "..."),
    )

    command: str | None = option(
        "A training command with placeholders: {switch_step}, {switch_percent}, {seed},"
        " {replicate}, {output_dir}, {resume_from}, {plan}, {total_steps}, {workers}; also in its"
        " environment, as SYNCSWITCH_SWITCH_STEP, .... It is not run by a shell; {{ and }} are"
        " braces.",
        metavar="TEXT",
    )
    total_steps: int | None = option(
        "Steps of a whole training, as the command counts them.", int, metavar="N"
    )
    metric_file: str = option(
        'Where the command writes lines such as {"step": 100, "seconds": 12.5, "accuracy":'
        " 0.91} while it trains.",
        metavar="PATH",
        default=DEFAULT_METRIC_FILE,
    )
    step_name: str = option(
        "Key of the number of steps in these lines, such as iter.", metavar="NAME", default="step"
    )
    metric_pattern: str | None = option(
        "Read the results from the command's output instead: a regular expression with"
        " the groups step and accuracy, perhaps seconds and loss.",
        metavar="REGEX",
    )
    metric_name: str | None = option(
        "Name of the metric that compares runs, in the command's lines or as a group, such as"
        " val_loss; needs its goal. Default: accuracy, from 0 to 1.",
        metavar="NAME",
    )
    metric_goal: str | None = option(
        "Whether a higher or a lower value of the metric is better.", choices=GOALS
    )
    metric_unit: str | None = option("Unit of the metric, for people, such as km.", metavar="UNIT")
    timeout: float | None = option(
        "A run that takes longer has failed. Default: no limit.", float, metavar="SECONDS"
    )
    silence: float = option(
        "A run that neither prints nor reports for this long has failed.",
        float,
        metavar="SECONDS",
        default=DEFAULT_SILENCE_SECONDS,
    )
    output_folder: Path = option(
        "Folder in which every run gets a folder of its own, which is kept.",
        Path,
        default=DEFAULT_FOLDER,
    )

    def __post_init__(self) -> None:
        if self.command is None:
            raise UserError(
                "the trainer command needs your training command",
                remedy=OptionHint("command", "PROGRAM ARGUMENTS {switch_step}", "add"),
                code="parameter-missing",
            )
        if self.total_steps is None:
            raise UserError(
                "the trainer command needs the steps of a whole training",
                remedy=OptionHint("total_steps", verb="add"),
                code="parameter-missing",
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
            step_name=self.step_name,
            metric=command_metric(self.metric_name, self.metric_goal, self.metric_unit),
            timeout_seconds=self.timeout,
            silence_seconds=self.silence,
            output_folder=self.output_folder,
        )

    @override
    def pair(self, text: str | None) -> tuple[str, str]:
        from syncswitch.trainers.protocols import parse_named_pair

        return parse_named_pair(text or self.default_protocols)

    def load(self, reference: str, workers: int) -> str:
        return reference

    def identity(self, workload: str, workers: int, protocols: tuple[str, str]) -> ScheduledJob:
        return self.command_job(workload, workers, protocols).identity

    def _given_options(self, request: JobRequest) -> Iterator[OptionHint]:
        yield OptionHint("trainer", self.name)
        for field, declared in self.options().items():
            value = getattr(self, field)
            if value != declared.default:
                yield OptionHint(field, value)
        if request.size != self.default_workers:
            yield OptionHint("workers", request.size)
        if request.protocols != self.pair(None):
            yield OptionHint("protocols", ",".join(request.protocols))

    @override
    def job(self, request: JobRequest) -> TrainableJob:
        from syncswitch.trainers.command.job import command_with_policy
        from syncswitch.trainers.command.trainer import CommandTrainer

        request.chosen.check_nothing_chosen("a training command has no cluster of syncswitch's")
        job = self.command_job(request.reference, request.size, request.protocols)
        note = (
            "note: the command has neither {switch_step} nor {switch_percent}; it has to read"
            " SYNCSWITCH_SWITCH_STEP or SYNCSWITCH_SWITCH_PERCENT from its environment"
        )
        return TrainableJob(
            identity=job.identity,
            open_trainer=lambda: CommandTrainer(job),
            reference=job.name,
            can_fork=False,
            can_go_back=job.template.can_go_back,
            command=lambda percent: command_with_policy(job, percent),
            command_options=tuple(self._given_options(request)),
            note=None if job.template.names_switch or "plan" in job.template.names else note,
        )
