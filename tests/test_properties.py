"""What properties are tried on is the same in every run, unless one asks for something new."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).parents[1]
PROGRAM = "from tests import conftest, test_properties; print(test_properties.examples())"


def examples() -> list[str]:
    """What a property is tried on."""
    seen = []

    @settings(max_examples=200)
    @given(st.text(max_size=9), st.integers())
    def see(text: str, number: int) -> None:
        seen.append(f"{text!a} {number}")

    see()
    return seen


def test_they_are_the_same_whatever_else_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "constants_of_mine.py").write_text("X = ['a text', 'another'], 123456, 234567")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("constants_of_mine")
    # What Python hashes a text to differs from run to run, too.
    other = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    here = examples()
    assert len(set(here)) > 100
    assert other.stdout == f"{here}\n"


def test_others_are_drawn_where_this_is_asked_for() -> None:
    usual = settings.get_current_profile_name()
    settings.load_profile("random")
    try:
        assert examples() != examples()
    finally:
        settings.load_profile(usual)
