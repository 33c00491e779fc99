"""The model that a run leaves: a Keras file, or where Keras cannot make one its weights."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZIP_STORED, ZipFile, is_zipfile

import numpy as np

from syncswitch.storage.errors import UserError, one_line
from syncswitch.storage.files import OwnedFolder, put_in_place
from syncswitch.trainers.job.embeddings import thin_layers
from syncswitch.trainers.job.keras_parts import build_model
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.embeddings import SettledEmbeddings
from syncswitch.trainers.model.layout import EmbeddingSource
from syncswitch.trainers.model.row_rules import row_rule
from syncswitch.trainers.model.state import read_checkpoint, restored_model

_MODEL, _ONLY_WEIGHTS = ".keras", ".weights.h5"
_RUN = "syncswitch_run"


def check_model_path(path: Path) -> None:
    """Raises UserError if a model could not be saved there; called before its training."""
    import h5py

    folder, problem = path.parent, None
    if not path.name.endswith((_MODEL, _ONLY_WEIGHTS)):
        problem = f"give a name that ends in {_MODEL}, or for the weights alone in {_ONLY_WEIGHTS}"
    elif not folder.is_dir() or not os.access(folder, os.W_OK):
        problem = f"{folder} is not a folder that can be written to"
    elif path.is_dir():
        problem = "that is a folder; give the name of a file"
    elif path.is_file() and not (
        h5py.is_hdf5(path) if path.name.endswith(_ONLY_WEIGHTS) else is_zipfile(path)
    ):
        problem = "that file is not a Keras model; name another one"
    if problem is not None:
        raise UserError(problem, parameter="output", value=str(path), code="file-unusable")


def weights_path(path: Path) -> Path:
    """Returns the path of the weights of a model that cannot be saved at this one."""
    name = path.name.removesuffix(_MODEL).removesuffix(_ONLY_WEIGHTS)
    return path.with_name(f"{name}{_ONLY_WEIGHTS}")


def saving_problem(workload: Workload, path: Path) -> UserError | None:
    """Saves the untrained model and reads it again; returns what to know before its training.

    None if that works, and if there is no room at present. Raises UserError if the weights would
    have to be saved at a path where they cannot be.
    """
    if path.name.endswith(_ONLY_WEIGHTS):
        return None
    model = build_model(workload)
    own = {type(one).__name__: type(one) for one in (model, *model._flatten_layers())}
    try:
        with OwnedFolder("syncswitch-model-") as folder:
            file = folder / f"model{_MODEL}"
            try:
                model.save(file)
            except OSError:
                return None
            except Exception as error:
                weights = weights_path(path)
                check_model_path(weights)
                return UserError(
                    f"Keras cannot save this model ({_reason(error)}), so its weights are saved,"
                    f" as {weights}: {_how_to_load(workload, weights)}"
                )
            import keras

            with keras.saving.custom_object_scope(own):
                keras.saving.load_model(file, compile=False, safe_mode=False)
    except OSError:
        return None
    except Exception as error:
        if "locate" in str(error):  # what users have to name to Keras, which works
            return None
        return UserError(
            f"Keras can save this model, as {path}, but not load it whole ({_reason(error)}):"
            f" {_how_to_load(workload, path)}"
        )
    return None


def _reason(error: Exception) -> str:
    """Returns the first sentence of an error; those of Keras go on for pages."""
    return one_line(error).partition(". ")[0]


def _how_to_load(workload: Workload, path: Path) -> str:
    return (
        f"build it as workload {workload.name!r} does, and give it the trained values with"
        f" load_weights({path.name!r})"
    )


class SavedModel(NamedTuple):
    """Where a model is, and where another run's that was there is kept; None if there was none."""

    path: Path
    earlier: Path | None


def export_model(
    workload: Workload, checkpoint_path: Path, path: Path, run: str = ""
) -> SavedModel:
    """Writes a checkpoint's values as a Keras file, whole or not at all.

    Large embeddings go from file to file; the model is never whole in memory. If Keras cannot save
    the model, its weights are saved beside it. The file of another run there is kept under another
    name; `run` tells runs apart.
    """
    checkpoint = read_checkpoint(checkpoint_path)
    model = restored_model(workload, checkpoint)
    embeddings = checkpoint.embeddings
    if embeddings is not None:
        embeddings = SettledEmbeddings(embeddings, row_rule(workload))
    # Values by which to find the single row of each large embedding in the file.
    for number, layer in enumerate(thin_layers(model)):
        layer._embeddings.assign(np.full((1, layer.output_dim), _MARK + number, np.float32))
    with OwnedFolder(".syncswitch-model-", path.parent) as folder:
        # Keras chooses the format by the suffix, so the temporary name keeps it.
        temporary = folder / f"model{_MODEL}"
        if not path.name.endswith(_ONLY_WEIGHTS):
            try:
                model.save(temporary)
            except OSError:
                raise
            except Exception:
                path = weights_path(path)
        if path.name.endswith(_ONLY_WEIGHTS):
            temporary = folder / f"model{_ONLY_WEIGHTS}"
            model.save_weights(temporary)
            if embeddings is not None:
                _fill(temporary, embeddings)
        elif embeddings is not None:
            _put_in(embeddings, temporary, folder)
        _sign(temporary, run)
        return SavedModel(path, _put_beside_others(temporary, path, run))


def _sign(path: Path, run: str) -> None:
    """Notes the run in a file of either kind, where Keras does not look."""
    import h5py

    if path.name.endswith(_ONLY_WEIGHTS):
        with h5py.File(path, "r+") as file:
            file.attrs[_RUN] = run
        return
    with ZipFile(path, "a") as archive:
        archive.comment = f"{_RUN} {run}".encode()


def _run_of(path: Path) -> str | None:
    import h5py

    with suppress(Exception):  # any file may be there
        if path.name.endswith(_ONLY_WEIGHTS):
            with h5py.File(path, "r") as file:
                return str(file.attrs[_RUN])
        with ZipFile(path) as archive:
            return archive.comment.decode().removeprefix(f"{_RUN} ")
    return None


def _put_beside_others(temporary: Path, path: Path, run: str) -> Path | None:
    """Puts a model in place; returns where that of another run is kept, if there was one."""
    with _alone(path.parent):
        earlier = None
        if path.is_file() and _run_of(path) != run:
            earlier = _kept_as(path)
        put_in_place(temporary, path)
        return earlier


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Waits until no other run puts its model into this folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # not all file systems have locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _kept_as(path: Path) -> Path:
    """Gives a file a second name, NAME-1 or the next one that is free."""
    suffix = _ONLY_WEIGHTS if path.name.endswith(_ONLY_WEIGHTS) else path.suffix
    stem, number = path.name.removesuffix(suffix), 1
    while True:
        kept = path.with_name(f"{stem}-{number}{suffix}")
        try:
            os.link(path, kept)
        except FileExistsError:
            if kept.samefile(path):  # a run was killed right after this
                return kept
            number += 1
            continue
        except OSError:  # no file has two names here
            path.rename(kept)
        return kept


_WEIGHTS = "model.weights.h5"
# No initializer makes such a value, and no training ends with one.
_MARK = -8_388_607.0


def _put_in(source: EmbeddingSource, path: Path, folder: Path) -> None:
    """Replaces the marked rows in a Keras file by whole embeddings."""
    thin, weights = folder / "thin", folder / _WEIGHTS
    path.rename(thin)
    with ZipFile(thin) as archive:
        archive.extract(_WEIGHTS, folder)
    _fill(weights, source)
    with ZipFile(thin) as archive, ZipFile(path, "w", ZIP_STORED) as whole:
        for name in archive.namelist():
            if name != _WEIGHTS:
                whole.writestr(name, archive.read(name))
        with weights.open("rb") as file, whole.open(_WEIGHTS, "w", force_zip64=True) as to:
            shutil.copyfileobj(file, to)


def _fill(weights: Path, source: EmbeddingSource) -> None:
    import h5py

    names: dict[int, str] = {}

    def note(name: str, item: Any) -> None:
        shape: tuple[int, ...] = getattr(item, "shape", ())
        if len(shape) == 2 and shape[0] == 1:
            number = float(item[0, 0]) - _MARK
            if 0 <= number < len(source.layouts) and (item[()] == item[0, 0]).all():
                names[int(number)] = name

    with h5py.File(weights, "r+") as file:
        file.visititems(note)
        for number, layout in enumerate(source.layouts):
            del file[names[number]]
            file.create_dataset(names[number], (layout.rows, layout.width), np.float32)
            start = 0
            for values in source.part(number, 0):
                file[names[number]][start : start + len(values)] = values
                start += len(values)
