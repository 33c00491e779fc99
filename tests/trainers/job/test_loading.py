from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.loading import BUILT_IN, find_module, load_workload, normal_reference
from tests.wording import Said

SOURCE = """
import neighbour_of_a_workload
from syncswitch.trainers.job.workload import Workload

number = 3
mine = Workload(
    name="mine", model=None, data=None, data_set="d", total_worker_steps=neighbour_of_a_workload.W,
    batch_size=1, learning_rate=0.1, evaluation_interval_worker_steps=1,
)
"""


def test_a_variant_has_other_fields(folder: Path) -> None:
    plain = load_workload("job.py:mine")
    changed = "momentum_after_switch=scaled,learning_rate=0.5,batch_after_switch=global"
    assert load_workload(f"job.py:mine,{changed}") == replace(
        plain, momentum_after_switch="scaled", learning_rate=0.5, batch_after_switch="global"
    )
    path = f"{folder}/job.py:mine,momentum=0.5"
    assert load_workload(path) == replace(plain, momentum=0.5)
    assert normal_reference(path) == "job.py:mine,momentum=0.5"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's project, as the current folder; what it imports is forgotten afterwards."""
    (tmp_path / "job.py").write_text(SOURCE)
    (tmp_path / "neighbour_of_a_workload.py").write_text("W = 77\n")
    package = tmp_path / "package_of_a_workload"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "jobs.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_a_workload_is_loaded_by_its_name(name: str) -> None:
    assert load_workload(name).name == name


def test_a_workload_is_loaded_once_from_a_file_with_its_neighbours(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = load_workload("job.py:mine")
    assert (workload.name, workload.total_worker_steps) == ("mine", 77)
    assert load_workload("./job.py:mine") is workload
    monkeypatch.chdir("/")
    assert load_workload(f"{folder}/job.py:mine") is workload


def test_a_workload_is_loaded_from_a_package_in_the_current_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a console script: its own folder is on the path, the current one is not.
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", ".")])
    assert load_workload("package_of_a_workload.jobs:mine").name == "mine"


def test_a_wrong_reference_is_one_line_that_helps(folder: Path, said: Said) -> None:
    for reference in (
        "nonsense",
        "",
        ":",
        "job.py",
        "job.py:",
        ":mine",
        "none.py:mine",
        "package_of_a_workload:mine",
        "no_such_package.x:mine",
        "..relative:mine",
        "job.py:other",
        "job.py:number",
    ):
        said.refusal("workload-not-found", load_workload, reference)
    for reference in ("job.py:mine,data_set=x", "job.py:mine,momentum=0.5,momentum=0.5"):
        said.refusal("parameter-invalid", load_workload, reference)
    for reference in (
        "job.py:mine,momentum=much",
        "job.py:mine,batch_size=0",
        "job.py:mine,batch_after_switch=4",
        "job.py:mine,momentum_after_switch=3",
    ):
        said.refusal("workload-unsuitable", load_workload, reference)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import no_such_module", "no_such_module"),
        ("raise RuntimeError('two\\nlines')", "two lines"),
        ("import sys; sys.exit('usage: train.py DATA')", "usage: train.py DATA"),
    ],
)
def test_a_file_that_does_not_import_is_one_line_that_says_why(
    folder: Path, source: str, words: str
) -> None:
    (folder / "broken.py").write_text(source)
    for _ in range(2):
        with pytest.raises(WorkloadError) as error:
            load_workload("broken.py:mine")
        assert "\n" not in str(error.value)
        assert words in str(error.value)
        assert "broken.py" in str(error.value)
    # Nor is it imported to find it.
    assert find_module("broken.py:mine") == ("broken.py", "mine")


@pytest.mark.parametrize("reference", ["digits", "job.py:mine", "a.b:c", "/home/me/job.py:mine"])
def test_a_store_knows_a_reference_without_its_folder(reference: str) -> None:
    assert normal_reference(reference) == reference.removeprefix("/home/me/")


def test_a_file_is_loaded_in_a_folder_whose_name_is_no_utf_8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / os.fsdecode(b"donn\xe9es")
    folder.mkdir()
    (folder / "job.py").write_text("from syncswitch.trainers.workloads.digits import workload\n")
    monkeypatch.chdir(folder)
    assert load_workload("job.py:workload").name == "digits"
