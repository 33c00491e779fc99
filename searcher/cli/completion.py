"""`syncswitch-search completion`: what a shell needs to complete both programs."""

from __future__ import annotations

import click

from syncswitch.storage.errors import FatalError
from syncswitch.trainers.console import EXIT_OK, debug_option

__all__ = ["completion"]

_PROGRAMS = ("syncswitch-search", "syncswitch-run")
_SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@debug_option
def completion(shell: str) -> int:
    """Prints what makes SHELL complete syncswitch-search and syncswitch-run.

    Options, commands, and names of workloads, policies, searches, profiles and protocols. Once:

    \b
    syncswitch-search completion bash >> ~/.bashrc
    syncswitch-search completion zsh >> ~/.zshrc
    syncswitch-search completion fish > ~/.config/fish/conf.d/syncswitch.fish

    Then open a new shell. Names come from the database that --storage or SYNCSWITCH_STORAGE names.
    """  # noqa: D301 (click wants the character itself)
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    if kind is None:
        raise FatalError(f"the installed click {click.__version__} cannot complete {shell}")
    if shell == "zsh":
        # Which a plain .zshrc has not done.
        click.echo("autoload -Uz compinit && (( $+functions[compdef] )) || compinit")
    for program in _PROGRAMS:
        variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
        click.echo(kind(click.Command(program), {}, program, variable).source())
    return EXIT_OK
