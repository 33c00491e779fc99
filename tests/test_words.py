"""The table of words in CONTRIBUTING.md, and the texts beside the tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.wording import sections

ROOT = Path(__file__).parents[1]
SECTION = (ROOT / "CONTRIBUTING.md").read_text().partition("## Words")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| (?!word \|)([^|]+) \| [^|]+ \| ([^|]+) \|$", SECTION, re.MULTILINE)
TEXTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *(ROOT / "notebooks").glob("*.ipynb"),
    *(path for name in ("docs", "examples") for path in (ROOT / name).rglob("*.md")),
    *(
        path
        for name in ("storage", "trainers", "searcher", "cli")
        for path in (ROOT / name).rglob("*.py")
    ),
]


@pytest.mark.parametrize(("word", "former"), ROWS, ids=[word for word, _ in ROWS])
def test_nothing_says_what_has_a_better_word(word: str, former: str) -> None:
    # Numbers stand for any; lines of a text may be broken between words.
    pattern = re.sub(r"\d+", r"[\\d.]+", r"\s+".join(map(re.escape, former.split())))
    found = [path for path in TEXTS if re.search(pattern, path.read_text())]
    assert not found, f"say {word!r}"


def test_the_table_is_read() -> None:
    assert len(ROWS) >= 8


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tests").rglob("test_*.txt")), ids=lambda path: path.stem
)
def test_each_section_is_what_a_test_has_said(path: Path) -> None:
    code = path.with_suffix(".py").read_text()
    assert [name for name in sections(path) if f"def {name.partition('[')[0]}(" not in code] == []
