"""The text of a first workload file."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.keras_api.draft.text import Facts, data_body, model_body, workload_text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("my_model.py", "my_data.py", "a.npz", "a.csv", "a.keras", "a.txt"):
        (tmp_path / name).touch()
    return tmp_path


def text_of(folder: Path, facts: Facts, data: str = "my_data.py:load") -> str:
    body = data_body(data if ":" in data else str(folder / data), "sort", folder)
    model = model_body("my_models:build", folder, (8,), 3)
    return workload_text("job.py", "job", model, body, facts, epochs=3, batch_size=32)


def test_each_kind_of_data_and_model_is_python(folder: Path) -> None:
    place = str(folder / "my_data.py")
    for source in (f"{place}:load", "package.data:load", "a.npz", "a.csv"):
        text = text_of(folder, Facts(100, loss="CategoricalCrossentropy"), source)
        ast.parse(text)
        # A name that is used is imported.
        for name in ("np.", "pd.", "Path("):
            assert (name in text) == (name in text.partition("def data")[2]), text
    for source in (f"{folder}/my_model.py:build", f"{folder}/a.keras", "keras.applications:VGG16"):
        ast.parse("def model():\n" + model_body(source, folder, (32, 32, 3), 10))


def test_the_length_follows_from_the_data(folder: Path) -> None:
    text = text_of(folder, Facts(100, loss="SparseCategoricalCrossentropy"), "package.data:load")
    assert "total_worker_steps=12,\n" in text
    assert 'loss="sparse_categorical_crossentropy",\n' in text
    assert "learning_rate_boundaries=((6, 0.1), (9, 0.01)),\n" in text


def test_outputs_that_are_no_probabilities_have_a_loss_of_their_own(folder: Path) -> None:
    facts = Facts(100, loss="BinaryCrossentropy", is_logits=True)
    text = text_of(folder, facts, "package.data:load")
    assert "return keras.losses.BinaryCrossentropy(from_logits=True)\n" in text
    assert "    loss=loss,\n" in text


def test_a_compiled_model_says_the_rest(folder: Path) -> None:
    text = text_of(folder, Facts(100, is_compiled=True), "package.data:load")
    assert "workload = from_compiled(\n" in text
    assert "learning_rate=" not in text


@pytest.mark.parametrize(
    ("source", "label", "expected"),
    [
        ("a.txt", None, "give file.py:function"),
        ("none.npz", None, "there is no such file"),
        ("a.csv", None, "--label COLUMN"),
        ("none.py:load", None, "there is no file"),
        ("elsewhere/my_data.py:load", None, "in another folder than the workload"),
    ],
)
def test_data_that_cannot_be_had(
    folder: Path, source: str, label: str | None, expected: str
) -> None:
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "my_data.py").touch()
    with pytest.raises(WorkloadError, match=expected):
        data_body(str(folder / source), label, folder)


def test_a_model_that_cannot_be_had(folder: Path) -> None:
    with pytest.raises(WorkloadError, match=r"or a \.keras file that is there"):
        model_body(str(folder / "none.keras"), folder, (8,), 3)
