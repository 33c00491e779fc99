"""Synchronisation protocols as pure state machines."""

from __future__ import annotations

from collections.abc import Mapping

from syncswitch.storage.errors import UserError
from syncswitch.trainers.protocols.asp import ASP
from syncswitch.trainers.protocols.base import SyncProtocol
from syncswitch.trainers.protocols.bsp import BSP

__all__ = ["ASP", "BSP", "PROTOCOLS", "SyncProtocol", "check_protocols", "parse_pair"]

PROTOCOLS: Mapping[str, type[SyncProtocol]] = {protocol.name: protocol for protocol in (BSP, ASP)}


def parse_pair(text: str) -> tuple[str, str]:
    """Reads `first,second`, the protocols before and after the switch.

    Raises:
        UserError: It is not two different known names.
    """
    names = tuple(part.strip().lower() for part in text.split(","))
    if len(names) != 2 or names[0] == names[1]:
        raise UserError(
            f"--protocols is {text!r}: give two different protocols, before and after the switch, "
            f"such as bsp,asp (known: {', '.join(sorted(PROTOCOLS))})"
        )
    check_protocols(*names)
    return names[0], names[1]


def check_protocols(*names: str) -> None:
    """Makes sure that these protocols exist.

    Raises:
        UserError: One does not.
    """
    for name in names:
        if name not in PROTOCOLS:
            raise UserError(f"no protocol {name!r}; known: {', '.join(sorted(PROTOCOLS))}")
