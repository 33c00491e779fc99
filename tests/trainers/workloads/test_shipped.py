from __future__ import annotations

import hashlib

import numpy as np
import pytest

from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.loading import load_workload


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("digits", "7efc8a588bb2fbc569925eb232d8021ed078a7a0cad7e8a701a14c08aaa7de98"),
        ("breast-cancer", "228936ee4df6438bc265449f5114e18af359782e17b84e3ab902a3dbdde6a246"),
    ],
)
def test_every_machine_trains_on_the_same_bits(name: str, digest: str) -> None:
    data = load_workload(name).load_data()
    assert isinstance(data, Data)
    found = hashlib.sha256()
    for part in ("train_inputs", "train_labels", "test_inputs", "test_labels"):
        array = getattr(data, part)
        found.update(f"{array.dtype} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    assert found.hexdigest() == digest
