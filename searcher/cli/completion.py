"""`syncswitch-search completion`: what a shell needs to complete both programs."""

from __future__ import annotations

import click

from syncswitch.storage.errors import FatalError
from syncswitch.trainers.cli.console import EXIT_OK, debug_option

__all__ = ["completion"]

_PROGRAMS = ("syncswitch-search", "syncswitch-run")
_SHELLS = ("bash", "zsh", "fish")

# Bash splits words at `:`, `=` and `@`, too, and wants only what takes the place of the last part,
# which is $2. The program is told whole words, up to the cursor, and its answers are cut.
_BASH = r"""
%(complete_func)s() {
    local IFS=$'\n'
    local line=${COMP_LINE:0:COMP_POINT} words=("") word
    for word in "${COMP_WORDS[@]:0:COMP_CWORD}"; do
        [[ $line == [[:space:]]* ]] && words+=("")
        line=${line#"${line%%%%[![:space:]]*}"}
        words[-1]+=$word
        line=${line#"$word"}
    done
    [[ $line == [[:space:]]* ]] && words+=("")
    words[-1]+=${line#"${line%%%%[![:space:]]*}"}

    local typed=${words[-1]} option="" response type value
    local cut=${typed%%"$2"}
    [[ $typed == -*=* ]] && option=${typed%%%%=*}=
    response=$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((${#words[@]} - 1)) \
        %(complete_var)s=bash_complete "$1")
    while IFS=, read -r type value; do
        case $type in
            dir) COMPREPLY=(); compopt -o dirnames ;;
            file) COMPREPLY=(); compopt -o default ;;
            plain) value=$option$value; COMPREPLY+=("${value#"$cut"}") ;;
        esac
    done <<< "$response"
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


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
    from click.shell_completion import BashComplete, get_completion_class

    class WholeWordBash(BashComplete):
        source_template = _BASH

    kind = WholeWordBash if shell == "bash" else get_completion_class(shell)
    if kind is None:
        raise FatalError(f"the installed click {click.__version__} cannot complete {shell}")
    if shell == "zsh":
        # Which a plain .zshrc has not done.
        click.echo("autoload -Uz compinit && (( $+functions[compdef] )) || compinit")
    for program in _PROGRAMS:
        variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
        click.echo(kind(click.Command(program), {}, program, variable).source())
    return EXIT_OK
