"""From a checkpoint to a Keras model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

from syncswitch.storage.errors import UserError
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
    """The workload's Keras model with the values of a checkpoint."""
    from syncswitch.trainers.model.checkpoint import read_checkpoint
    from syncswitch.trainers.model.state import restored_model

    checkpoint = read_checkpoint(checkpoint_path)
    return restored_model(workload, checkpoint.parameters, checkpoint.statistics)


def save_model(model: Any, path: Path) -> None:
    """Saves a model as a `.keras` file, whole or not at all."""
    # Keras chooses the format by the suffix, so the temporary name keeps it.
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{_SUFFIX}")
    try:
        model.save(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
