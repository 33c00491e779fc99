"""All errors that syncswitch raises on purpose.

```
SyncSwitchError
├── UserError            the user must act: the message says what, the value, what is allowed and
│   │                    what to do
│   ├── WorkloadError    a workload cannot be loaded, or is not the one of a policy
│   ├── DatabaseError    the database is missing, foreign, older or newer than this version
│   ├── PolicyError      a policy file is truncated or altered, or no such policy exists
│   └── RecordingError   a recorded run, or the manifest that lists it, cannot be imported
├── RetryableError       the same call may succeed later: a lost worker
│   └── DatabaseAwayError  the database is busy or away; it is waited for longer
└── FatalError           a defect or a broken environment; trying again does not help
```

Each has a `code` as well, for programs: see `ErrorCode`.

The command line turns a `UserError` into one line and exit status 2, the other two into one line
and exit status 1. A message that concerns a parameter, or says what to do with one, leaves its name
to `Words`: the command line knows it by another than Python.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, TypeAlias

__all__ = [
    "Command",
    "CommandHint",
    "DatabaseAwayError",
    "DatabaseError",
    "ErrorCode",
    "FatalError",
    "OptionHint",
    "PolicyError",
    "RecordingError",
    "RetryableError",
    "SyncSwitchError",
    "TooNewError",
    "UserError",
    "Words",
    "WorkloadError",
    "escaped",
    "leave_out",
    "one_line",
    "reason_of",
    "shortened",
]

_LONGEST_QUOTE = 300
_LONGEST_TEXT = 2000  # of a message; none of ours is as long
_CUT_LENGTH = 100  # what is shown of a longer value


ErrorCode: TypeAlias = Literal[
    "ambiguous",
    "baseline-diverged",
    "checkpoint-unusable",
    "cluster-lost",
    "cluster-unusable",
    "command-failed",
    "database-away",
    "database-damaged",
    "database-foreign",
    "database-not-found",
    "database-outdated",
    "database-unusable",
    "database-url-invalid",
    "disk-full",
    "extension-unusable",
    "failed",
    "file-unusable",
    "input-invalid",
    "model-not-saved",
    "newer-version",
    "nothing-recorded",
    "package-missing",
    "parameter-invalid",
    "parameter-missing",
    "parameters-conflict",
    "policy-damaged",
    "policy-moved",
    "policy-not-found",
    "policy-unfit",
    "protocol-unsuitable",
    "recording-invalid",
    "result-invalid",
    "run-interrupted",
    "service-away",
    "taken-over",
    "training-diverged",
    "training-failed",
    "try-again",
    "unexpected",
    "usage-invalid",
    "workload-not-found",
    "workload-unsuitable",
]
"""What an error is about, for programs; `docs/formats.md` has the meaning of each."""


class Command(Enum):
    """What the command line has a command for; the value is the function for it in Python."""

    SEARCH = "search"
    SWEEP = "sweep"
    TRAIN = "train"
    REVISE = "PolicyRegistry.publish"
    COMPARE_POLICIES = "read_policy_file"
    EXPORT_POLICY = "write_policy"
    LIST_POLICIES = "PolicyRegistry.entries"
    LIST_TRIALS = "TrialStore.trials"
    EXPORT_TESTS = "TrialStore.curves"
    IMPORT_RUNS = "import_runs"
    IMPORT_USES = "take_in"
    EXPORT_TO_MLFLOW = "copy_to_mlflow"
    CHECK_DATABASE = "database_findings"
    UPGRADE_DATABASE = "upgrade_study_tables"


@dataclass(frozen=True, slots=True)
class OptionHint:
    """A parameter to set, as a remedy or for a command.

    Attributes:
        parameter: Its name in Python.
        value: The value to set; None for one that the user knows.
        verb: What to do with it, such as `use fewer`; empty for the name alone.
    """

    parameter: str
    value: Any = None
    verb: str = "give"


def leave_out(parameter: str, value: Any = None) -> OptionHint:
    """The remedy not to set a parameter."""
    return OptionHint(parameter, value, "leave out")


@dataclass(frozen=True, slots=True)
class CommandHint:
    """A command to run.

    Attributes:
        command: The command.
        arguments: What to give it.
        verb: What it is for, such as `find one with:`.
    """

    command: Command
    arguments: tuple[str | OptionHint, ...] = ()
    verb: str = "see:"


SEARCH_FIRST = CommandHint(Command.SEARCH, ("WORKLOAD",), "make one with:")
IMPORT_SOME = CommandHint(Command.IMPORT_RUNS, verb="add some with:")
EXPORT_AGAIN = CommandHint(Command.EXPORT_POLICY, verb="export it again with:")


class Words:
    """Names parameters and commands as Python does."""

    def parameter(self, name: str, value: Any = None) -> str:
        """Returns a parameter, with its value unless that is None."""
        return name if value is None else f"{name}={value!r}"

    def command(self, run: CommandHint) -> str:
        """Returns a command with its arguments."""
        return f"{run.command.value}({', '.join(self.given(run, repr))})"

    def given(self, run: CommandHint, quoted: Callable[[str], str]) -> list[str]:
        """Returns the arguments of a command."""
        return [
            quoted(one) if isinstance(one, str) else self.parameter(one.parameter, one.value)
            for one in run.arguments
        ]

    def say(self, part: Part) -> str:
        """Returns a part of a message."""
        if isinstance(part, SyncSwitchError):
            return part.text(self)
        if isinstance(part, OptionHint):
            return f"{part.verb} {self.parameter(part.parameter, part.value)}".lstrip()
        return (
            f"{part.verb} {self.command(part)}"
            if isinstance(part, CommandHint)
            else shortened(part)
        )


class SyncSwitchError(Exception):
    """Base of all errors of this project; also a notice, where something is told without failing.

    The text has the parameter, what is wrong, what is allowed and what to do, in this order.

    Args:
        what: What is wrong: the sentence goes on from the parameter, or says why its value is
            wrong. In several parts, if it quotes another error or names more parameters.
        parameter: The parameter that is wrong, by its name in Python; or several.
        value: Its value; None leaves it out.
        allowed: Its allowed values.
        remedy: What to do; or several things, each of which is enough.
        code: What it is about. None for that of the error of the same class that it quotes, or of
            its class.
    """

    words = Words()
    code: ErrorCode = "failed"

    def __init__(
        self,
        what: Part | Sequence[Part] = "",
        *,
        parameter: str | Sequence[str] = (),
        value: Any = None,
        allowed: str | None = None,
        remedy: Part | Sequence[Part] = (),
        code: ErrorCode | None = None,
    ) -> None:
        super().__init__(what)
        self.what = _parts(what)
        self.value, self.allowed = value, allowed
        self.parameters = [parameter] if isinstance(parameter, str) else list(parameter)
        self.remedies = _parts(remedy)
        self.code = code or self._usual_code()

    def _usual_code(self) -> ErrorCode:
        quoted = [one.code for one in self.what if isinstance(one, type(self))]
        return quoted[0] if quoted else type(self).code

    def text(self, words: Words) -> str:
        """Returns the message in these words."""
        allowed = self.allowed and f"allowed: {self.allowed}"
        remedy = ", or ".join(map(words.say, self.remedies))
        return "; ".join(filter(None, (self._problem(words), allowed, remedy)))

    def _problem(self, words: Words) -> str:
        what = "".join(map(words.say, self.what))
        if not self.parameters:
            return what
        switch = self.value if isinstance(self.value, bool) else None
        names = " and ".join(words.parameter(name, switch) for name in self.parameters)
        if self.value is None or switch is not None:
            return f"{names} {what}"
        whole = isinstance(self.value, float) and self.value.is_integer()
        shown = int(self.value) if whole else self.value
        return f"{names} is {_cut(repr(shown))}" + (what and f": {what}")

    def __str__(self) -> str:
        return self.text(self.words)


Said: TypeAlias = str | SyncSwitchError
"""A line to people."""

Part: TypeAlias = Said | CommandHint | OptionHint
"""A part of a message."""


def _parts(given: Part | Sequence[Part]) -> Sequence[Part]:
    return [given] if isinstance(given, (str, SyncSwitchError, CommandHint, OptionHint)) else given


class UserError(SyncSwitchError):
    """Something only the user can put right; the message is one complete line."""

    code: ErrorCode = "input-invalid"

    def _usual_code(self) -> ErrorCode:
        usual = super()._usual_code()
        if usual != UserError.code or not self.parameters:
            return usual
        return "parameter-invalid" if len(self.parameters) == 1 else "parameters-conflict"


class WorkloadError(UserError):
    """A workload that cannot be loaded or does not fit."""

    code: ErrorCode = "workload-unsuitable"


class UnsuitableProtocolError(UserError):
    """A protocol with which a workload cannot be trained."""

    code: ErrorCode = "protocol-unsuitable"


class DatabaseError(UserError):
    """A database that cannot be used as it is."""

    code: ErrorCode = "database-unusable"


class PolicyError(UserError):
    """A timing policy that does not exist, is damaged, or belongs to another workload."""

    code: ErrorCode = "policy-damaged"


class TooNewError(UserError):
    """Something that a newer syncswitch has written, in a way that this one cannot read."""

    code: ErrorCode = "newer-version"


class RecordingError(UserError):
    """A recorded run, or a manifest of such runs, that cannot be imported."""

    code: ErrorCode = "recording-invalid"


class RetryableError(SyncSwitchError):
    """A passing fault of the infrastructure; the same call may succeed later."""

    code: ErrorCode = "try-again"


class DatabaseAwayError(RetryableError):
    """A database that is busy or does not answer; its server may be restarted meanwhile."""

    code: ErrorCode = "database-away"


class FatalError(SyncSwitchError):
    """A fault that another try does not cure."""


# Control characters except tabs and line ends, and characters that change the writing direction.
STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def escaped(text: str) -> str:
    """Returns a text whose characters that would control a terminal are spelt out."""
    return STEERING.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


# Quoted values, and words; an apostrophe within a word or at its end opens no quote.
_QUOTES = (rf"(?<!\w){q}(?:\\.|[^{q}\\\n]){{{_LONGEST_QUOTE},}}{q}(?!\w)" for q in "'\"")
_WORD = rf"\S{{{_LONGEST_QUOTE},}}?(?=[.,:;)\]]*(?:\s|\Z))"
_LONG = re.compile("|".join((*_QUOTES, _WORD)), re.DOTALL)


def shortened(text: str) -> str:
    """Returns a text in which values that are too long to read are cut.

    Whatever was meant to be pasted must not go through it.
    """
    text = _LONG.sub(lambda found: _cut(found[0]), text)
    if len(text) > _LONGEST_TEXT:  # by a value with spaces that is not quoted
        text = f"{text[: _LONGEST_TEXT // 2]}... {text[-_LONGEST_TEXT // 4 :]}"
    return text


def _cut(text: str) -> str:
    """Cuts a value; of a path, the names in it that are too long, if that is enough."""
    if len(text) < _LONGEST_QUOTE:
        return text
    parts = text.split("/")
    path = "/".join(one if len(one) < _LONGEST_QUOTE else _start_of(one) for one in parts)
    return path if len(path) < 2 * _LONGEST_QUOTE else _start_of(text)


def _start_of(text: str) -> str:
    return f"{text[:_CUT_LENGTH]}... ({len(text):,} characters)"


def one_line(error: BaseException) -> str:
    """Returns any error for use in a line: its class and the start of its text."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # `str` runs foreign code
        text = ""
    if len(text) > _LONGEST_QUOTE:
        text = f"{text[:_LONGEST_QUOTE]}..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def reason_of(error: BaseException) -> Said:
    """Returns any error for use in a line; our own errors without their class."""
    return error if isinstance(error, SyncSwitchError) else one_line(error)
