"""A folder for each run of a command."""

from __future__ import annotations

import itertools
from pathlib import Path

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import TrialSpec


def make_run_folder(parent: Path, spec: TrialSpec) -> Path:
    """Makes a new folder, also for another attempt at the same run.

    Args:
        parent: Of all runs of the job.
        spec: The trial, after which the folder is named.
    """
    name = f"switch-{spec.switch_percent:.12g}-replicate-{spec.replicate}-seed-{spec.seed}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for attempt in itertools.count(1):
            folder = parent / (name if attempt == 1 else f"{name}-attempt-{attempt}")
            try:
                folder.mkdir()
            except FileExistsError:
                continue
            return folder
    except OSError as error:
        raise UserError(
            f"the folder for runs {parent} cannot be used: {error.strerror or error}; name another"
            " with --output-folder"
        ) from error
    raise AssertionError("there is always another name")
