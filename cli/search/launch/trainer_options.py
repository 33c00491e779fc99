"""`--trainer`, and the options that go with each kind of trainer."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import click

from syncswitch.cli.console import print_note
from syncswitch.cli.trainer_kinds import trainer_chosen
from syncswitch.searcher.backends.base import Job, TrainerChoice
from syncswitch.searcher.backends.registry import TRAINERS

_F = TypeVar("_F", bound=Callable[..., Any])


def trainer_options(function: _F) -> _F:
    """`--trainer` and the options of all kinds, as one argument `trainer`."""

    @functools.wraps(function)
    def unless_a_part(*arguments: Any, trainer: TrainerChoice, **values: Any) -> Any:
        if trainer.take_part(values.get("reference"), print_note):
            return None
        return function(*arguments, trainer=trainer, **values)

    kinds = "; ".join(f"{kind.name} = {kind.summary}" for kind in TRAINERS)
    kind_option = click.option(
        "--trainer",
        type=click.Choice([kind.name for kind in TRAINERS]),
        metavar="KIND",
        default=TRAINERS[0].name,
        show_default=True,
        help=f"What makes the runs: {kinds}.",
    )
    decorated: Any = kind_option(trainer_chosen(TRAINERS)(unless_a_part))
    found: _F = decorated
    return found


def noted(job: Job) -> Job:
    """The job; says what the user should know of it beforehand."""
    if job.note is not None:
        print_note(job.note)
    return job
