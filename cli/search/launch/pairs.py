"""`--protocols` of `run`: one pair, or several that are searched together."""

from __future__ import annotations

from collections.abc import Sequence

import click

from syncswitch.cli.completion import complete_protocols
from syncswitch.cli.options import PROTOCOLS_HELP
from syncswitch.searcher.backends.base import TrainerChoice
from syncswitch.storage.errors import UserError
from syncswitch.trainers.options import USUAL_PROTOCOLS

_ANY = "any"
_ANY_PAIRS = (USUAL_PROTOCOLS, "bsp,ssp:3", "bsp,dssp:3-15", "bsp,gba:3")

pairs_option = click.option(
    "--protocols",
    "protocols",
    metavar="FIRST,SECOND|any",
    multiple=True,
    shell_complete=complete_protocols,
    help=f"{PROTOCOLS_HELP} With several pairs, which begin with the same protocol, one search"
    f" finds the fastest that keeps the accuracy; {_ANY} = {' '.join(_ANY_PAIRS)}. A training"
    f" command of your own has any two names for its two ways."
    f"  [default: {TrainerChoice.default_protocols}]",
)


def chosen_pairs(trainer: TrainerChoice, texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The pairs of `--protocols`, each once, or the usual one.

    Raises UserError where they cannot be searched together, or one is no pair.
    """
    if not texts:
        return (trainer.pair(None),)
    if _ANY in texts:
        if len(texts) > 1:
            raise UserError(
                f"--protocols {_ANY} already names several pairs; leave it out, or the others"
            )
        if trainer.default_protocols != USUAL_PROTOCOLS:
            raise UserError(
                f"--protocols {_ANY} is for protocols of syncswitch, and only you know what your"
                " command calls its ways of training; give each pair with a --protocols"
            )
        texts = _ANY_PAIRS
    pairs = tuple(dict.fromkeys(map(trainer.pair, texts)))
    firsts = dict.fromkeys(first for first, _ in pairs)
    if len(firsts) > 1:
        raise UserError(
            f"--protocols begin with {' and '.join(firsts)}: pairs that are searched together begin"
            " with the same protocol, which says what the accuracy is to be; search the others"
            " apart"
        )
    return pairs
