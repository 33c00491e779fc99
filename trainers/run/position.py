"""Where a run was: at a checkpoint, or at a moment from which it may go on."""

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


@dataclass(frozen=True, kw_only=True)
class Position:
    """Where a run was at a checkpoint.

    Attributes:
        worker_step: Worker-steps done, and the position in the data.
        first_protocol_worker_steps: How many of them were done before the switch.
        elapsed_seconds: Training time so far.
        history: Of `RunLog.history`; a fork does not look at it.
    """

    worker_step: int
    first_protocol_worker_steps: int
    elapsed_seconds: float
    history: str = ""


@dataclass(frozen=True)
class LogMark:
    """Where a run was at a moment; see `RunLog.mark`.

    Attributes:
        next_test: Worker-step of the test that nobody had asked for, perhaps one of those
            that are done: the servers may know of steps that the chief has not heard of.
    """

    done: int
    first_protocol_done: int
    elapsed_seconds: float
    inherited_seconds: float
    switch_overhead_seconds: float
    is_detour: bool
    phases: tuple[PhaseRecord, ...]
    protocol_before: str | None
    next_test: int
