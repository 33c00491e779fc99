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

import numpy as np

from syncswitch.storage.errors import UserError, one_line
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.job.schedule import (
    checkpoint_path,
    checkpoint_steps,
    percents_at_switch,
    switch_worker_step,
)
from syncswitch.trainers.model.embeddings.blocks import (
    LIST,
    EmbeddingForm,
    forms_of,
    listed,
    stored_embeddings,
    write_embeddings,
)
from syncswitch.trainers.model.layout import EmbeddingSource, Vector
from syncswitch.trainers.run.record import run_identity

_LOG = logging.getLogger(__name__)

_GROUPS = ("parameters", "slots", "statistics")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The state of a training run between two worker-steps.

    Attributes:
        worker_step: Worker-steps done, and the position in the data.
        first_protocol_worker_steps: Those of them that were done before the switch.
        elapsed_seconds: Training time so far.
        model: Digest of the model's structure.
        seed: Seed of the run: with the worker-step it determines the order of the data.
        updates: Updates applied (the optimizer's own step).
        parameters: Trained variables by logical name.
        slots: The optimizer's variables by logical name.
        statistics: Other variables of the model (moving means) by logical name.
        embeddings: Embeddings that are trained by their rows, with the optimizer's slots of them;
            None where there are none.
        forms: Forms of these.
        history: History of the run, see `RunLog.history`; a fork does not look at it.
    """

    worker_step: int
    first_protocol_worker_steps: int
    elapsed_seconds: float
    model: str
    seed: int
    updates: int
    parameters: Mapping[str, Vector]
    slots: Mapping[str, Vector]
    statistics: Mapping[str, Vector]
    embeddings: EmbeddingSource | None = None
    forms: tuple[EmbeddingForm, ...] = ()
    history: str = ""

    @property
    def position(self) -> tuple[int, int, float]:
        """Where the run was, as `RunLog.fork` and `RunLog.go_back` take it."""
        return self.worker_step, self.first_protocol_worker_steps, self.elapsed_seconds


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Writes the file under a temporary name and renames it: it is whole or not there."""
    arrays: dict[str, np.ndarray] = {
        "model": np.array(checkpoint.model),
        "seed": np.array(checkpoint.seed),
        "worker_step": np.array(checkpoint.worker_step),
        "first_protocol_worker_steps": np.array(checkpoint.first_protocol_worker_steps),
        "updates": np.array(checkpoint.updates),
        "elapsed_seconds": np.array(checkpoint.elapsed_seconds),
        "history": np.array(checkpoint.history),
    }
    for group in _GROUPS:
        for name, value in getattr(checkpoint, group).items():
            arrays[f"{group}/{name}"] = value
    if checkpoint.embeddings is not None:
        arrays[LIST] = np.array(listed(checkpoint.forms))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w+b") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # the stub mistakes the names
            if checkpoint.embeddings is not None:
                write_embeddings(file, checkpoint.forms, checkpoint.embeddings)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_checkpoint(path: Path) -> Checkpoint:
    """Reads a checkpoint, but for its embeddings, which are read when somebody wants them."""
    try:
        with np.load(path, allow_pickle=False) as file:
            forms = forms_of(str(file[LIST])) if LIST in file.files else ()
            apart = {name for form in forms for name in form.members}
            arrays = {name: file[name] for name in file.files if name not in apart}
        groups = {
            group: {
                name.removeprefix(f"{group}/"): value
                for name, value in arrays.items()
                if name.startswith(f"{group}/")
            }
            for group in _GROUPS
        }
        return Checkpoint(
            model=str(arrays["model"]),
            seed=int(arrays["seed"]),
            worker_step=int(arrays["worker_step"]),
            first_protocol_worker_steps=int(arrays["first_protocol_worker_steps"]),
            updates=int(arrays["updates"]),
            elapsed_seconds=float(arrays["elapsed_seconds"]),
            history=str(arrays.get("history", "")),
            **groups,
            embeddings=stored_embeddings(path, forms) if forms else None,
            forms=forms,
        )
    except Exception as error:  # a damaged archive raises errors of a dozen kinds
        raise UserError(
            f"checkpoint {path} cannot be read ({one_line(error)}); "
            "give a whole checkpoint of this workload or start afresh"
        ) from error


def remove_unfinished(spec: TrialSpec) -> None:
    """Removes what a killed run of this very trial has half written, under temporary names."""
    for path in _own_paths(spec):
        for unfinished in path.parent.glob(f".{path.name}.*"):
            unfinished.unlink(missing_ok=True)


def latest_checkpoint(spec: TrialSpec) -> tuple[Path, Checkpoint] | None:
    """The furthest whole checkpoint that a run of this very trial left; None where there is none.

    A damaged one is passed over, with a warning. Where the run has gone back to a switch, which the
    checkpoint there knows, those of the part that failed are removed.
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
    """Number of failed switches that a checkpoint knows; infinite where it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return len(json.loads(str(file["history"]))["guard"]["failed"])
    except Exception:  # as of `read_checkpoint`, which is to say so
        return math.inf


def _own_paths(spec: TrialSpec) -> list[Path]:
    """Where a run of a trial may have left checkpoints, that of the most worker-steps first."""
    percents = {*spec.checkpoint_percents, spec.switch_percent, *spec.retry_percents}
    return [checkpoint_path(spec, one, ".npz") for one in sorted(percents, reverse=True)]


def own_checkpoint(spec: TrialSpec, path: Path) -> Checkpoint | None:
    """A checkpoint of a run of this very trial; None where it is damaged or not there."""
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
    _check_run(path, known, run_identity(spec))
    return checkpoint


def written_checkpoints(
    spec: TrialSpec, plans: Sequence[TrialSpec], worker_step: int
) -> Iterator[tuple[tuple[float, ...], Path]]:
    """Files that a trial has left up to a worker-step, with the percents that each belongs to.

    Args:
        spec: The trial.
        plans: The trial as it was carried out, see `Guarding.plans`.
        worker_step: Last worker-step of which files are listed.
    """
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


def _check_run(path: Path, known: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    for name, value in own.items():
        if known.get(name) != value:
            raise UserError(
                f"checkpoint {path} is of another run: {name} was {known.get(name)} and is {value};"
                " give the same as then, or another folder, or move it away"
            )
