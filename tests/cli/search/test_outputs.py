"""What `-o` may overwrite: what the same command wrote, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Invoke, database_file

COMMANDS = {
    "report": ["report", "generated"],
    "policy": ["policy", "export", "generated"],
    "csv": ["trials", "--format", "csv"],
    "json": ["trials", "--format", "json"],
    "parquet": ["trials", "--format", "parquet"],
}


@pytest.mark.usefixtures("one_version")
@pytest.mark.parametrize("command", COMMANDS)
def test_neither_a_database_nor_a_strange_file_is_overwritten(
    invoke: Invoke, url: str, tmp_path: Path, command: str
) -> None:
    database, script = Path(database_file(url)), tmp_path / "train.py"
    script.write_text("import os\n")
    before = database.read_bytes()
    for path in (database, script):
        done = invoke(*COMMANDS[command], "-o", str(path))
        assert (done.exit_code, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert f"{path} exists, and is not a file of the kind that is to be written" in line
    assert database.read_bytes() == before
    assert script.read_text() == "import os\n"


@pytest.mark.usefixtures("one_version")
@pytest.mark.parametrize("command", COMMANDS)
def test_what_the_command_wrote_is_overwritten(
    invoke: Invoke, tmp_path: Path, command: str
) -> None:
    path = tmp_path / "output"
    for _ in range(2):
        assert invoke(*COMMANDS[command], "-o", str(path)).exit_code == 0
    assert path.stat().st_size > 0
