"""The checkpoints from which an interrupted run of `syncswitch-run` goes on."""

from __future__ import annotations

import contextlib
import fcntl
import re
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from syncswitch.storage.errors import (
    Command,
    CommandHint,
    FatalError,
    OptionHint,
    Said,
    SyncSwitchError,
    UserError,
    one_line,
)
from syncswitch.storage.files import whole_file
from syncswitch.storage.records.job import Protocols
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.trainers.job.schedule import checkpoint_path

if TYPE_CHECKING:
    from syncswitch.trainers.job.workload import Workload
    from syncswitch.trainers.model.saved import SavedModel

_SUFFIX = ".npz"
_USE = "use"
# See `checkpoint_path`.
_NAME = re.compile(r"seed-(?P<seed>\d+)-switch-(?P<percent>[\d.]+)-at-")

_NEW_SECONDS = 60.0

KEPT = 3
"""Number of checkpoints kept: a run goes on from the last one that is not damaged."""


@dataclass(frozen=True)
class InterruptedRun:
    """A run that left checkpoints.

    Attributes:
        seed: Its seed.
        switch_percent: Its switch point.
        protocols: Its protocols; None where its last checkpoint does not tell.
        candidates: The protocols among which it chooses or has chosen.
        fallbacks: Those with which it may switch again once its switch has failed.
    """

    seed: int
    switch_percent: float
    protocols: Protocols | None = None
    candidates: tuple[Protocols, ...] = ()
    fallbacks: tuple[Protocols, ...] = ()


def interrupted_run(
    folder: Path, seed: int | None = None, percent: float | None = None, *, resume: bool = True
) -> InterruptedRun | None:
    """The interrupted run that left the last checkpoint.

    Raises UserError if there is such a run, and the user wants another one.
    """
    runs = []
    for path in folder.glob(f"*{_SUFFIX}"):
        match = _NAME.match(path.name)
        if match is None or _is_living(path.with_name(f"{match[0]}{_USE}")):
            continue
        run = int(match["seed"]), float(match["percent"])
        if seed in (None, run[0]) and percent in (None, run[1]):
            with contextlib.suppress(FileNotFoundError):  # its run has just come to its end
                runs.append((path.stat().st_mtime, *run, path))
    if runs and not resume:
        raise _left_behind(folder)
    return _of_checkpoint(*max(runs)[1:]) if runs else None


def _of_checkpoint(seed: int, percent: float, path: Path) -> InterruptedRun:
    from syncswitch.trainers.model.state import history_of

    history = history_of(path)
    if history is None:
        return InterruptedRun(seed, percent)
    run = history["run"]
    first, second = run["protocols"].split(",")
    protocols = Protocols(first, second, run["momentum after the switch"])
    # An older version knew none of these.
    second_phase = history.get("second phase", {})
    candidates, fallbacks = (
        tuple(Protocols(**one) for one in second_phase.get(name, ()))
        for name in ("candidates", "fallbacks")
    )
    return InterruptedRun(seed, percent, protocols, candidates, fallbacks)


def _left_behind(folder: Path) -> UserError:
    return UserError(
        f"an interrupted run left checkpoints in {folder.absolute()}",
        remedy=(
            OptionHint("resume", True, "continue from the last one with"),
            "start over: remove them",
            OptionHint("checkpoints", verb="choose another"),
        ),
        code="run-interrupted",
    )


def _remove_needless(folder: Path) -> None:
    """Removes half-written files of killed runs, and use ids of those without a checkpoint."""
    for path in (*folder.glob(".seed-*"), *folder.glob(f"seed-*-{_USE}")):
        run = _NAME.match(path.name.removeprefix("."))
        if run is None:
            continue
        use_file = folder / f"{run[0]}{_USE}"
        is_needed = path == use_file and any(folder.glob(f"{run[0]}*{_SUFFIX}"))
        with contextlib.suppress(OSError):
            # A file that has just been written may not be locked yet.
            is_old = time.time() - path.stat().st_mtime > _NEW_SECONDS
            if is_old and not is_needed and not _is_living(use_file):
                path.unlink()


def _is_living(use_file: Path) -> bool:
    """Whether the run whose use id is in this file is under way."""
    with contextlib.suppress(OSError), use_file.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


class RunCheckpoints:
    """The checkpoints of one run in a folder that others may share; nothing is written at first.

    There is one after each `every_percent` of W and one at the end; the newest stay. For `spares`
    see `TrialSpec`.
    """

    def __init__(
        self, spec: TrialSpec, folder: Path, every_percent: float, spares: Sequence[Path] = ()
    ) -> None:
        self.use_id = uuid.uuid4().hex
        """The name of this run as a use of its policy.

        It is drawn before the run begins and kept beside its checkpoints, so that a run that goes
        on from them is the same use.
        """
        self._folder = folder.absolute()
        temporary = Path(tempfile.gettempdir(), f"syncswitch-{uuid.uuid4().hex}")
        places = (spare.absolute() for spare in (*spares, temporary))
        self._spares = tuple(place for place in places if place != self._folder)
        self._spec = replace(
            spec,
            checkpoint_directory=self._folder,
            spare_directories=self._spares,
            kept_checkpoints=KEPT,
        )
        self._every_percent = float(every_percent)
        self._living: BinaryIO | None = None

    @property
    def spec(self) -> TrialSpec:
        """The run with its checkpoints, including those that an earlier run left."""
        count = int(100 / self._every_percent)
        regular = {round(number * self._every_percent, 6) for number in range(1, count + 1)}
        return replace(
            self._spec, checkpoint_percents=tuple(sorted({*regular, *self._left, 100.0}))
        )

    @property
    def how_to_go_on(self) -> Said:
        """Advice on going on with the run once it is interrupted."""
        if not self._left:
            return "no checkpoint was written yet, so the same command starts over"
        how = OptionHint(
            "resume", True, f"to continue from the last checkpoint in {self._folder}, add"
        )
        return UserError([how])

    def open(self) -> RunCheckpoints:
        """Makes the folder, and draws or finds the use id of the run.

        Raises UserError if the folder cannot be made, or an earlier run left checkpoints that a
        fresh run would overwrite.
        """
        if self._left and not self._spec.resume:
            raise _left_behind(self._folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"the folder cannot be made ({error.strerror or error})",
                parameter="checkpoints",
                value=str(self._folder),
                remedy="choose one that can be written",
                code="file-unusable",
            ) from error
        _remove_needless(self._folder)
        self._keep_use_id()
        with contextlib.suppress(OSError):  # the lock shows others that this run is under way
            self._living = self._use_file.open("rb")
            fcntl.flock(self._living, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return self

    def name_use(self) -> None:
        """Makes sure that a run that goes on does not record this use once more.

        Where the use id cannot be kept beside the checkpoints, these are removed: by now the model
        is saved.
        """
        if not self._use_file.exists() and not self._write_use_id():
            with contextlib.suppress(OSError):
                self.remove()

    def name_unsaved(self, record: TrialRecord) -> bool:
        """The same of a run whose model could not be saved, beside the end of its training.

        Returns whether the use id is there: without it, whoever saves the model is another use.
        """
        final = record.checkpoints.get(100.0)
        folder = self._folder if final is None else final.parent
        return self._write_use_id(folder / self._use_file.name)

    def remove(self) -> None:
        """Removes this run's checkpoints. Raises OSError.

        Deletes the latest checkpoint last, then the use id, so that a run killed half-way keeps its
        identity.
        """
        problems = []
        folders = (*self._spares, self._folder)
        # A killed run may have left an incomplete one, whose name begins with a dot.
        files = [(-1.0, path) for folder in folders for path in folder.glob(f".{self._prefix}*")]
        files += [checkpoint for folder in folders for checkpoint in self._finished(folder)]
        for path in (*(path for _, path in sorted(files)), self._use_file):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                problems.append(error)
        for folder in folders:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if problems:
            raise problems[0]

    def close(self) -> None:
        """Removes the folder if it is empty; a run without checkpoints begins afresh."""
        with contextlib.suppress(OSError):
            if not self._left:
                self._use_file.unlink(missing_ok=True)
            self._folder.rmdir()
        if self._living is not None:
            self._living.close()

    def _keep_use_id(self) -> None:
        if self._left:
            with contextlib.suppress(OSError, ValueError):
                self.use_id = uuid.UUID(self._use_file.read_text()).hex
                return
        self._write_use_id()

    def _write_use_id(self, path: Path | None = None) -> bool:
        with contextlib.suppress(SyncSwitchError), whole_file(path or self._use_file) as file:
            file.write(self.use_id.encode())
            return True
        return False

    @property
    def _use_file(self) -> Path:
        return self._folder / f"{self._prefix}{_USE}"

    @property
    def _prefix(self) -> str:
        return checkpoint_path(self._spec, 0.0, "").name.removesuffix(repr(0.0))

    @property
    def _left(self) -> list[float]:
        return [percent for percent, _ in self._finished(self._folder)]

    def _finished(self, folder: Path) -> list[tuple[float, Path]]:
        """The checkpoints in a folder, each with its percent of W."""
        files = []
        for path in folder.glob(f"{self._prefix}*{_SUFFIX}"):
            with contextlib.suppress(ValueError):  # somebody else's file
                percent = path.name.removeprefix(self._prefix).removesuffix(_SUFFIX)
                files.append((float(percent), path))
        return files


def save_model(
    workload: Workload, record: TrialRecord, checkpoints: RunCheckpoints, output: Path
) -> SavedModel:
    """Saves the model of a run that did not diverge. Raises FatalError where that fails."""
    from syncswitch.trainers.model.saved import export_model

    final = record.checkpoints.get(100.0)
    if final is None:
        reasons = [event.reason for event in record.events if event.kind == "unsaved"]
        raise FatalError(
            "the trained values could not be written anywhere"
            f" ({(reasons or ['no reason known'])[-1]}), so no model was saved",
            remedy=checkpoints.how_to_go_on,
            code="model-not-saved",
        )
    try:
        return export_model(workload, final, output, checkpoints.use_id)
    except Exception as error:  # Keras and HDF5 raise many kinds for a full disk
        why = getattr(error, "strerror", None) or one_line(error)
        raise FatalError(
            (
                f"the model cannot be saved as {output} ({why}); what was there is untouched, and"
                f" what was trained is in {final.parent}: free some disk space or ",
                OptionHint("output", verb="name another"),
                ", and the same call with ",
                OptionHint("checkpoints", str(final.parent), ""),
                " ",
                OptionHint("resume", True, ""),
                " saves it",
            ),
            code="model-not-saved",
        ) from error


def check_sound(record: TrialRecord, reference: str) -> None:
    """Raises FatalError where the training diverged."""
    if record.diverged:
        raise FatalError(
            f"the training diverged after {record.worker_steps:,} worker-steps, so no model was"
            " saved",
            remedy=(
                OptionHint("seed", verb="try another"),
                CommandHint(Command.SEARCH, (reference,), "a later switch, which you find with:"),
            ),
            code="training-diverged",
        )
