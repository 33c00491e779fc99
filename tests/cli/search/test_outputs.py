"""What commands write: TensorBoard's logs, and what `-o` may overwrite."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command_line import QUICK, Invoke, database_file, error_line


def test_each_run_of_a_search_has_a_folder(invoke: Invoke, tmp_path: Path) -> None:
    found = invoke.answer("run", "digits", *QUICK, "--tensorboard", str(tmp_path / "logs"))
    (group,) = (tmp_path / "logs").iterdir()
    assert group.name == found["policy"]["study"]
    assert sorted(path.parent.name for path in group.glob("*/events.out.tfevents.*")) == [
        f"switch-{percent}-run-{run}" for percent in (100, 12.5, 25, 50) for run in (1, 2)
    ]


@pytest.mark.usefixtures("our_tables")
def test_without_the_package_nothing_is_begun(
    invoke: Invoke, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    before = database_file(url).read_bytes()
    result = invoke("run", "digits", *QUICK, "--tensorboard", str(tmp_path / "logs"))
    assert result.exit_code == 2
    assert "pip install 'syncswitch[tensorboard]'" in error_line(result)
    assert database_file(url).read_bytes() == before


COMMANDS = {
    "report": ["report", "generated"],
    "policy": ["policy", "export", "generated"],
    "csv": ["trials", "--format", "csv"],
    "json": ["trials", "--format", "json"],
    "parquet": ["trials", "--format", "parquet"],
}


@pytest.mark.usefixtures("one_version")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_is_overwritten_only_by_the_command_that_wrote_it(
    invoke: Invoke, url: str, tmp_path: Path, command: str
) -> None:
    database, script, own = database_file(url), tmp_path / "train.py", tmp_path / "output"
    script.write_text("import os\n")
    before = database.read_bytes()
    for path in (database, script):
        line = error_line(invoke(*COMMANDS[command], "-o", str(path)))
        assert f"{path} exists, and is not a file of the kind that is to be written" in line
    assert database.read_bytes() == before
    assert script.read_text() == "import os\n"
    for _ in range(2):
        invoke.succeeds(*COMMANDS[command], "-o", str(own))
        assert own.stat().st_size > 0
