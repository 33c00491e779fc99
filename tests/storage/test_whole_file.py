from __future__ import annotations

from pathlib import Path

import pytest

from syncswitch.storage.errors import UserError
from syncswitch.storage.whole_file import whole_file


def test_the_file_appears_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("old")
    with whole_file(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_after_an_error_there_is_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("old")

    def write() -> None:
        with whole_file(path) as file:
            file.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["none/table.csv", "folder", "/dev/null"])
def test_a_path_that_can_be_no_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="cannot write the file"), whole_file(tmp_path / name):
        pytest.fail("the file was opened")
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]
    assert Path("/dev/null").is_char_device()
