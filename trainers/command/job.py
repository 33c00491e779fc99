"""A training command and how its runs are read."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.job import MOST_WORKER_STEPS, WorkloadIdentity
from syncswitch.storage.records.metric import ACCURACY_NAME, Metric
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.command import (
    DEFAULT_FOLDER,
    DEFAULT_METRIC_FILE,
    DEFAULT_SILENCE_SECONDS,
)
from syncswitch.trainers.command.results import compile_pattern
from syncswitch.trainers.command.template import (
    SWITCH_NAMES,
    CommandTemplate,
    check_text,
    environment_of,
    run_values,
)

_OUTPUT = "{output_dir}/"
_LONGEST_NAME = 255  # the database's columns
_LONGEST_UNIT = 64
_ACCURACY = Metric()
_TAKEN = ("step", "seconds", "diverged")


def command_metric(name: str | None, goal: str | None, unit: str | None) -> Metric:
    """What the runs of a command are compared by; accuracy where nobody says.

    Raises:
        UserError: It is not known whether more of it is better, or it is no metric.
    """
    name = ACCURACY_NAME if name is None else name
    if name == ACCURACY_NAME and goal != "min":
        if unit is None:
            return _ACCURACY
        raise UserError(
            f"--metric-unit is {unit!r}, and an accuracy has none; say with --metric-name what else"
            " the command measures"
        )
    if not name or len(name) > _LONGEST_NAME or name in _TAKEN:
        raise UserError(
            f"--metric-name is {name[:40]!r}: give the name that its values have where the command"
            f" tells them, such as val_loss; {', '.join(_TAKEN)} say other things"
        )
    if goal is None:
        raise UserError(
            f"--metric-name is {name!r}: say with --metric-goal max that more of it is better, or"
            " with --metric-goal min that less is"
        )
    if unit is not None and not 0 < len(unit) <= _LONGEST_UNIT:
        raise UserError(
            f"--metric-unit is {unit[:40]!r}: give one of 1 to {_LONGEST_UNIT} characters, such as"
            " km, or leave it out"
        )
    return Metric(name, goal, unit, lowest=None, highest=None)


@dataclass(frozen=True)
class CommandJob:
    """A training command, and how to read and bound its runs.

    Attributes:
        template: The command.
        name: Of the job, for people and for the policy.
        total_steps: How many steps a run makes, as the command counts them.
        workers: n, where the command has such a number; else 1.
        protocols: What the command calls its two ways of training, before and after the switch.
        metric_file: Where it writes its results; with placeholders.
        metric_pattern: Regular expression to find them in its output with, instead of the file.
        metric: What its runs are compared by; its name is the key of its values, too.
        timeout_seconds: A run that takes longer has failed; None for no limit.
        silence_seconds: Likewise one that neither prints nor reports for so long.
        grace_seconds: What is to be ended has so long to end itself.
        output_folder: The runs of all jobs have their folders in it.
    """

    template: CommandTemplate
    name: str
    total_steps: int
    workers: int = 1
    protocols: tuple[str, str] = ("first", "second")
    metric_file: str = DEFAULT_METRIC_FILE
    metric_pattern: str | None = None
    metric: Metric = _ACCURACY
    timeout_seconds: float | None = None
    silence_seconds: float | None = DEFAULT_SILENCE_SECONDS
    grace_seconds: float = 10.0
    output_folder: Path = DEFAULT_FOLDER

    def __post_init__(self) -> None:
        """Refuses what cannot be run, before anything is.

        Raises:
            UserError: It cannot.
        """
        if not self.name or len(self.name) > _LONGEST_NAME:
            raise UserError(
                f"the name of the job is {self.name[:40]!r}: give one of 1 to {_LONGEST_NAME}"
                " characters as WORKLOAD"
            )
        if not 2 <= self.total_steps <= MOST_WORKER_STEPS:
            raise UserError(
                f"--total-steps is {self.total_steps}: give the steps of a whole training as the"
                f" command counts them, 2 to {MOST_WORKER_STEPS}"
            )
        limits = {
            "--timeout": self.timeout_seconds,
            "--silence": self.silence_seconds,
            "--grace": self.grace_seconds,
        }
        for option, seconds in limits.items():
            if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
                raise UserError(f"{option} is {seconds:g}: give seconds above 0")
        self._check_program()
        if self.metric_pattern is not None:
            compile_pattern(self.metric_pattern, self.metric)
        check_text("--metric-file", self.metric_file)
        inside = self.metric_file.removeprefix(_OUTPUT)
        if inside == self.metric_file or not inside or ".." in Path(inside).parts:
            raise UserError(
                f"--metric-file is {self.metric_file!r}: every run needs a file of its own; give"
                f" one in {_OUTPUT}, which the command knows as SYNCSWITCH_OUTPUT_DIR, too"
            )

    def _check_program(self) -> None:
        program = self.template.words[0]
        if shutil.which(program) is None:
            raise UserError(
                f"--command starts with {program!r}, which is no program here; give one on the"
                " PATH, or a path to a file that may be executed (a script without that:"
                f" sh {program})"
            )

    @property
    def identity(self) -> WorkloadIdentity:
        """The identity of the job, as the user declares it.

        The name, the command with its placeholders, its steps, workers and protocols. The content
        of a script is left out: most changes of one change nothing about its training, and nobody
        but its author knows which do. A script that trains differently gets another name.
        """
        content = json.dumps({"name": self.name, "command": self.template.what})
        return WorkloadIdentity(
            name=self.name,
            model=hashlib.sha256(content.encode()).hexdigest(),
            data_set=None,
            loss=None,
            optimizer=None,
            total_worker_steps=self.total_steps,
            batch_size=None,
            learning_rate=None,
            momentum=None,
            learning_rate_boundaries=None,
            metric=self.metric.name,
            evaluation_interval_worker_steps=None,
            workers=self.workers,
            first_protocol=self.protocols[0],
            second_protocol=self.protocols[1],
            metric_goal=self.metric.goal,
            metric_unit=self.metric.unit,
            metric_lowest=self.metric.lowest,
            metric_highest=self.metric.highest,
        )

    @property
    def runs_folder(self) -> Path:
        """Where the runs of this job have their folders."""
        plain = "".join(c if c.isalnum() or c in "._-" else "-" for c in self.name).lstrip(".")
        fingerprint = self.identity.fingerprint[:12]
        return self.output_folder.absolute() / f"{plain[:100] or 'job'}-{fingerprint}"


def command_with_policy(job: CommandJob, switch_percent: float) -> str:
    """The command with the switch filled in, ready to be pasted; it has seed 0.

    It writes into a new folder here: a command may clear the one that it is given.
    """
    plain = job.runs_folder.name.lstrip("-")
    folder = next(name for n in itertools.count(1) if not (name := Path(f"{plain}-{n}")).exists())
    values = run_values(TrialSpec(job.identity, switch_percent, seed=0), folder)
    wanted = ["output_dir", "seed"] + ([] if job.template.names_switch else list(SWITCH_NAMES))
    unnamed = {name: values[name] for name in wanted if name not in job.template.names}
    settings = [f"{name}={shlex.quote(text)}" for name, text in environment_of(unnamed).items()]
    words = [*settings, shlex.join(job.template.filled(values))]
    return f"mkdir {shlex.quote(str(folder))} && {' '.join(words)}"
