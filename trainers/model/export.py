"""Keras models made of checkpoints."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile, is_zipfile

import numpy as np

from syncswitch.storage.errors import UserError
from syncswitch.storage.files import OwnedFolder
from syncswitch.trainers.job.embeddings import EmbeddingTable, embeddings_of, thin_layers
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.layout import EmbeddingSource

_WEIGHTS = "model.weights.h5"
# What no initializer makes and no training ends with.
_MARK = -8_388_607.0


def save_with_embeddings(model: Any, source: EmbeddingSource, path: Path) -> None:
    """Saves a model that was built without its embeddings, and puts these into the file."""
    embeddings = embeddings_of(model)
    for number, layer in enumerate(thin_layers(model)):
        layer._embeddings.assign(np.full((1, layer.output_dim), _MARK + number, np.float32))
    with tempfile.TemporaryDirectory(prefix=".syncswitch-", dir=path.parent) as folder:
        thin, weights = Path(folder) / path.name, Path(folder) / _WEIGHTS
        model.save(thin)
        with ZipFile(thin) as archive:
            archive.extract(_WEIGHTS, folder)
        _fill(weights, embeddings, source)
        with ZipFile(thin) as archive, ZipFile(path, "w", ZIP_STORED) as whole:
            for name in archive.namelist():
                if name != _WEIGHTS:
                    whole.writestr(name, archive.read(name))
            with weights.open("rb") as file, whole.open(_WEIGHTS, "w", force_zip64=True) as to:
                shutil.copyfileobj(file, to)


def _fill(weights: Path, embeddings: Sequence[EmbeddingTable], source: EmbeddingSource) -> None:
    """Replaces the single rows of Keras' file of weights by whole embeddings."""
    import h5py

    with h5py.File(weights, "r+") as file:
        names: dict[int, str] = {}
        file.visititems(lambda name, found: _note(names, name, found, len(embeddings)))
        for number, table in enumerate(embeddings):
            del file[names[number]]
            file.create_dataset(names[number], (table.rows, table.width), np.float32)
        for block in source.blocks(skips_initial=True):
            if block.part == 0:
                place = slice(block.start, block.start + len(block.values))
                file[names[block.table]][place] = block.values


def _note(names: dict[int, str], name: str, found: Any, embeddings: int) -> None:
    """Notes the embedding that is to lie at a place of the file, if any is."""
    shape: tuple[int, ...] = getattr(found, "shape", ())
    if len(shape) == 2 and shape[0] == 1:
        number = float(found[0, 0]) - _MARK
        if 0 <= number < embeddings and (found[()] == found[0, 0]).all():
            names[int(number)] = name


_SUFFIX = ".keras"


def check_model_path(path: Path) -> None:
    """Raises UserError, before the training, where the model could not be saved after it."""
    if path.suffix != _SUFFIX:
        raise UserError(f"--output is {path}: give a name that ends in {_SUFFIX}")
    folder = path.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UserError(f"--output is {path}: {folder} is no folder that can be written to")
    if path.is_dir():
        raise UserError(f"--output is {path}: that is a folder; give the name of a file")
    if path.is_file() and not is_zipfile(path):
        raise UserError(f"--output is {path}: that file is no Keras model; name another one")


def load_model(workload: Workload, checkpoint_path: Path) -> Any:
    """The workload's Keras model with the values of a checkpoint, whole."""
    from syncswitch.trainers.model.checkpoint import read_checkpoint
    from syncswitch.trainers.model.state import restored_model

    checkpoint = read_checkpoint(checkpoint_path)
    if checkpoint.embeddings is None:
        return restored_model(workload, checkpoint.parameters, checkpoint.statistics)
    parameters = dict(checkpoint.parameters)
    for form in checkpoint.forms:
        parameters[form.name] = np.empty((form.rows, form.width), np.float32)
    for block in checkpoint.embeddings.blocks():
        if block.part == 0:
            table = parameters[checkpoint.forms[block.table].name]
            table[block.start : block.start + len(block.values)] = block.values
    whole = replace(workload, least_embedding_values=None)
    return restored_model(whole, dict(sorted(parameters.items())), checkpoint.statistics)


def export_model(workload: Workload, checkpoint_path: Path, path: Path) -> None:
    """Writes a checkpoint's values as a `.keras` file, whole or not at all.

    Large embeddings go from file to file; the model is never whole in memory.
    """
    from syncswitch.trainers.model.checkpoint import read_checkpoint
    from syncswitch.trainers.model.state import restored_model

    checkpoint = read_checkpoint(checkpoint_path)
    model = restored_model(workload, checkpoint.parameters, checkpoint.statistics)
    with OwnedFolder(".syncswitch-model-", path.parent) as folder:
        # Keras chooses the format by the suffix, so the temporary name keeps it.
        temporary = folder / f"model{_SUFFIX}"
        if checkpoint.embeddings is None:
            model.save(temporary)
        else:
            save_with_embeddings(model, checkpoint.embeddings, temporary)
        os.replace(temporary, path)
