"""A training command with placeholders, and their values for a run; pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from string import Formatter

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import TrialSpec
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
"""What a run of a command differs in. As environment variables: SYNCSWITCH_SWITCH_PERCENT, ..."""

SWITCH_NAMES = PLACEHOLDERS[:2]
"""Those of them that say when to switch."""

_SCRIPTS = (".py", ".sh", ".bash", ".sbatch", ".slurm", ".yaml", ".yml")


@dataclass(frozen=True)
class CommandTemplate:
    """A command as the user wrote it, split into words; no shell ever sees it.

    Attributes:
        words: The program and its arguments, with placeholders.
    """

    words: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> CommandTemplate:
        """Splits a command line as a shell does, and checks its placeholders.

        Raises:
            UserError: It is empty, has an open quote, or has a placeholder that does not exist.
        """
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UserError(
                f"--command {text!r} cannot be split into words: {error}; close the quote, or write"
                " \\ before one that is meant literally"
            ) from error
        if not words or not words[0]:
            raise UserError(
                '--command is empty; give your training command, such as --command "torchrun'
                ' train.py --start-local-sgd {switch_step}"'
            )
        for word in words:
            check_text("--command", word)
        if _names(words[0]):
            raise UserError(
                f"--command starts with {words[0]!r}: the program itself is the same for every run;"
                " write its name"
            )
        return cls(tuple(words))

    @property
    def names_switch(self) -> bool:
        """Whether a placeholder says when to switch; else the environment has to."""
        return not self.names.isdisjoint(SWITCH_NAMES)

    @property
    def can_resume(self) -> bool:
        """Whether a run can go on with the state of another; else each begins anew."""
        return "resume_from" in self.names

    @property
    def can_go_back(self) -> bool:
        """Whether a switch that fails costs what came after it alone, not the whole training."""
        return self.can_resume or "plan" in self.names

    @property
    def names(self) -> frozenset[str]:
        """The placeholders in it."""
        return frozenset(name for word in self.words for name in _names(word))

    @property
    def default_name(self) -> str:
        """Name of the script in it, or else of the program, without folder and ending."""
        scripts = (PurePath(word) for word in self.words if word.endswith(_SCRIPTS))
        return next(scripts, PurePath(self.words[0])).stem or "command"

    @property
    def what(self) -> tuple[str, ...]:
        """The words that identify a job; the program's folder does not matter."""
        return (PurePath(self.words[0]).name, *self.words[1:])

    def filled(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """The words of one run; a value never becomes two words."""
        return tuple(fill(word, values) for word in self.words)


def run_values(
    spec: TrialSpec,
    output_folder: Path,
    resume_from: Path | None = None,
    plan: Path | None = None,
) -> dict[str, str]:
    """The values of the placeholders in one run.

    Args:
        spec: The trial. Its worker-steps are the steps of the command.
        output_folder: Of this run alone.
        resume_from: Folder of the run that it goes on with, from the switch of that one; None for a
            run from the start.
        plan: File with the trial, for a loop that guards its switch itself; None for no such file.
    """
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
    """The same values as environment variables."""
    return {f"SYNCSWITCH_{name.upper()}": value for name, value in values.items()}


def fill(text: str, values: Mapping[str, str]) -> str:
    """Puts values in the place of placeholders; `{{` and `}}` are braces.

    A placeholder without a value stays as it is.
    """
    return "".join(
        literal + ("" if name is None else values.get(name, f"{{{name}}}"))
        for literal, name, _, _ in Formatter().parse(text)
    )


def check_text(option: str, text: str) -> None:
    """Checks that a text has known placeholders alone."""
    try:
        parts = list(Formatter().parse(text))
    except ValueError as error:
        raise UserError(_wrong(option, text, "a brace stands alone")) from error
    for _, name, form, conversion in parts:
        if name is not None and (name not in PLACEHOLDERS or form or conversion):
            raise UserError(_wrong(option, text, f"there is no placeholder {{{name}}}"))


def _wrong(option: str, text: str, why: str) -> str:
    known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    return f"{option} has {text!r}: {why}; known: {known}; write {{{{ and }}}} for braces"


def _names(text: str) -> list[str]:
    return [name for _, name, _, _ in Formatter().parse(text) if name is not None]
