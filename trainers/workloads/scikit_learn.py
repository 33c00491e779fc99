"""Data sets that scikit-learn ships. To import it takes longer than many a run."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

_FOLDER = "datasets/data"


def shipped_table(name: str, file: str, header_lines: int = 0) -> np.ndarray:
    """Reads one of its data sets.

    Args:
        name: Such as `digits`.
        file: Where this version keeps it; another one is asked itself.
        header_lines: Of the file.

    Returns:
        An example in each row, shape [examples, features + 1]: its label comes last.
    """
    found = find_spec("sklearn")
    for folder in (found and found.submodule_search_locations) or ():
        path = Path(folder, _FOLDER, file)
        if path.is_file():
            return np.loadtxt(path, delimiter=",", skiprows=header_lines)
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")()
    return np.column_stack([bunch.data, bunch.target])
