"""Where a run is: at a checkpoint, or at a moment from which it may go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from syncswitch.storage.records.trial import PhaseRecord, TrialSpec


def run_identity(spec: TrialSpec) -> dict[str, Any]:
    """What identifies a run among those with checkpoints in the same folder, as JSON."""
    identity, conditions = spec.identity, spec.conditions
    return {
        "job": identity.fingerprint,
        "switch at percent": spec.switch_percent,
        "seed": spec.seed,
        "--online": conditions.online,
        "--switch": conditions.switch_mechanism,
        "--inject": "; ".join(conditions.injections) or None,
    }


@dataclass(frozen=True)
class Position:
    """Where a run is.

    Attributes:
        done: Worker-steps done, and the position in the data.
        first_protocol_done: How many of them were done before the switch.
        elapsed_seconds: Training time so far.
        inherited_seconds: The part of it that a fork did not pay for itself.
        switch_overhead_seconds: So far.
        is_detour: An online policy has left the first protocol for now.
        phases: So far, without those before a fork.
        protocol_before: The protocol that a fork's start was trained with; None at the start.
        next_test: Worker-step of the test that nobody has asked for yet, perhaps one of those
            that are done: the servers may know of steps that the chief has not heard of.
    """

    done: int = 0
    first_protocol_done: int = 0
    elapsed_seconds: float = 0.0
    inherited_seconds: float = 0.0
    switch_overhead_seconds: float = 0.0
    is_detour: bool = False
    phases: tuple[PhaseRecord, ...] = ()
    protocol_before: str | None = None
    next_test: int = 0
