from __future__ import annotations

import errno
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from syncswitch.storage.errors import UserError
from syncswitch.storage.files import OwnedFolder, whole_file
from tests.storage.conftest import AtOnce


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


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none/table.csv", "No such file"),
        ("folder", "not a regular file"),
        ("pipe", "not a regular file"),
        ("link-to-pipe", "not a regular file"),
        ("circle", "symbolic links lead in a circle"),
        ("n" * 300, "File name too long"),
    ],
)
def test_a_path_that_can_be_no_file_is_refused(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link-to-pipe").symlink_to("pipe")
    (tmp_path / "circle").symlink_to("circle")
    there = set(tmp_path.iterdir())
    message = f"cannot write the file .*{said}"
    with pytest.raises(UserError, match=message), whole_file(tmp_path / name):
        pytest.fail("the file was opened")
    assert set(tmp_path.iterdir()) == there
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("name", ["", ".", "/"])
def test_a_path_that_names_no_file_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="not the name of a file"), whole_file(Path(name)):
        pytest.fail("the file was opened")


@pytest.mark.parametrize("exists", [True, False])
def test_what_a_symbolic_link_points_at_is_written(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    if exists:
        (folder / "table.csv").write_text("old")
    link = tmp_path / "link.csv"
    link.symlink_to(Path("folder") / "table.csv")
    with whole_file(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert (folder / "table.csv").read_text() == "new"
    assert list(folder.iterdir()) == [folder / "table.csv"]


@pytest.mark.parametrize("there", [None, b"", b"new, older"])
def test_what_is_of_the_same_kind_is_replaced(tmp_path: Path, there: bytes | None) -> None:
    path = tmp_path / "table.csv"
    if there is not None:
        path.write_bytes(there)
    with whole_file(path, replaces=(b"newer", b"new,")) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("there", [b"SQLite format 3\x00", b"import os\n", b"n"])
def test_what_is_of_another_kind_is_kept(tmp_path: Path, there: bytes) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(there)
    with (
        pytest.raises(UserError, match=r"train\.py exists, and is not a file of the kind"),
        whole_file(path, replaces=(b"newer", b"new,")),
    ):
        pytest.fail("the file was opened")
    assert path.read_bytes() == there
    assert list(tmp_path.iterdir()) == [path]


def _end_without_a_word(place: Path) -> None:
    folder = OwnedFolder("own-", place)
    (folder.path / "file").write_text("")
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_folder_goes_with_its_owner_or_with_the_next_one(tmp_path: Path) -> None:
    with OwnedFolder("own-", tmp_path) as living:
        kept = OwnedFolder("own-", tmp_path)
        killed = multiprocessing.get_context("fork").Process(
            target=_end_without_a_word, args=(tmp_path,)
        )
        killed.start()
        killed.join(60)
        assert len(list(tmp_path.iterdir())) == 3
        somebody_elses = tmp_path / "own-file"
        somebody_elses.write_text("")
        left = kept.keep("left-")
        with OwnedFolder("own-", tmp_path) as new:
            assert set(tmp_path.iterdir()) == {living, left, new, somebody_elses}
    assert set(tmp_path.iterdir()) == {left, somebody_elses}


def test_those_who_start_at_once_take_no_folder_from_each_other(
    tmp_path: Path, at_once: AtOnce
) -> None:
    def own(_: int) -> int:
        return sum(_is_kept(tmp_path) for _ in range(100))

    assert at_once(own, 3) == [100] * 3


def test_without_locks_a_folder_is_left_to_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with OwnedFolder("own-", tmp_path) as first, OwnedFolder("own-", tmp_path) as second:
        assert sorted(tmp_path.iterdir()) == sorted([first, second])
    assert list(tmp_path.iterdir()) == []


def _is_kept(place: Path) -> bool:
    with OwnedFolder("own-", place) as folder:
        return folder.is_dir()
