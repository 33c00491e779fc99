"""What the command line calls the parameters and commands in messages from below."""

from __future__ import annotations

import shlex
from typing import Any

from typing_extensions import override

from syncswitch.storage.errors import Command, CommandHint, Said, Words

# All other options are called like their parameters, with dashes.
_FLAGS = {"guarded": "guard", "switch_points": "grid"}

_COMMANDS = {
    Command.SEARCH: "syncswitch-search run",
    Command.SWEEP: "syncswitch-search sweep",
    Command.TRAIN: "syncswitch-run",
    Command.REVISE: "syncswitch-search policy revise",
    Command.COMPARE_POLICIES: "syncswitch-search policy diff",
    Command.EXPORT_POLICY: "syncswitch-search policy export",
    Command.LIST_POLICIES: "syncswitch-search policy list",
    Command.LIST_TRIALS: "syncswitch-search trials",
    Command.EXPORT_TESTS: "syncswitch-search trials --evaluations",
    Command.IMPORT_RUNS: "syncswitch-search import",
    Command.IMPORT_USES: "syncswitch-search uses import",
    Command.EXPORT_TO_MLFLOW: "syncswitch-search export",
    Command.CHECK_DATABASE: "syncswitch-search db check",
    Command.UPGRADE_DATABASE: "syncswitch-search db upgrade",
}


class _OptionWords(Words):
    @override
    def parameter(self, name: str, value: Any = None) -> str:
        flag = _FLAGS.get(name, name).replace("_", "-")
        if isinstance(value, bool):
            return f"--{flag}" if value else f"--no-{flag}"
        return f"--{flag}" if value is None else f"--{flag} {shlex.quote(str(value))}"

    @override
    def command(self, run: CommandHint) -> str:
        return " ".join((_COMMANDS[run.command], *self.given(run, shlex.quote)))


OPTION_WORDS = _OptionWords()


def in_options(said: Said) -> str:
    """Returns what is said in the words of the command line."""
    return OPTION_WORDS.say(said)
