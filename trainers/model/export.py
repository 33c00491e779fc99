"""From a checkpoint to a Keras model."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np

from syncswitch.storage.errors import UserError
from syncswitch.storage.files import OwnedFolder
from syncswitch.trainers.job.workload import Workload

_SUFFIX = ".keras"


def check_model_path(path: Path) -> None:
    """Finds out before the training whether the model can be saved after it."""
    if path.suffix != _SUFFIX:
        raise UserError(f"--output is {path}: give a name that ends in {_SUFFIX}")
    folder = path.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise UserError(f"--output is {path}: {folder} is no folder that can be written to")
    if path.is_dir():
        raise UserError(f"--output is {path}: that is a folder; give the name of a file")
    if path.is_file() and not is_zipfile(path):
        raise UserError(f"--output is {path}: that is there and no Keras model; name another file")


def load_model(workload: Workload, checkpoint_path: Path) -> Any:
    """The workload's Keras model with the values of a checkpoint, whole."""
    from syncswitch.trainers.model.checkpoint import read_checkpoint
    from syncswitch.trainers.model.state import restored_model

    checkpoint = read_checkpoint(checkpoint_path)
    if checkpoint.tables is None:
        return restored_model(workload, checkpoint.parameters, checkpoint.statistics)
    parameters = dict(checkpoint.parameters)
    for form in checkpoint.forms:
        parameters[form.name] = np.empty((form.rows, form.width), np.float32)
    for block in checkpoint.tables.blocks():
        if block.part == 0:
            table = parameters[checkpoint.forms[block.table].name]
            table[block.start : block.start + len(block.values)] = block.values
    whole = replace(workload, least_table_values=None)
    return restored_model(whole, dict(sorted(parameters.items())), checkpoint.statistics)


def export_model(workload: Workload, checkpoint_path: Path, path: Path) -> None:
    """Writes a checkpoint's values as a `.keras` file, whole or not at all.

    Large embedding tables go from file to file; the model is never whole in memory.
    """
    from syncswitch.trainers.model.checkpoint import read_checkpoint
    from syncswitch.trainers.model.state import restored_model
    from syncswitch.trainers.model.tables.export import save_with_tables

    checkpoint = read_checkpoint(checkpoint_path)
    model = restored_model(workload, checkpoint.parameters, checkpoint.statistics)
    with OwnedFolder(".syncswitch-model-", path.parent) as folder:
        # Keras chooses the format by the suffix, so the temporary name keeps it.
        temporary = folder / f"model{_SUFFIX}"
        if checkpoint.tables is None:
            model.save(temporary)
        else:
            save_with_tables(model, checkpoint.tables, temporary)
        os.replace(temporary, path)
