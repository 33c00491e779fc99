"""Checkpoints: one npz file keyed by logical parameter name, independent of the cluster's size."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from syncswitch.storage.errors import UserError, one_line
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.job.schedule import (
    checkpoint_path,
    checkpoint_steps,
    percents_at_switch,
    switch_worker_step,
)
from syncswitch.trainers.model.embeddings import StoredEmbeddings, write_embeddings
from syncswitch.trainers.model.layout import EmbeddingForm, EmbeddingSource, Vector
from syncswitch.trainers.run.record import run_identity

_LOG = logging.getLogger(__name__)

_GROUPS = ("parameters", "slots", "statistics")
_SCALARS = {
    "model": str,
    "seed": int,
    "worker_step": int,
    "first_protocol_worker_steps": int,
    "updates": int,
    "elapsed_seconds": float,
    "history": str,
}
# The array that says which others are embeddings.
_FORMS = "embeddings"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The state of a training run between two worker-steps; its variables by logical name."""

    worker_step: int  # done so far, and the position in the data
    first_protocol_worker_steps: int  # those of them that were done before the switch
    elapsed_seconds: float
    model: str  # digest of the model's structure
    seed: int  # of the run; with the worker-step it determines the order of the data
    updates: int  # the optimizer's own step
    parameters: Mapping[str, Vector]
    slots: Mapping[str, Vector]  # the optimizer's variables
    statistics: Mapping[str, Vector]  # moving means and the like
    embeddings: EmbeddingSource | None = None  # those that are trained by rows, with their slots
    history: str = ""  # see `RunLog.history`; a fork does not look at it

    @property
    def position(self) -> tuple[int, int, float]:
        """The position of the run, as `RunLog.fork` and `RunLog.go_back` take it."""
        return self.worker_step, self.first_protocol_worker_steps, self.elapsed_seconds

    @property
    def forms(self) -> tuple[EmbeddingForm, ...]:
        """The forms of the embeddings."""
        return () if self.embeddings is None else self.embeddings.forms


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Writes the file under a temporary name and renames it: it is whole or not there."""
    arrays = {name: np.array(getattr(checkpoint, name)) for name in _SCALARS}
    for group in _GROUPS:
        for name, value in getattr(checkpoint, group).items():
            arrays[f"{group}/{name}"] = value
    if checkpoint.forms:
        arrays[_FORMS] = np.array(msgspec.json.encode(checkpoint.forms).decode())
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w+b") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # the stub mistakes the names
            if checkpoint.embeddings is not None:
                write_embeddings(file, checkpoint.embeddings)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_checkpoint(path: Path) -> Checkpoint:
    """Reads a whole checkpoint, or raises UserError; its embeddings are read when wanted."""
    try:
        with np.load(path, allow_pickle=False) as file:
            forms: tuple[EmbeddingForm, ...] = ()
            if _FORMS in file.files:
                forms = msgspec.json.decode(str(file[_FORMS]), type=tuple[EmbeddingForm, ...])
            apart = {_FORMS, *(name for form in forms for name in form.members)}
            arrays = {name: file[name] for name in file.files if name not in apart}
        groups: dict[str, Any] = {group: {} for group in _GROUPS}
        for name, value in arrays.items():
            group, _, own_name = name.partition("/")
            if own_name:
                groups[group][own_name] = value
        scalars: dict[str, Any] = {name: kind(arrays[name]) for name, kind in _SCALARS.items()}
        embeddings = StoredEmbeddings(path.open("rb"), forms) if forms else None
        return Checkpoint(**scalars, **groups, embeddings=embeddings)
    except Exception as error:  # a damaged archive raises errors of a dozen kinds
        raise UserError(
            f"checkpoint {path} cannot be read ({one_line(error)}); "
            "give a whole checkpoint of this workload or start afresh"
        ) from error


def remove_unfinished(spec: TrialSpec) -> None:
    """Removes the half-written files, under temporary names, of a killed run of this trial."""
    for path in _own_paths(spec):
        for unfinished in path.parent.glob(f".{path.name}.*"):
            unfinished.unlink(missing_ok=True)


def latest_checkpoint(spec: TrialSpec) -> tuple[Path, Checkpoint] | None:
    """Finds the furthest whole checkpoint that a run of this very trial left; None without any.

    If the run has gone back to a switch, checkpoints of the part that failed are removed.
    """
    paths = [path for path in _own_paths(spec) if path.exists()]
    failures = {path: _failures(path) for path in paths}
    for path in sorted(paths, key=failures.__getitem__, reverse=True):
        checkpoint = own_checkpoint(spec, path)
        if checkpoint is not None:
            for later in paths[: paths.index(path)]:
                if failures[later] < failures[path]:
                    later.unlink(missing_ok=True)
            return path, checkpoint
    return None


def _failures(path: Path) -> float:
    """Counts the failed switches that a checkpoint knows; infinite if it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return len(json.loads(str(file["history"]))["guard"]["failed"])
    except Exception:  # as in `read_checkpoint`, which will tell
        return math.inf


def _own_paths(spec: TrialSpec) -> list[Path]:
    """Returns the paths at which a run of a trial may have left checkpoints, the furthest first."""
    percents = {*spec.checkpoint_percents, spec.switch_percent, *spec.retry_percents}
    return [checkpoint_path(spec, one, ".npz") for one in sorted(percents, reverse=True)]


def own_checkpoint(spec: TrialSpec, path: Path) -> Checkpoint | None:
    """Reads a checkpoint of a run of this very trial; None if it is damaged or missing."""
    if not path.exists():
        return None
    try:
        checkpoint = read_checkpoint(path)
        known = json.loads(checkpoint.history)["run"]
    except UserError as error:
        _LOG.warning("%s; passing over it", error)
        return None
    except (ValueError, KeyError, TypeError):
        _LOG.warning("checkpoint %s does not say of which run it is; passing over it", path)
        return None
    for name, value in run_identity(spec).items():
        if known.get(name) != value:
            raise UserError(
                f"checkpoint {path} is of another run: {name} was {known.get(name)} and is {value};"
                " give the same as then, or another folder, or move it away"
            )
    return checkpoint


def written_checkpoints(
    spec: TrialSpec, plans: Sequence[TrialSpec], worker_step: int
) -> Iterator[tuple[tuple[float, ...], Path]]:
    """Yields the files that a trial, carried out by these plans, has left up to a worker-step."""
    steps = checkpoint_steps(plans[-1])
    for plan in plans:
        switch = switch_worker_step(plan)
        steps[switch] = percents_at_switch(plan, steps.get(switch, ()))
    for step, percents in steps.items():
        if not percents:
            continue
        path = checkpoint_path(spec, percents[-1], ".npz")
        if step <= worker_step and path.exists():
            yield percents, path
