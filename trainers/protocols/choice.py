"""Parses protocols with their options, such as `ssp:3`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from syncswitch.storage.errors import UserError
from syncswitch.trainers.extensions import registered
from syncswitch.trainers.protocols.asp import ASP
from syncswitch.trainers.protocols.base import AfterAverage, Exchange, SyncProtocol
from syncswitch.trainers.protocols.bsp import BSP
from syncswitch.trainers.protocols.ds_sync import DSSync
from syncswitch.trainers.protocols.dssp import DSSP
from syncswitch.trainers.protocols.gba import GBA
from syncswitch.trainers.protocols.local_sgd import LocalSGD
from syncswitch.trainers.protocols.qsr import QSR
from syncswitch.trainers.protocols.selsync import SelSync
from syncswitch.trainers.protocols.ssp import SSP

PROTOCOLS: Mapping[str, type[SyncProtocol]] = {
    protocol.name: protocol
    for protocol in (BSP, ASP, SSP, DSSP, DSSync, LocalSGD, QSR, SelSync, GBA)
}
"""The protocols that come with syncswitch, by name."""

ENTRY_POINT_GROUP = "syncswitch.protocols"
"""Entry point group in which other packages register their protocols."""

_USAGES = ", ".join(sorted(protocol.usage for protocol in PROTOCOLS.values()))
_LONGEST_NAME = 64  # width of the database's columns
_NAME = re.compile(r"[a-z0-9][a-z0-9._+:-]*")


@dataclass(frozen=True)
class ProtocolChoice:
    """A protocol with its options."""

    text: str  # the choice as it is recorded, such as `dssp:3-15`
    kind: type[SyncProtocol]  # class of the state machine
    options: Mapping[str, Any]  # keyword arguments of that class

    @property
    def exchange(self) -> Exchange:
        return self.kind.exchange

    @property
    def after(self) -> AfterAverage:
        """What becomes of the optimizers of replicas that are averaged."""
        after: AfterAverage = self.options.get("after", self.kind.after)
        return after

    def check_cluster(self, workers: int) -> None:
        """Raises UserError if the protocol cannot be used with this number of workers."""
        try:
            self.kind.check_cluster(workers, self.options)
        except ValueError as error:
            raise UserError(
                f"protocol {self.text!r} cannot be used: {error}",
                parameter="workers",
                value=workers,
            ) from error

    @property
    def period_steps(self) -> int:
        """Steps of each worker from one average of replicas to the next, at least; else 1."""
        return int(self.options.get("period_steps", self.options.get("least_steps", 1)))

    def machine(
        self, workers: Iterable[int], done: int = 0, second_since: int | None = None
    ) -> SyncProtocol:
        """A fresh state machine for these workers, after so many worker-steps of the job."""
        protocol = self.kind(workers, **self.options)
        protocol.place(done, second_since)
        return protocol


@cache
def choose_protocol(text: str) -> ProtocolChoice:
    """Reads `name` or `name:options`; raises UserError if it is not a protocol."""
    name, colon, rest = text.strip().lower().partition(":")
    others = registered(ENTRY_POINT_GROUP, SyncProtocol, name)  # type: ignore[type-abstract]
    kind = PROTOCOLS.get(name) or next(others, None)
    if isinstance(kind, UserError):
        raise kind
    if kind is None:
        raise UserError(f"no protocol {text.strip()!r}; known: {_USAGES}", code="parameter-invalid")
    try:
        if colon and not rest:
            raise ValueError("nothing follows the colon")
        options = kind.parse_options(rest)
    except ValueError as error:
        raise UserError(
            f"protocol {text.strip()!r}: {error}; write it as {kind.usage}",
            code="parameter-invalid",
        ) from error
    written = kind.format_options(options)
    canonical = f"{name}:{written}" if written else name
    if len(canonical) > _LONGEST_NAME:
        raise UserError(
            f"protocol {text!r} is longer than {_LONGEST_NAME} characters", code="parameter-invalid"
        )
    return ProtocolChoice(canonical, kind, options)


_USUAL = ("asp", "bsp")


def parse_pair(text: str) -> tuple[str, str]:
    """Reads `first,second`, the protocols before and after the switch, into their recorded form."""
    wrong = UserError(
        "give two different protocols, before and after the switch, such as bsp,asp"
        f" (known: {_USAGES})",
        parameter="protocols",
        value=text,
    )
    return _pair(text, wrong, lambda name: choose_protocol(name).text)


def alone(text: str) -> tuple[str, str]:
    """The recorded pair of a job that uses one protocol alone, which is the first of the pair."""
    first = choose_protocol(text).text
    return first, next(name for name in _USUAL if name != first)


def parse_named_pair(text: str) -> tuple[str, str]:
    """Reads a pair like `parse_pair`, but also names that only the trained command knows."""
    wrong = UserError(
        "give two different names, before and after the switch, such as ddp,local-sgd"
        f" (letters, digits and . _ + : -, at most {_LONGEST_NAME})",
        parameter="protocols",
        value=text,
    )

    def name(written: str) -> str:
        with suppress(UserError):
            return choose_protocol(written).text
        plain = written.strip().lower()
        if not _NAME.fullmatch(plain) or len(plain) > _LONGEST_NAME:
            raise wrong
        return plain

    return _pair(text, wrong, name)


def _pair(text: str, wrong: UserError, name: Callable[[str], str]) -> tuple[str, str]:
    texts = text.split(",")
    if len(texts) != 2 or not all(map(str.strip, texts)):
        raise wrong
    first, second = map(name, texts)
    if first == second:
        raise wrong
    return first, second


def check_protocols(names: Iterable[str], workers: int) -> None:
    """Raises UserError if a protocol does not exist or cannot be used with so many workers."""
    for name in names:
        choose_protocol(name).check_cluster(workers)
