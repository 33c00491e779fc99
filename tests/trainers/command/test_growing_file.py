from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import UserError
from syncswitch.trainers.command.report_log import GrowingFile, last_lines, size_bytes


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


def append(path: Path, text: str | bytes) -> None:
    with path.open("ab") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def test_a_half_written_line_is_waited_for(path: Path) -> None:
    growing = GrowingFile(path)
    assert list(growing.new_lines()) == []
    append(path, "one\ntw")
    assert list(growing.new_lines()) == [(1, "one")]
    assert list(growing.new_lines()) == []
    append(path, "o\nthree")
    assert list(growing.new_lines()) == [(2, "two")]
    assert list(growing.new_lines(is_over=True)) == [(3, "three")]
    assert list(growing.new_lines(is_over=True)) == []


def test_a_file_that_became_shorter_is_read_again(path: Path) -> None:
    growing = GrowingFile(path)
    append(path, "one\ntwo\nthr")
    assert len(list(growing.new_lines())) == 2
    path.write_text("one\n")
    assert list(growing.new_lines()) == [(1, "one")]


def test_a_progress_bar_ends_its_lines_otherwise(path: Path) -> None:
    growing = GrowingFile(path, rb"[\r\n]")
    append(path, "1 %\r2 %\r\n3 %")
    assert [line for _, line in growing.new_lines() if line] == ["1 %", "2 %"]


def test_what_is_no_text_is_read_all_the_same(path: Path) -> None:
    append(path, b"\xff\xfe\n")
    assert list(GrowingFile(path).new_lines()) == [(1, "\ufffd\ufffd")]


def test_a_line_without_end_does_not_fill_the_memory(path: Path) -> None:
    append(path, "x" * 3_000_000)
    growing = GrowingFile(path)
    found = [line for _ in range(3) for _, line in growing.new_lines()]
    assert sum(map(len, found)) > 2_000_000


def test_a_flood_is_read_in_parts_and_to_its_end_when_it_is_over(path: Path) -> None:
    append(path, "1234567\n" * 500_000)
    growing = GrowingFile(path)
    first = len(list(growing.new_lines()))
    assert 0 < first < 200_000
    assert first + len(list(growing.new_lines(is_over=True))) == 500_000


def test_what_is_no_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        list(GrowingFile(tmp_path).new_lines())
    assert last_lines(tmp_path / "gone", 3) == []


@given(st.lists(st.text("ab\n", max_size=5)))
def test_however_it_grows_the_lines_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str]
) -> None:
    path = tmp_path_factory.mktemp("growing") / "file"
    growing, found = GrowingFile(path), []
    for part in parts:
        append(path, part)
        found += growing.new_lines()
    found += growing.new_lines(is_over=True)
    lines = "".join(parts).split("\n")
    expected = lines if lines[-1] else lines[:-1]
    assert found == list(enumerate(expected, 1))


def test_only_the_end_is_shown(path: Path) -> None:
    append(path, "first\n" + "x" * 50_000 + "\n\n last \nend")
    assert last_lines(path, 2) == ["last", "end"]
    assert size_bytes(path) > 50_000
    assert size_bytes(path.with_name("none")) == 0


def test_a_pipe_in_the_place_of_the_file_is_refused(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(UserError, match="cannot be read: it is no plain file"):
        list(GrowingFile(path).new_lines())
    assert last_lines(path, 3) == []
