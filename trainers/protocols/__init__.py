"""Synchronization protocols as pure state machines."""

from __future__ import annotations

from syncswitch.trainers.protocols.base import (
    NOBODY,
    AfterAverage,
    Exchange,
    Release,
    ReplicaStep,
    SyncProtocol,
)
from syncswitch.trainers.protocols.choice import (
    PROTOCOLS,
    alone,
    check_protocols,
    choose_protocol,
    parse_named_pair,
    parse_pair,
)
from syncswitch.trainers.protocols.period import AveragePeriod

__all__ = [
    "NOBODY",
    "PROTOCOLS",
    "AfterAverage",
    "AveragePeriod",
    "Exchange",
    "Release",
    "ReplicaStep",
    "SyncProtocol",
    "alone",
    "check_protocols",
    "choose_protocol",
    "parse_named_pair",
    "parse_pair",
]
