"""`init`: a workload file that is tried at once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Invoke, error_line

MODEL = """
import keras

def build():
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, activation="softmax")])
"""


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    (tmp_path / "a_small_model.py").write_text(MODEL)
    x = np.random.default_rng(0).normal(size=(50, 4)).astype("float32")
    rows = [",".join([*map(str, row), "yes" if row[0] > 0 else "no"]) for row in x]
    (tmp_path / "data.csv").write_text("\n".join(["a,b,c,d,is_large", *rows]))
    data = ["--data", f"{tmp_path}/data.csv", "--label", "is_large"]
    return ["--model", f"{tmp_path}/a_small_model.py:build", *data]


def test_a_table_and_a_model_make_a_workload(
    invoke: Invoke, tmp_path: Path, words: list[str]
) -> None:
    file = tmp_path / "my_job.py"
    result = invoke("init", str(file), *words, "--json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert told.pop("seconds") > 0
    assert told == {
        "file": str(file),
        "workload": "my-job",
        "parameters": 10,
        "examples": 40,
        "test_examples": 10,
        "total_worker_steps": 20,
    }
    again = invoke("init", str(file), *words)
    assert again.exit_code == 2
    assert "is there already" in error_line(again)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (["job.txt"], "give a name that ends in .py"),
        (["job.py", "--name", "my job"], "--name is 'my job'"),
        (["job.py", "--data", "nothing.npz"], "there is no such file"),
    ],
)
def test_what_cannot_be_written(
    invoke: Invoke, tmp_path: Path, words: list[str], changes: list[str], expected: str
) -> None:
    file, *others = changes
    result = invoke("init", str(tmp_path / file), *words, *others)
    assert result.exit_code == 2
    assert expected in error_line(result)
    assert not (tmp_path / file).exists()
