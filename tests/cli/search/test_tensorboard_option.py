"""`--tensorboard` of the commands, and `tensorboard=` of the Python API."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command_line import QUICK, Invoke, database_file, error_line
from generated_trainer import GeneratedTrainer, identity

from syncswitch.searcher.api import search
from syncswitch.searcher.backends.base import Job
from syncswitch.searcher.backends.local import LocalTrainer

pytestmark = pytest.mark.usefixtures("our_tables")

RUNS = [f"switch-{percent}-run-{run}" for percent in (100, 12.5, 25, 50) for run in (1, 2)]


def folders(path: Path) -> list[str]:
    """Of the runs of the only search; each has one file."""
    (group,) = path.iterdir()
    found = sorted(group.iterdir())
    assert all(len(list(folder.glob("events.out.tfevents.*"))) == 1 for folder in found)
    return [folder.name for folder in found]


def test_each_run_of_a_search_has_a_folder(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("run", "digits", *QUICK, "--tensorboard", str(tmp_path / "logs"))
    assert result.exit_code == 0, result.stderr
    assert folders(tmp_path / "logs") == sorted(RUNS)


def test_what_is_refused_leaves_no_folder(invoke: Invoke, tmp_path: Path) -> None:
    words = ["--tensorboard", str(tmp_path / "logs"), "--settings", "many"]
    result = invoke("run", "digits", *words)
    assert result.exit_code == 2
    assert not (tmp_path / "logs").exists()


def test_from_python(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalTrainer, "job", lambda *_: Job(identity(), GeneratedTrainer))
    policy = search(
        "digits",
        storage=url,
        strategy="paper",
        settings=3,
        runs=2,
        tensorboard=tmp_path / "logs",
        checkpoints=tmp_path / "checkpoints",
    )
    assert folders(tmp_path / "logs") == sorted(RUNS)
    (group,) = (tmp_path / "logs").iterdir()
    assert group.name == policy.study


def test_without_the_package_nothing_is_begun(
    invoke: Invoke, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    before = database_file(url).read_bytes()
    result = invoke("run", "digits", *QUICK, "--tensorboard", str(tmp_path / "logs"))
    assert result.exit_code == 2
    assert "pip install 'syncswitch[tensorboard]'" in error_line(result)
    assert database_file(url).read_bytes() == before
