"""Keras files made of checkpoints."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile, is_zipfile

import numpy as np

from syncswitch.storage.errors import UserError
from syncswitch.storage.files import OwnedFolder
from syncswitch.trainers.job.embeddings import thin_layers
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.layout import EmbeddingSource

_SUFFIX = ".keras"


def check_model_path(path: Path) -> None:
    """Raises UserError if a model could not be saved there; called before its training."""
    if path.suffix != _SUFFIX:
        raise UserError(f"--output is {path}: give a name that ends in {_SUFFIX}")
    folder = path.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UserError(f"--output is {path}: {folder} is not a folder that can be written to")
    if path.is_dir():
        raise UserError(f"--output is {path}: that is a folder; give the name of a file")
    if path.is_file() and not is_zipfile(path):
        raise UserError(f"--output is {path}: that file is not a Keras model; name another one")


def export_model(workload: Workload, checkpoint_path: Path, path: Path) -> None:
    """Writes a checkpoint's values as a `.keras` file, whole or not at all.

    Large embeddings go from file to file; the model is never whole in memory.
    """
    from syncswitch.trainers.model.checkpoint import read_checkpoint
    from syncswitch.trainers.model.state import restored_model

    checkpoint = read_checkpoint(checkpoint_path)
    model = restored_model(workload, checkpoint)
    # Values by which to find the single row of each large embedding in the file.
    for number, layer in enumerate(thin_layers(model)):
        layer._embeddings.assign(np.full((1, layer.output_dim), _MARK + number, np.float32))
    with OwnedFolder(".syncswitch-model-", path.parent) as folder:
        # Keras chooses the format by the suffix, so the temporary name keeps it.
        temporary = folder / f"model{_SUFFIX}"
        model.save(temporary)
        if checkpoint.embeddings is not None:
            _put_in(checkpoint.embeddings, temporary, folder)
        os.replace(temporary, path)


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

    def note(name: str, found: Any) -> None:
        shape: tuple[int, ...] = getattr(found, "shape", ())
        if len(shape) == 2 and shape[0] == 1:
            number = float(found[0, 0]) - _MARK
            if 0 <= number < len(source.forms) and (found[()] == found[0, 0]).all():
                names[int(number)] = name

    with h5py.File(weights, "r+") as file:
        file.visititems(note)
        for number, form in enumerate(source.forms):
            del file[names[number]]
            file.create_dataset(names[number], (form.rows, form.width), np.float32)
        for block in source.blocks(skips_initial=True):
            if block.part == 0:
                place = slice(block.start, block.start + len(block.values))
                file[names[block.table]][place] = block.values
