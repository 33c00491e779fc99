"""Synchronization protocols as pure state machines."""

from __future__ import annotations

from syncswitch.trainers.protocols.asp import ASP
from syncswitch.trainers.protocols.base import (
    NOBODY,
    AfterAverage,
    Exchange,
    Release,
    ReplicaStep,
    SyncProtocol,
)
from syncswitch.trainers.protocols.bsp import BSP
from syncswitch.trainers.protocols.choice import (
    ENTRY_POINT_GROUP,
    PROTOCOLS,
    ProtocolChoice,
    alone,
    check_protocols,
    choose_protocol,
    parse_named_pair,
    parse_pair,
)
from syncswitch.trainers.protocols.ds_sync import DSSync, partition
from syncswitch.trainers.protocols.dssp import DSSP
from syncswitch.trainers.protocols.gba import GBA
from syncswitch.trainers.protocols.local_sgd import LocalSGD
from syncswitch.trainers.protocols.period import AveragePeriod
from syncswitch.trainers.protocols.qsr import QSR
from syncswitch.trainers.protocols.selsync import SelSync
from syncswitch.trainers.protocols.ssp import SSP

__all__ = [
    "ASP",
    "BSP",
    "DSSP",
    "ENTRY_POINT_GROUP",
    "GBA",
    "NOBODY",
    "PROTOCOLS",
    "QSR",
    "SSP",
    "AfterAverage",
    "AveragePeriod",
    "DSSync",
    "Exchange",
    "LocalSGD",
    "ProtocolChoice",
    "Release",
    "ReplicaStep",
    "SelSync",
    "SyncProtocol",
    "alone",
    "check_protocols",
    "choose_protocol",
    "parse_named_pair",
    "parse_pair",
    "partition",
]
