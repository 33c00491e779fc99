from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.sources.files import NumpyFiles
from tests.trainers.shipping import shipped


def saved(path: Path, values: Any) -> Path:
    np.save(path, values)
    return path


def test_rows_come_from_each_file(tmp_path: Path) -> None:
    inputs, labels = np.arange(24, dtype=np.float32).reshape(6, 2, 2), np.arange(6)
    source = NumpyFiles(saved(tmp_path / "x.npy", inputs), saved(tmp_path / "y.npy", labels))
    assert source.examples == 6
    wanted = np.array([5, 0, 3, 0])
    for one in (source, shipped(source)):
        one.check()
        found = one.read(wanted)
        np.testing.assert_array_equal(found[0], inputs[wanted])
        np.testing.assert_array_equal(found[1], labels[wanted])
        assert not any(isinstance(part, np.memmap) for part in found)
    saved(tmp_path / "y.npy", labels[:5])
    with pytest.raises(WorkloadError, match=r"y\.npy has changed"):
        source.read(wanted)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.array([{}], object), "is no array that can be read in place"),
        (np.array(3), "holds a single value"),
        (np.zeros(4), "and the others hold 4, 3 rows"),
    ],
)
def test_what_are_no_rows_is_refused(tmp_path: Path, values: Any, words: str) -> None:
    path = saved(tmp_path / "x.npy", values)
    with pytest.raises(WorkloadError, match=f"^data: {path} {words}"):
        NumpyFiles(path, saved(tmp_path / "y.npy", np.zeros(3)))
