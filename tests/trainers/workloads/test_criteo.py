from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.keras_parts import build_model
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.workloads.cifar import FOLDER_VARIABLE
from syncswitch.trainers.workloads.criteo import CATEGORIES, NUMBERS, read_criteo, workload

NUMBER_FIELDS = ["1", "-1", "", "7", *["0"] * 9]
CATEGORY_FIELDS = ["68fd1e64", "", "0000000a", *["ff"] * 23]


def line(label: str = "1", numbers: list[str] = NUMBER_FIELDS) -> str:
    return "\t".join([label, *numbers, *CATEGORY_FIELDS]) + "\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    return tmp_path


def refusal(examples: int = 100) -> str:
    with pytest.raises(WorkloadError) as error:
        read_criteo(examples, 1000)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_reads_numbers_categories_and_labels(folder: Path) -> None:
    (folder / "train.txt").write_text(line() + line("0") * 19)
    data = read_criteo(100, 1000)
    assert (len(data.train_labels), len(data.test_labels)) == (18, 2)
    assert data.train_labels[:2].tolist() == [[1.0], [0.0]]
    assert data.test_labels.tolist() == [[0.0], [0.0]]
    first = data.train_inputs[0]
    expected = np.log1p(np.array([1, 0, 0, 7, *[0] * 9], np.float32))
    np.testing.assert_allclose(first[:NUMBERS], expected)
    categories = [0x68FD1E64 % 1000, 0, 10, *[255] * 23]
    assert first[NUMBERS:].tolist() == categories
    assert len(categories) == CATEGORIES


def test_reads_no_more_than_is_asked_for(folder: Path) -> None:
    (folder / "train.txt").write_text(line() * 30 + "nonsense\n")
    data = read_criteo(20, 1000)
    assert len(data.train_labels) + len(data.test_labels) == 20


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (line() + "nonsense\n", "line 2: ValueError: it has 1 fields, and the label 'nonsense'"),
        (line() + line("2"), "line 2: ValueError: it has 40 fields, and the label '2'"),
        (line() * 2 + line(numbers=["x"] * 13), "line 3: ValueError: could not convert"),
        (line().replace("ff", "fg"), "line 1: ValueError: invalid literal"),
        (line(), "has 1 lines; give at least 2"),
        ("", "has 0 lines"),
    ],
)
def test_another_form_is_refused(folder: Path, content: str, what: str) -> None:
    (folder / "train.txt").write_text(content)
    message = refusal()
    assert message.startswith(str(folder / "train.txt"))
    assert what in message


def test_what_is_no_text_is_refused(folder: Path) -> None:
    (folder / "train.txt").write_bytes(line().encode() + b"\xff\xfe\n")
    assert "line 2: ValueError" in refusal()


def test_a_missing_file_is_told_with_what_to_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"{folder / 'train.txt'} is no file" in refusal()
    monkeypatch.delenv(FOLDER_VARIABLE)
    assert f"{FOLDER_VARIABLE} is not set; name the folder with train.txt" in refusal()


def test_it_is_built_in_and_fits_its_model() -> None:
    assert load_workload("clicks-criteo") is workload
    assert build_model(workload).input_shape == (None, NUMBERS + CATEGORIES)
