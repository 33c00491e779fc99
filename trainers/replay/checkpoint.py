"""Checkpoints of replayed runs: small JSON files that say how far which recorded run was."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from syncswitch.storage.errors import UserError, one_line
from syncswitch.storage.files import whole_file
from syncswitch.storage.records.job import WorkloadIdentity


class ReplayCheckpoint(BaseModel):
    """Where a replayed run was."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    model: str
    fingerprint: str
    run: str
    seed: int
    worker_step: int = Field(ge=0)
    first_protocol_worker_steps: int = Field(ge=0)
    elapsed_seconds: float = Field(ge=0)


def model_of(identity: WorkloadIdentity) -> str:
    """Digest of the model; of an imported job, whose model is unknown, the name."""
    return identity.name if identity.model is None else identity.model


def write_replay_checkpoint(path: Path, checkpoint: ReplayCheckpoint) -> None:
    """Writes the file: it is whole or not there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot make the folder {path.parent}: {error.strerror or error};"
            f" name one that exists and is writable"
        ) from error
    with whole_file(path) as file:
        file.write(checkpoint.model_dump_json(indent=2).encode() + b"\n")


def read_replay_checkpoint(path: Path) -> ReplayCheckpoint:
    """Reads a checkpoint."""
    try:
        return ReplayCheckpoint.model_validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(
            f"checkpoint {path} cannot be read ({one_line(error)}); give a whole checkpoint of a"
            f" replayed run of this workload or start afresh"
        ) from error
