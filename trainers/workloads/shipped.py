"""The data sets in `data/`, whose origins are in its `SOURCES.txt`."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import numpy.typing as npt


def shipped_table(name: str) -> npt.NDArray[np.float64]:
    """Loads a data set, shape [examples, features + 1]; the last column is the class."""
    with (files(__package__) / "data" / f"{name}.npz").open("rb") as file, np.load(file) as arrays:
        return np.asarray(arrays["table"], np.float64)
