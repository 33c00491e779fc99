"""What the command line calls the parameters and actions in messages from below."""

from __future__ import annotations

import shlex
from typing import Any

from syncswitch.storage.errors import Action, Said, Words

# All others have their own names, with dashes.
_FLAGS = {"guarded": "guard", "switch_points": "grid"}

_COMMANDS = {
    Action.SEARCH: "make a search with `syncswitch-search run WORKLOAD`",
    Action.CHECK_DATABASE: "see `syncswitch-search db check`",
    Action.LIST_POLICIES: "see `syncswitch-search policy list`",
    Action.COMPARE_POLICIES: "see `syncswitch-search policy diff {} {}`",
    Action.IMPORT_USES: "import it with `syncswitch-search uses import {}`",
    Action.EXPORT_MLFLOW: "copy them later with `syncswitch-search export {} --mlflow {}`",
    Action.EXPORT_POLICY: "export it again with `syncswitch-search policy export`",
}


class _OptionWords(Words):
    """Names options and commands."""

    def parameter(self, name: str, value: Any = None) -> str:
        flag = _FLAGS.get(name, name).replace("_", "-")
        if isinstance(value, bool):
            return f"--{flag}" if value else f"--no-{flag}"
        return f"--{flag}" if value is None else f"--{flag} {value}"

    def action(self, action: Action, *arguments: str) -> str:
        return _COMMANDS[action].format(*map(shlex.quote, arguments))


OPTION_WORDS = _OptionWords()


def in_options(said: Said) -> str:
    """Returns what is said in the words of the command line."""
    return said if isinstance(said, str) else said.text(OPTION_WORDS)
