"""What a user installs: every module is in the wheel, and imports from it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.warm_program import run_code

ROOT = Path(__file__).parents[1]
PARTS = ("cli", "public", "searcher", "storage", "trainers")

CALLBACKS = (
    ("lightning", "lightning", "'syncswitch[lightning]'"),
    ("transformers", "transformers", "'syncswitch[transformers]'"),
    ("trainer_switch", "torch", "No module named 'torch'"),  # imported by those two alone
)
"""Modules of `trainers/pytorch`, the library that each needs, and what it says without."""


@pytest.fixture(scope="module")
def wheel(once: Callable[[str, Callable[[Path], None]], Path]) -> Path:
    return next(once("wheel", build).glob("*.whl"))


def build(folder: Path) -> None:
    """From a copy: what an earlier build has left in the tree would go into it as well."""
    tree = folder / "tree"
    tree.mkdir()
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    for name in PARTS:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    # Without isolation the build needs no network; setuptools is among the development tools.
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(folder), str(tree)],
        check=True,
        capture_output=True,
    )


def expected_files() -> set[str]:
    return {
        f"syncswitch/{path.relative_to(ROOT)}".replace("/public/", "/")
        for folder in PARTS
        for pattern in ("*.py", "*.json", "*.jinja", "*.npz", "SOURCES.txt", "py.typed")
        for path in (ROOT / folder).rglob(pattern)
    }


@pytest.mark.slow
def test_the_wheel_holds_every_module_and_data_file_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == expected_files()


@pytest.mark.slow
def test_every_module_imports_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    modules = sorted(
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in expected_files()
        if name.endswith(".py")
    )
    # Without its library a callback says which extra brings that.
    absent = {
        f"syncswitch.trainers.pytorch.{name}": said
        for name, library, said in CALLBACKS
        if find_spec(library) is None
    }
    # Only the libraries are those that the fork server has imported.
    program = (
        f"import sys, importlib; sys.path.insert(0, {str(tmp_path)!r})\n"
        f"for name in [name for name in sys.modules if name.startswith('syncswitch')]:\n"
        f"    del sys.modules[name]\n"
        f"for name in {modules!r}:\n"
        f"    try:\n"
        f"        module = importlib.import_module(name)\n"
        f"    except ImportError as error:\n"
        f"        assert {absent!r}.get(name, '?') in str(error), name\n"
        f"        continue\n"
        f"    assert module.__file__.startswith({str(tmp_path)!r}), module.__file__\n"
    )
    done = run_code(program, folder=tmp_path)
    assert done.returncode == 0, done.stderr
