"""A training command: its words, the values that differ between its runs, how it is read."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from string import Formatter

from syncswitch.storage.errors import OptionHint, UserError, leave_out
from syncswitch.storage.records.job import MOST_WORKER_STEPS, Recipe, ScheduledJob, name_problem
from syncswitch.storage.records.metric import ACCURACY_NAME, GOALS, Metric
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.command import DEFAULT_FOLDER, DEFAULT_METRIC_FILE, DEFAULT_SILENCE_SECONDS
from syncswitch.trainers.command.reports import STEP, pattern_reader
from syncswitch.trainers.job.schedule import switch_worker_step

PLACEHOLDERS = (
    "switch_percent",
    "switch_step",
    "total_steps",
    "workers",
    "seed",
    "replicate",
    "output_dir",
    "resume_from",
    "plan",
)
"""Values that differ between runs; also in the environment, as SYNCSWITCH_SWITCH_PERCENT, ..."""

SWITCH_NAMES = PLACEHOLDERS[:2]
"""The placeholders that say when to switch."""

_SCRIPTS = (".py", ".sh", ".bash", ".sbatch", ".slurm", ".yaml", ".yml")


@dataclass(frozen=True)
class CommandTemplate:
    """A command as the user wrote it, split into words with placeholders; no shell is involved."""

    words: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> CommandTemplate:
        """Splits a command line as a shell does; raises UserError if it cannot be one."""
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UserError(
                f"it cannot be split into words: {error}",
                parameter="command",
                value=text,
                remedy="close the quote, or write \\ before a literal one",
            ) from error
        if not words or not words[0]:
            raise UserError(
                "is empty",
                parameter="command",
                remedy="give your training command, such as 'train.py -s {switch_step}'",
            )
        for word in words:
            check_text("command", word)
        if _names(words[0]):
            raise UserError(
                f"starts with {words[0]!r}, and the program itself must be the same for every run",
                parameter="command",
                remedy="write its name",
            )
        return cls(tuple(words))

    @property
    def names_switch(self) -> bool:
        """Whether a placeholder says when to switch; otherwise only the environment does."""
        return not self.names.isdisjoint(SWITCH_NAMES)

    @property
    def can_resume(self) -> bool:
        """Whether a run can continue from the state of another; otherwise each starts afresh."""
        return "resume_from" in self.names

    @property
    def can_go_back(self) -> bool:
        """Whether a failed switch costs only the training after it, not the whole training."""
        return self.can_resume or "plan" in self.names

    @property
    def names(self) -> frozenset[str]:
        """The placeholders in it."""
        return frozenset(name for word in self.words for name in _names(word))

    @property
    def default_name(self) -> str:
        """Name of the script in it, or else of the program, without folder and suffix."""
        scripts = (PurePath(word) for word in self.words if word.endswith(_SCRIPTS))
        return next(scripts, PurePath(self.words[0])).stem.strip(". ") or "command"

    @property
    def what(self) -> tuple[str, ...]:
        """The words that identify a job; the folder of the program does not matter."""
        return (PurePath(self.words[0]).name, *self.words[1:])

    def filled(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """Returns the words of one run; a value never becomes two words."""
        return tuple(fill(word, values) for word in self.words)


def run_values(
    spec: TrialSpec, output_folder: Path, resume_from: Path | None = None, plan: Path | None = None
) -> dict[str, str]:
    """The placeholders' values in one run; it may continue the run in `resume_from`."""
    return {
        "switch_percent": f"{spec.switch_percent:.12g}",
        "switch_step": str(switch_worker_step(spec)),
        "total_steps": str(spec.identity.total_worker_steps),
        "workers": str(spec.identity.workers),
        "seed": str(spec.seed),
        "replicate": str(spec.replicate),
        "output_dir": str(output_folder),
        "resume_from": "" if resume_from is None else str(resume_from),
        "plan": "" if plan is None else str(plan),
    }


def environment_of(values: Mapping[str, str]) -> dict[str, str]:
    """Returns the same values as environment variables."""
    return {f"SYNCSWITCH_{name.upper()}": value for name, value in values.items()}


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replaces placeholders that have a value, and `{{` and `}}` by braces."""
    return "".join(
        literal + ("" if name is None else values.get(name, f"{{{name}}}"))
        for literal, name, _, _ in Formatter().parse(text)
    )


def check_text(parameter: str, text: str) -> None:
    """Raises UserError if a text has unknown placeholders."""
    try:
        for _, name, fmt, conversion in Formatter().parse(text):
            if name is not None and (name not in PLACEHOLDERS or fmt or conversion):
                raise ValueError(f"there is no placeholder {{{name}}}")
    except ValueError as error:
        listed = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
        raise UserError(
            f"{error}; known: {listed}; write {{{{ and }}}} for braces",
            parameter=parameter,
            value=text,
        ) from error


def _names(text: str) -> list[str]:
    return [name for _, name, _, _ in Formatter().parse(text) if name is not None]


_OUTPUT = "{output_dir}/"
_LONGEST_NAME = 255  # the database's columns
_LONGEST_UNIT = 64
_ACCURACY = Metric()
_TAKEN = ("step", "seconds", "diverged")


def command_metric(name: str | None, goal: str | None, unit: str | None) -> Metric:
    """Returns the metric that compares runs of a command; accuracy by default.

    Raises UserError if its direction is missing, or its name or unit is not valid.
    """
    name = ACCURACY_NAME if name is None else name
    if name == ACCURACY_NAME and goal != "min":
        if unit is None:
            return _ACCURACY
        raise UserError(
            "an accuracy has none",
            parameter="metric_unit",
            value=unit,
            remedy=OptionHint("metric_name", verb="name what else the command measures with"),
        )
    if not name or not name.isprintable() or len(name) > _LONGEST_NAME or name in _TAKEN:
        raise UserError(
            "give the name under which the command reports it, such as val_loss;"
            f" {', '.join(_TAKEN)} mean other things",
            parameter="metric_name",
            value=name[:40],
        )
    if goal is None:
        raise UserError(
            "whether more of it is better is not known",
            parameter="metric_name",
            value=name,
            remedy=tuple(OptionHint("metric_goal", choice, "add") for choice in GOALS),
            code="parameter-missing",
        )
    if unit is not None and not (unit.isprintable() and 0 < len(unit) <= _LONGEST_UNIT):
        raise UserError(
            f"give one of 1 to {_LONGEST_UNIT} characters, such as km, or leave it out",
            parameter="metric_unit",
            value=unit[:40],
        )
    return Metric(name, goal, unit, lowest=None, highest=None)


@dataclass(frozen=True)
class CommandJob:
    """A training command, how to read its runs, and their limits.

    Attributes:
        template: The command.
        name: Name of the job, for people and for the policy.
        total_steps: Number of steps in a run, as the command counts them.
        workers: n, if the command has such a number; otherwise 1.
        protocols: The command's names for its two ways of training, before and after the switch.
        metric_file: File to which it writes its results; may have placeholders.
        metric_pattern: Regular expression that finds the results in its output instead; None to
            read the file.
        step_name: The key of the steps done, in the lines of the file.
        metric: The metric that compares runs; its name is also the key of its values.
        timeout_seconds: A run that takes longer has failed; None for no limit.
        silence_seconds: A run that neither prints nor reports for this long has failed; None for no
            limit.
        grace_seconds: Time that processes have to end by themselves before they are killed.
        output_folder: Folder for the runs of all jobs.
    """

    template: CommandTemplate
    name: str
    total_steps: int
    workers: int = 1
    protocols: tuple[str, str] = ("first", "second")
    metric_file: str = DEFAULT_METRIC_FILE
    metric_pattern: str | None = None
    step_name: str = STEP
    metric: Metric = _ACCURACY
    timeout_seconds: float | None = None
    silence_seconds: float | None = DEFAULT_SILENCE_SECONDS
    grace_seconds: float = 10.0
    output_folder: Path = DEFAULT_FOLDER

    def __post_init__(self) -> None:
        if problem := name_problem(self.name):
            raise UserError(f"{problem} as WORKLOAD", code="parameter-invalid")
        if not 2 <= self.total_steps <= MOST_WORKER_STEPS:
            raise UserError(
                "give the steps of a whole training as the command counts them, 2 to"
                f" {MOST_WORKER_STEPS}",
                parameter="total_steps",
                value=self.total_steps,
            )
        limits = {
            "timeout": self.timeout_seconds,
            "silence": self.silence_seconds,
            "grace_seconds": self.grace_seconds,
        }
        for limit, seconds in limits.items():
            if seconds is not None and not (math.isfinite(seconds) and seconds > 0):
                raise UserError(parameter=limit, value=seconds, allowed="seconds above 0")
        program = self.template.words[0]
        if shutil.which(program) is None:
            raise UserError(
                f"starts with {program!r}, which is not a program here",
                parameter="command",
                remedy="give one on the PATH, or a path to an executable file (for a script that is"
                f" not executable: sh {program})",
            )
        if self.metric_pattern is not None:
            pattern_reader(self.metric_pattern, self.metric)
            if self.step_name != STEP:
                raise UserError(
                    "it is a key of lines in a file, and a pattern names its group step instead",
                    parameter="step_name",
                    value=self.step_name,
                    remedy=leave_out("step_name"),
                    code="parameters-conflict",
                )
        if not self.step_name or self.step_name in (self.metric.name, "seconds", "diverged"):
            raise UserError(
                "give the key under which the lines have the steps done, such as iter",
                parameter="step_name",
                value=self.step_name,
            )
        check_text("metric_file", self.metric_file)
        inside = self.metric_file.removeprefix(_OUTPUT)
        if inside == self.metric_file or not inside or ".." in Path(inside).parts:
            raise UserError(
                f"every run needs its own file; give one in {_OUTPUT}, which the command also finds"
                " in SYNCSWITCH_OUTPUT_DIR",
                parameter="metric_file",
                value=self.metric_file,
            )

    @property
    def identity(self) -> ScheduledJob:
        """The identity of the job as the user declares it.

        It consists of the name, the command with its placeholders, its steps, workers and
        protocols. The content of a script is left out: most changes to a script do not affect its
        training, and only its author knows which do. A script that trains differently needs another
        name.
        """
        content = json.dumps({"name": self.name, "command": self.template.what})
        job = ScheduledJob.undescribed(
            self.name, self.total_steps, self.workers, self.protocols, self.metric
        )
        recipe = Recipe(model=hashlib.sha256(content.encode()).hexdigest())
        return replace(job, job=replace(job.job, recipe=recipe))

    @property
    def runs_folder(self) -> Path:
        """Folder for the runs of this job."""
        plain = "".join(c if c.isalnum() or c in "._-" else "-" for c in self.name).lstrip(".")
        fingerprint = self.identity.fingerprint[:12]
        return self.output_folder.absolute() / f"{plain[:100] or 'job'}-{fingerprint}"


def command_with_policy(job: CommandJob, switch_percent: float) -> str:
    """Returns the command with the switch filled in, ready to be pasted; its seed is 0.

    It gets a new folder here, because a command may clear the one that it is given.
    """
    plain = job.runs_folder.name.lstrip("-")
    folder = next(name for n in itertools.count(1) if not (name := Path(f"{plain}-{n}")).exists())
    values = run_values(TrialSpec(job.identity, switch_percent, seed=0), folder)
    wanted = ["output_dir", "seed"] + ([] if job.template.names_switch else list(SWITCH_NAMES))
    unnamed = {name: values[name] for name in wanted if name not in job.template.names}
    settings = [f"{name}={shlex.quote(text)}" for name, text in environment_of(unnamed).items()]
    words = [*settings, shlex.join(job.template.filled(values))]
    return f"mkdir {shlex.quote(str(folder))} && {' '.join(words)}"
