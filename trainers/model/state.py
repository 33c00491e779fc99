"""The state of a training from its start through checkpoints to its Keras file."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import numpy as np

from syncswitch.storage.errors import TooNewError, UserError, one_line
from syncswitch.storage.files import check_private, put_in_place
from syncswitch.storage.formats import CHECKPOINT, KEY
from syncswitch.storage.records.trial import RunEvent, TrialSpec
from syncswitch.trainers.job.embeddings import dense_variables, thin_layers
from syncswitch.trainers.job.keras_parts import build_model, build_optimizer
from syncswitch.trainers.job.schedule import (
    check_position,
    checkpoint_path,
    checkpoint_steps,
    keeps_switch,
    percents_at_switch,
    switch_worker_step,
)
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.embeddings import (
    MEMORY,
    NO_EMBEDDINGS,
    InitialEmbeddings,
    NoRoomForEmbeddingsError,
    ShardPlan,
    StoredEmbeddings,
    rows_on,
    write_embeddings,
)
from syncswitch.trainers.model.function import ModelFunction, moving_variables
from syncswitch.trainers.model.layout import (
    EmbeddingLayout,
    EmbeddingSource,
    FlatLayout,
    ModelState,
    Vector,
)
from syncswitch.trainers.model.optimizer import Optimizer, assign
from syncswitch.trainers.model.row_rules import row_rule
from syncswitch.trainers.model.tensorflow_api import seeded
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.run.record import run_identity
from syncswitch.trainers.trainer import Observer

_LOG = logging.getLogger(__name__)

_GROUPS = ("parameters", "slots", "statistics")
# The array that says which others are embeddings.
_LAYOUTS = "embeddings"


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
    def layouts(self) -> tuple[EmbeddingLayout, ...]:
        return () if self.embeddings is None else self.embeddings.layouts


_SCALARS = {
    name: kind for name, kind in get_type_hints(Checkpoint).items() if kind in (int, float, str)
}


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Writes the file under a temporary name and renames it: it is whole or not there.

    It is as private as its folder.
    """
    arrays = {name: np.array(getattr(checkpoint, name)) for name in _SCALARS}
    arrays[KEY] = np.array(CHECKPOINT.version)
    for group in _GROUPS:
        for name, value in getattr(checkpoint, group).items():
            arrays[f"{group}/{name}"] = value
    if checkpoint.layouts:
        arrays[_LAYOUTS] = np.array(msgspec.json.encode(checkpoint.layouts).decode())
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    private = 0o666 & path.parent.stat().st_mode

    def create(name: str, flags: int) -> int:
        return os.open(name, flags, private)

    try:
        with open(temporary, "x+b", opener=create) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # the stub mistakes the names
            if checkpoint.embeddings is not None:
                write_embeddings(file, checkpoint.embeddings)
        put_in_place(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_checkpoint(path: Path) -> Checkpoint:
    """Reads a whole checkpoint, or raises UserError; its embeddings are read when wanted.

    Raises TooNewError if a newer version has written it in a way that this one cannot read.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            if KEY in file.files:
                CHECKPOINT.check(int(file[KEY]), f"checkpoint {path}")
            layouts: tuple[EmbeddingLayout, ...] = ()
            if _LAYOUTS in file.files:
                layouts = msgspec.json.decode(str(file[_LAYOUTS]), type=tuple[EmbeddingLayout, ...])
            apart = {_LAYOUTS, *(name for layout in layouts for name in layout.members)}
            arrays = {
                name: file[name]
                for name in file.files
                if name not in apart and not name.startswith(f"{MEMORY}/")
            }
        groups: dict[str, Any] = {group: {} for group in _GROUPS}
        for name, value in arrays.items():
            group, _, own_name = name.partition("/")
            if own_name and group in groups:
                groups[group][own_name] = value
        scalars: dict[str, Any] = {name: kind(arrays[name]) for name, kind in _SCALARS.items()}
        embeddings = StoredEmbeddings(path.open("rb"), layouts) if layouts else None
        return Checkpoint(**scalars, **groups, embeddings=embeddings)
    except TooNewError:
        raise
    except Exception as error:  # a damaged archive raises errors of a dozen kinds
        raise UserError(
            f"checkpoint {path} cannot be read ({one_line(error)}); "
            "give a whole checkpoint of this workload or start over",
            code="checkpoint-unusable",
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
    history = history_of(path)
    return math.inf if history is None else len(history["guard"]["failed"])


def history_of(path: Path) -> dict[str, Any] | None:
    """Reads what `RunLog.history` has left in a checkpoint; None if that is damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            history: dict[str, Any] = json.loads(str(file["history"]))
            return history
    except Exception:  # as in `read_checkpoint`, which will tell
        return None


def _own_paths(spec: TrialSpec) -> list[Path]:
    """Returns the paths at which a run of a trial may have left checkpoints, the furthest first."""
    percents = {*spec.checkpoint_percents, spec.switch_percent, *spec.retry_percents}
    return [checkpoint_path(spec, one, ".npz") for one in sorted(percents, reverse=True)]


def own_checkpoint(spec: TrialSpec, path: Path) -> Checkpoint | None:
    """Reads a checkpoint of a run of this very trial; None if it is damaged or missing.

    Raises UserError if it is of another run, TooNewError as `read_checkpoint` does.
    """
    if not path.exists():
        return None
    try:
        checkpoint = read_checkpoint(path)
        writer = json.loads(checkpoint.history)["run"]
    except TooNewError:  # to begin anew would remove it
        raise
    except UserError as error:
        _LOG.warning("%s; passing over it", error)
        return None
    except (ValueError, KeyError, TypeError):
        _LOG.warning("checkpoint %s does not say of which run it is; passing over it", path)
        return None
    for name, value in run_identity(spec).items():
        if writer.get(name) != value:
            raise UserError(
                f"checkpoint {path} is of another run: {name} was {writer.get(name)} and is"
                f" {value}; give the same as then, or another folder, or move it away",
                code="checkpoint-unusable",
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


# Trials share seeds, and initial values take building a model; those of small models are kept.
_KEPT_SEEDS = 8
_FEW_VALUES = 1 << 20


class CheckpointManager:
    """Creates, saves and restores the training state of one workload."""

    def __init__(self, workload: Workload, function: ModelFunction, optimizer: Optimizer) -> None:
        self._workload = workload
        self._optimizer = optimizer
        self.parameters = function.parameters
        self.statistics = function.statistics
        self.slots = optimizer.layout
        self.embeddings = function.embeddings
        self.rule = row_rule(workload) if self.embeddings else None
        slots = () if self.rule is None else self.rule.slots
        self.layouts = tuple(
            EmbeddingLayout(one.name, slots, one.rows, one.width) for one in self.embeddings
        )
        is_kept = not self.embeddings and self.parameters.size <= _FEW_VALUES
        self._initial = lru_cache(_KEPT_SEEDS if is_kept else 0)(self._built)

    def initial(self, seed: int) -> ModelState:
        parameters, statistics, embeddings = self._initial(seed)
        # A training may change them in place.
        slots = self._optimizer.initial_slots()
        return ModelState(parameters.copy(), slots, statistics.copy(), embeddings=embeddings)

    def _built(self, seed: int) -> tuple[Vector, Vector, EmbeddingSource | None]:
        with seeded(seed):
            model = build_model(self._workload)
        embeddings = None
        if self.rule is not None:
            initializers = [layer.embeddings_initializer for layer in thin_layers(model)]
            embeddings = InitialEmbeddings(self.layouts, initializers, self.rule, seed)
        parameters = self.parameters.pack([one for _, one in dense_variables(model)])
        return parameters, self.statistics.pack(moving_variables(model)), embeddings

    def shard_plan(self, server: int = 0, servers: int = 1) -> ShardPlan:
        if self.rule is None:
            return NO_EMBEDDINGS
        shapes = [(rows_on(one.rows, server, servers), one.width) for one in self.embeddings]
        return ShardPlan(tuple(shapes), self.rule)

    def checkpoint(self, state: ModelState, spec: TrialSpec, log: RunLog) -> Checkpoint:
        """Makes a checkpoint of `spec` at the position where its cluster was drained last."""
        return Checkpoint(
            model=spec.identity.recipe.model or "",
            seed=spec.seed,
            worker_step=log.done,
            first_protocol_worker_steps=log.first_protocol_done,
            updates=state.updates,
            elapsed_seconds=log.elapsed_seconds,
            parameters=self.parameters.name(state.parameters),
            slots=self.slots.name(state.slots),
            statistics=self.statistics.name(state.statistics),
            history=log.history(),
            embeddings=state.embeddings,
        )

    def save(
        self, path: Path, percents: Sequence[float], state: ModelState, spec: TrialSpec, log: RunLog
    ) -> None:
        """Writes a checkpoint of a drained run; if that fails, the run continues without it.

        On a full disk older ones make room, and the one at the end may go to a spare directory.
        """
        is_last = log.done == spec.identity.total_worker_steps
        spares = spec.spare_directories if is_last else ()
        for place in (path, *(spare / path.name for spare in spares)):
            try:
                if place != path:
                    check_private(place.parent)
                self._write(place, state, spec, log)
            except OSError as error:
                reason = (
                    f"no checkpoint can be written to {place.parent}"
                    f" ({error.strerror or one_line(error)}); the run continues, but once killed it"
                    " would begin at an earlier one, or afresh: free some disk space"
                )
                log.add_unsaved(reason)
                continue
            log.files.add(percents, place)
            if spec.kept_checkpoints is not None:
                _remove(log.files.drop_all_but(spec.kept_checkpoints, _spared(log)))
            return

    def _write(self, path: Path, state: ModelState, spec: TrialSpec, log: RunLog) -> None:
        try:
            write_checkpoint(path, self.checkpoint(state, spec, log))
        except OSError:
            # Without a limit they are all wanted.
            is_limited = spec.kept_checkpoints is not None
            dropped = log.files.drop_all_but(1, _spared(log)) if is_limited else []
            _remove(dropped)
            if not dropped:
                raise
            write_checkpoint(path, self.checkpoint(state, spec, log))

    def begin(self, spec: TrialSpec, log: RunLog) -> ModelState:
        """Returns the state with which a trial begins: initial, another run's, or its own."""
        if spec.resume:
            remove_unfinished(spec)
        if spec.resume and (own := latest_checkpoint(spec)) is not None:
            path, checkpoint = own
            log.go_back(*checkpoint.position, checkpoint.history)
            for percents, written in written_checkpoints(spec, log.guard.specs, log.done):
                log.files.add(percents, written)
            reason = f"from {path.name}, after {log.done:,} worker-steps"
            log.add_event(RunEvent("resumed", log.done, log.elapsed_seconds, reason))
            return self.restored(checkpoint, path)
        if spec.fork_from is None:
            return self.initial(spec.seed)
        checkpoint = read_checkpoint(spec.fork_from)
        check_position(spec, checkpoint.worker_step, checkpoint.first_protocol_worker_steps)
        if checkpoint.model != spec.identity.recipe.model:
            raise self._foreign(spec.fork_from, f"structure {checkpoint.model[:12]}")
        log.fork(*checkpoint.position)
        return self.restored(checkpoint, spec.fork_from)

    def switch_state(self, spec: TrialSpec, log: RunLog) -> ModelState | None:
        """Returns the state at the switch of a guarded run that goes on after it, and logs it.

        None for any other run, and if the checkpoint is gone, which ends the guard.
        """
        if not log.guard.is_on or log.is_before_switch or log.is_at_guarded_switch:
            return None
        past, now = RunLog(spec, Observer(), lambda accuracy: False), log.guard.spec
        if not switch_worker_step(now):
            log.keep_switch(past.position)
            return self.initial(spec.seed)
        path = checkpoint_path(spec, now.switch_percent, ".npz")
        checkpoint = own_checkpoint(spec, path) if keeps_switch(now) else None
        if checkpoint is None:
            log.guard.give_up()
            _LOG.warning("no checkpoint %s of the switch: the run continues without a guard", path)
            return None
        past.go_back(*checkpoint.position, checkpoint.history)
        log.keep_switch(past.position)
        return self.restored(checkpoint, path)

    def kept_switch(self, keep: Callable[[], ModelState], log: RunLog) -> ModelState | None:
        """Returns a copy of the state at the switch, to which a guarded run can now go back.

        Without room for one it is that of the checkpoint there; without that there is no guard.
        """
        try:
            state = keep()
        except NoRoomForEmbeddingsError as error:
            path = log.files.paths.get(log.guard.spec.switch_percent)
            if path is None:
                log.guard.give_up()
                log.add_unsaved(f"{error}; the run continues without a guard")
                return None
            state = self.restored(read_checkpoint(path), path)
        log.keep_switch()
        return state

    def save_return(self, state: ModelState, spec: TrialSpec, log: RunLog) -> None:
        """Writes a checkpoint of a run that is back at its switch, and removes those after it."""
        percent = log.guard.failed[-1].switch_percent
        if keeps_switch(spec):
            self.save(checkpoint_path(spec, percent, ".npz"), (percent,), state, spec, log)
        _remove(log.files.drop_after(percent))

    def restored(self, checkpoint: Checkpoint, path: Path) -> ModelState:
        """Returns the state in a checkpoint; raises UserError if it is of another workload."""
        for one, other in zip_longest(checkpoint.layouts, self.layouts):
            if one != other:
                difference = f"its embedding table is {one or 'whole'}, not {other or 'whole'}"
                raise self._foreign(path, difference)
        try:
            return ModelState(
                self.parameters.from_named(checkpoint.parameters),
                self.slots.from_named(checkpoint.slots),
                self.statistics.from_named(checkpoint.statistics),
                checkpoint.updates,
                checkpoint.embeddings,
            )
        except (KeyError, ValueError) as error:
            raise self._foreign(path, str(error)) from error

    def _foreign(self, path: Path, difference: str) -> UserError:
        return UserError(
            f"checkpoint {path} is of another model or optimizer than workload "
            f"{self._workload.name!r} ({difference}); give one of this workload",
            code="checkpoint-unusable",
        )


def _spared(log: RunLog) -> float | None:
    """Returns the percent of the checkpoint to which the guard may go back, if any."""
    return log.guard.spec.switch_percent if log.guard.is_on else None


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):  # one too many does no harm
            path.unlink()


def restored_model(workload: Workload, checkpoint: Checkpoint) -> Any:
    """Builds the workload's Keras model, without its large embeddings, from a checkpoint."""
    model = build_model(workload)
    trained, moving = dense_variables(model), moving_variables(model)
    layout = FlatLayout.of(trained, "parameter")
    parameters = layout.from_named(checkpoint.parameters)
    if checkpoint.updates and workload.optimizer and build_optimizer(workload).use_ema:
        parameters = np.concatenate([one.ravel() for one in checkpoint.slots.values()])[
            : layout.size
        ]
    statistics = FlatLayout.of(enumerate(moving)).from_named(checkpoint.statistics)
    assign_values(model, parameters, statistics)
    return model


def assign_values(model: Any, parameters: Vector, statistics: Vector) -> None:
    """Gives a Keras model these values of a run; large embeddings are not among them."""
    trained, moving = dense_variables(model), moving_variables(model)
    assign([one for _, one in trained], FlatLayout.of(trained).split(parameters))
    assign(moving, FlatLayout.of(enumerate(moving)).split(statistics))
