"""What the README tells a newcomer to type works as it stands there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm_program
from tests.program import PROGRAMS, run

README = Path(__file__).parents[1] / "README.md"


FROM_PYTHON = README.parent / "docs" / "python.md"


def python_examples(page: Path = README) -> list[str]:
    """Of the README: the module with the workload, and the questions from pandas."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def database_commands() -> list[list[str]]:
    """What the section on the database asks of the digits, asked of the example."""
    asked = re.findall(
        r"^syncswitch-search (?:settings|trials|cost|db) .*", README.read_text(), re.MULTILINE
    )
    return [line.split("#")[0].replace("digits", "half-spaces").split() for line in asked]


def example_commands() -> list[list[str]]:
    """The command lines about the example, without their comments."""
    lines = [line.split("#")[0] for line in README.read_text().splitlines()]
    return [
        line.split()
        for line in lines
        if line.startswith(tuple(PROGRAMS)) and re.search("my_workload|half-spaces", line)
    ]


def run_python(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True
    )


@pytest.mark.slow
def test_the_example_workload_is_searched_looked_up_and_trained(tmp_path: Path) -> None:
    module, questions = python_examples()
    (tmp_path / "my_workload.py").write_text(module)
    search, lookup, train = example_commands()
    done = run(*search, "--settings", 2, "--runs", 1, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Train half-spaces with BSP" in done.stdout
    done = run(*lookup, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["workers"] == 8
    assert len(database_commands()) == 4
    for command in database_commands():
        done = run(*command, folder=tmp_path)
        assert done.returncode == 0, done.stderr
    done = run_python(questions.replace("digits", "half-spaces"), tmp_path)
    assert done.returncode == 0, done.stderr
    done = warm_program.run(*train, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "half-spaces.keras").is_file()


@pytest.mark.slow
def test_the_examples_from_python_run(tmp_path: Path) -> None:
    module, _ = python_examples()
    (tmp_path / "my_workload.py").write_text(module)
    search, study, _, _, database = python_examples(FROM_PYTHON)
    # As on the page, but soon done.
    search = search.replace("workers=8", "workers=2, strategy='paper', settings=1, runs=1")
    done = run_python(search + database, tmp_path)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[0]) in {50.0, 100.0}
    done = run_python(study + "print(len(study.trials))", tmp_path)
    assert done.stdout.split() == ["18"], done.stderr


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    makefile = (README.parent / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", README.read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_the_simulated_times_are_those_that_the_command_prints(tmp_path: Path) -> None:
    (shown,) = re.findall(
        r"^\$ syncswitch-search (profile times .*)\n((?:.*\n)*?)```",
        README.read_text(),
        re.MULTILINE,
    )
    command, table = shown
    done = run("syncswitch-search", *command.split(), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip() == table.rstrip()
