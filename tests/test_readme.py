"""What the README tells a newcomer to type works as it stands there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.program import PROGRAMS, run

README = Path(__file__).parents[1] / "README.md"


def example_module() -> str:
    (found,) = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


def example_commands() -> list[list[str]]:
    """The command lines about the example, without their comments."""
    lines = [line.split("#")[0] for line in README.read_text().splitlines()]
    return [
        line.split()
        for line in lines
        if line.startswith(tuple(PROGRAMS)) and re.search("my_workload|half-spaces", line)
    ]


@pytest.mark.slow
def test_the_example_workload_is_searched_looked_up_and_trained(tmp_path: Path) -> None:
    (tmp_path / "my_workload.py").write_text(example_module())
    search, lookup, train = example_commands()
    done = run(*search, "--settings", 2, "--runs", 1, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Train half-spaces with BSP" in done.stdout
    done = run(*lookup, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["workers"] == 8
    done = run(*train, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "half-spaces.keras").is_file()


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    makefile = (README.parent / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README.read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
