"""`syncswitch-search completion`: the script with which a shell completes both programs."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from syncswitch.cli.options import debug_option

_PROGRAMS = ("syncswitch-search", "syncswitch-run")


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@debug_option
def completion(shell: str) -> None:
    """Print the script that makes SHELL complete both programs.

    It completes options, commands, and names of workloads, policies, searches, profiles and
    protocols. Install it once:

    \b
    syncswitch-search completion bash >> ~/.bashrc
    syncswitch-search completion zsh >> ~/.zshrc
    syncswitch-search completion fish > ~/.config/fish/conf.d/syncswitch.fish

    Then open a new shell. Names come from the database in --storage or SYNCSWITCH_STORAGE.
    """  # noqa: D301 (click wants the character itself)
    kind = get_completion_class(shell)
    assert kind is not None  # click has all three
    if shell == "zsh":
        # A plain .zshrc has not loaded it.
        click.echo("autoload -Uz compinit && (( $+functions[compdef] )) || compinit")
    for program in _PROGRAMS:
        variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
        click.echo(kind(click.Command(program), {}, program, variable).source())
