"""A `.keras` file of a model whose embedding tables are too large to hold."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile

import numpy as np

from syncswitch.trainers.job.embeddings import Table, tables_of, thin_layers
from syncswitch.trainers.model.layout import TableSource

_WEIGHTS = "model.weights.h5"
# What no initializer makes and no training ends with.
_MARK = -8_388_607.0


def save_with_tables(model: Any, source: TableSource, path: Path) -> None:
    """Saves a model that was built without its tables, and puts them into the file.

    Args:
        model: The model.
        source: Of its tables.
        path: Of the new file.
    """
    tables = tables_of(model)
    for number, layer in enumerate(thin_layers(model)):
        layer._embeddings.assign(np.full((1, layer.output_dim), _MARK + number, np.float32))
    with tempfile.TemporaryDirectory(prefix=".syncswitch-", dir=path.parent) as folder:
        thin, weights = Path(folder) / path.name, Path(folder) / _WEIGHTS
        model.save(thin)
        with ZipFile(thin) as archive:
            archive.extract(_WEIGHTS, folder)
        _fill(weights, tables, source)
        with ZipFile(thin) as archive, ZipFile(path, "w", ZIP_STORED) as whole:
            for name in archive.namelist():
                if name != _WEIGHTS:
                    whole.writestr(name, archive.read(name))
            with weights.open("rb") as file, whole.open(_WEIGHTS, "w", force_zip64=True) as to:
                shutil.copyfileobj(file, to)


def _fill(weights: Path, tables: Sequence[Table], source: TableSource) -> None:
    """Replaces the single rows of Keras' file of weights by whole tables."""
    import h5py

    with h5py.File(weights, "r+") as file:
        names: dict[int, str] = {}
        file.visititems(lambda name, found: _note(names, name, found, len(tables)))
        for number, table in enumerate(tables):
            del file[names[number]]
            file.create_dataset(names[number], (table.rows, table.width), np.float32)
        for block in source.blocks(skips_initial=True):
            if block.part == 0:
                place = slice(block.start, block.start + len(block.values))
                file[names[block.table]][place] = block.values


def _note(names: dict[int, str], name: str, found: Any, tables: int) -> None:
    """Notes which table is to lie at a place of the file, if any is."""
    shape: tuple[int, ...] = getattr(found, "shape", ())
    if len(shape) == 2 and shape[0] == 1:
        number = float(found[0, 0]) - _MARK
        if 0 <= number < tables and (found[()] == found[0, 0]).all():
            names[int(number)] = name
