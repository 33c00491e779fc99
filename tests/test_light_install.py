"""Without TensorFlow: an environment from `requirements-light.txt`, and what works in it."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import venv
from collections.abc import Callable
from importlib.metadata import PackagePath, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
REQUIRED = ROOT / "requirements-light.txt"
HEAVY = {"tensorflow", "keras", "torch"}

LOOP = """
import sys
from syncswitch import LoopSwitch

now, step, began = 0.0, 0, 100
switch = LoopSwitch(sys.argv[1], clock=lambda: now)
while step < 100:
    switch.saves_at(step)
    if switch.is_second(step):
        began = min(began, step)
    now += 1.0 if began == 100 else 0.25
    step += 1
    if step % 5 == 0 and (back := switch.report(step, min(0.9, step / 60), 1.0)) is not None:
        step, began = back, 100
"""


def wanted() -> list[str]:
    lines = REQUIRED.read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_it_is_what_the_package_requires_without_tensorflow() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    required = setup["options"]["install_requires"].split()
    light = [one for one in required if not one.startswith("tensorflow")]
    assert len(light) == len(required) - 1
    assert wanted() == light + setup["options.extras_require"]["report"].split()


def closure(names: list[str]) -> set[str]:
    """These distributions and all that they need, by their names."""
    found: set[str] = set()
    left = [Requirement(name) for name in names]
    while left:
        one = left.pop()
        name = re.sub(r"[-_.]+", "-", one.name).lower()
        if name in found or (one.marker is not None and not one.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        left += [Requirement(text) for text in distribution(name).requires or ()]
    return found


def link_installed(site: Path) -> None:
    """Links the files of the packages that are installed here: as pip would, but in a second."""
    for name in closure(wanted()):
        files: list[PackagePath] = distribution(name).files or []
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            link = site / top
            if not link.exists():
                link.symlink_to(Path(str(distribution(name).locate_file(top))))


@pytest.fixture(scope="module")
def environment(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    return once("light", make)


def make(folder: Path) -> None:
    """An environment from nothing; by pip and an index where LIGHT_INSTALL=pip."""
    is_real = os.environ.get("LIGHT_INSTALL") == "pip"
    venv.create(folder, with_pip=is_real)
    if is_real:
        pip = [str(folder / "bin" / "pip"), "install", "--quiet"]
        constraints = ["-c", str(ROOT / "constraints.txt")]
        subprocess.run([*pip, *constraints, "-r", str(REQUIRED)], check=True)
        subprocess.run([*pip, "--no-deps", str(ROOT)], check=True)
        return
    (site,) = folder.glob("lib/python3*/site-packages")
    link_installed(site)
    package = site / "syncswitch"
    package.mkdir()
    for name in ("cli", "searcher", "storage", "trainers"):
        (package / name).symlink_to(ROOT / name)
    for path in (ROOT / "public").glob("*.py"):
        (package / path.name).symlink_to(path)


@pytest.mark.slow
def test_commands_and_loops_are_searched_learnt_and_reported_in_it(
    environment: Path, tmp_path: Path
) -> None:
    python = str(environment / "bin" / "python")
    (tmp_path / "loop.py").write_text(LOOP)

    def run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
        entry = {"syncswitch-run": "run", "syncswitch-search": "search"}[program]
        code = f"from syncswitch.cli import program; program.{entry}({program!r})"
        command = [python, "-c", code, *words]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, env=clean(), check=False
        )

    def said(program: str, *words: str) -> str:
        done = run(program, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    installed = json.loads(
        subprocess.run(
            [python, "-c", FINDS, *sorted(HEAVY)], capture_output=True, text=True, check=True
        ).stdout
    )
    assert installed == []
    listed = "import syncswitch; from syncswitch import *; help(syncswitch)"
    subprocess.run([python, "-c", listed], check=True, stdout=subprocess.DEVNULL)
    job = ("--trainer", "command", "--total-steps", "100")
    job += ("--command", f"{python} loop.py {{plan}}")
    found = json.loads(said("syncswitch-search", "run", "loop", *job, "--json"))
    assert found["policy"]["switch_percent"] < 100
    learns = ("syncswitch-run", "learnt", *job, "--learn", "--expected-runs", "30", "--json")
    learnt = [json.loads(said(*learns)) for _ in range(2)]
    assert learnt[-1]["switch_percent"] < 100
    assert learnt[-1]["guard"]["state"] == "quiet"
    for words in (
        ("policy", "lookup", "loop"),
        ("policy", "export", "loop"),
        ("trials", "--format", "csv"),
    ):
        assert "loop" in said("syncswitch-search", *words)
    said("syncswitch-search", "report", "loop")
    assert "<svg" in (tmp_path / "report.html").read_text()
    done = run("syncswitch-run", "digits")
    assert done.returncode == 2
    assert done.stderr == (
        "error: a workload needs TensorFlow, which is missing; run: pip install tensorflow"
        ", or train a command, which does without, with --trainer command\n"
    )


FINDS = "import sys, json; from importlib.util import find_spec as f;"
FINDS += "print(json.dumps([one for one in sys.argv[1:] if f(one) is not None]))"


def clean() -> dict[str, str]:
    """This environment, without what would lead to our own packages."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
