"""The option `--trainer`, and the options that go with each kind of trainer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from syncswitch.cli.completion import complete_profile
from syncswitch.cli.console import print_note
from syncswitch.cli.options import Decorator, FiniteRange, combined, is_given
from syncswitch.searcher.backends.base import TrainerChoice, TrainerOption
from syncswitch.storage.errors import UserError


def trainer_options(kinds: Sequence[type[TrainerChoice]]) -> Decorator:
    """`--trainer` and the options of these kinds, as one argument `trainer`.

    A process that is not the chief of its cluster does its part there instead of the command. An
    option that goes with other kinds than the chosen one is refused.
    """
    own = {field: option for kind in kinds for field, option in kind.options().items()}
    summaries = "; ".join(f"{kind.name} = {kind.summary}" for kind in kinds)
    kind_option = click.option(
        "--trainer",
        type=click.Choice([kind.name for kind in kinds]),
        metavar="KIND",
        default=kinds[0].name,
        show_default=True,
        help=f"What runs the training: {summaries}.",
    )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def gathered(*arguments: Any, trainer: str, **values: Any) -> Any:
            given = {name: values.pop(name) for name in own}
            kind = next(kind for kind in kinds if kind.name == trainer)
            for name in filter(is_given, (one for one in own if one not in kind.options())):
                owners = " or ".join(other.name for other in kinds if name in other.options())
                raise UserError(
                    f"{_flag(name)} needs --trainer {owners}, and this is --trainer {trainer}:"
                    " change that, or leave it out",
                    code="parameters-conflict",
                )
            chosen = kind(**{name: given[name] for name in kind.options()})
            if chosen.take_part(values.get("reference"), print_note):
                return None
            return function(*arguments, trainer=chosen, **values)

        options = [
            _declared(field, _of_kinds(field, option, kinds)) for field, option in own.items()
        ]
        return combined(kind_option, *options)(gathered)

    return decorate


def _of_kinds(
    field: str, option: TrainerOption, kinds: Sequence[type[TrainerChoice]]
) -> TrainerOption:
    """An option whose help names its kinds, unless the usual one is among them."""
    owners = [kind.name for kind in kinds if field in kind.options()]
    if kinds[0].name in owners:
        return option
    return replace(
        option, help=f"{option.help.removesuffix('.')} (--trainer {' or '.join(owners)})."
    )


def _declared(field: str, option: TrainerOption) -> Decorator:
    flag = _flag(field)
    if option.type is bool:
        return click.option(flag, is_flag=True, default=option.default, help=option.help)
    kind: Any
    if option.choices:
        kind = click.Choice(option.choices)
    elif option.type is Path:
        kind = click.Path(file_okay=False, path_type=Path)
    elif option.least is None and option.most is None:
        kind = option.type
    elif option.type is int:
        kind = click.IntRange(option.least, option.most)
    else:
        kind = FiniteRange(option.least, option.most)
    return click.option(
        flag,
        type=kind,
        metavar=option.metavar or None,
        default=option.default,
        show_default=option.default is not None,
        shell_complete=complete_profile if field == "profile" else None,
        help=option.help,
    )


def _flag(field: str) -> str:
    return f"--{field.replace('_', '-')}"
