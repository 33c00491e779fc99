from __future__ import annotations

import sys

import numpy as np
import pytest

from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.workloads import scikit_learn


@pytest.mark.parametrize("name", ["digits", "breast-cancer"])
def test_its_data_are_those_that_it_would_load_itself(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = load_workload(name).data
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "sklearn.datasets", None)  # cannot be imported
        found = read()
    monkeypatch.setattr(scikit_learn, "_FOLDER", "elsewhere")
    expected = read()
    for one in ("train_inputs", "train_labels", "test_inputs", "test_labels"):
        np.testing.assert_array_equal(getattr(found, one), getattr(expected, one))
