from __future__ import annotations

import errno
import os
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from syncswitch.storage.errors import UserError
from syncswitch.storage.files import OwnedFolder, check_private, whole_file
from tests.processes import exit_code_of
from tests.storage.conftest import AtOnce
from tests.wording import Said


def test_the_file_appears_at_the_end_for_all_to_read(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("old")
    with pytest.raises(TypeError), whole_file(path) as file:
        file.writelines([b"half", "and no more"])  # type: ignore[list-item]
    assert path.read_text() == "old"
    before = os.umask(0o022)
    with whole_file(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    os.umask(before)
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_a_path_that_can_be_no_file_is_refused(tmp_path: Path, said: Said) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link-to-pipe").symlink_to("pipe")
    (tmp_path / "circle").symlink_to("circle")
    there = set(tmp_path.iterdir())
    for name in ("none/table.csv", "folder", "pipe", "link-to-pipe", "circle", "n" * 300, "/"):
        with pytest.raises(UserError) as caught, whole_file(tmp_path / name):
            pytest.fail("the file was opened")
        said(caught.value)
        assert set(tmp_path.iterdir()) == there
        assert (tmp_path / "pipe").is_fifo()


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


@pytest.mark.parametrize(
    ("there", "is_replaced"),
    [
        (None, True),
        (b"", True),
        (b"new, older", True),
        (b"SQLite format 3\x00", False),
        (b"import os\n", False),
        (b"n", False),
    ],
)
def test_only_what_is_of_the_same_kind_is_replaced(
    tmp_path: Path, there: bytes | None, is_replaced: bool
) -> None:
    path = tmp_path / "train.py"
    if there is not None:
        path.write_bytes(there)
    said = r"train\.py exists, and is not a file of the kind"
    refuses: Any = nullcontext() if is_replaced else pytest.raises(UserError, match=said)
    with refuses, whole_file(path, replaces=(b"newer", b"new,")) as file:
        file.write(b"new")
    assert path.read_bytes() == (b"new" if is_replaced else there)
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_goes_with_its_owner_or_with_the_next_one(tmp_path: Path) -> None:
    def end_without_a_word() -> None:
        (OwnedFolder("own-", tmp_path).path / "file").touch()
        os.kill(os.getpid(), signal.SIGKILL)

    with OwnedFolder("own-", tmp_path) as living:
        kept = OwnedFolder("own-", tmp_path)
        assert exit_code_of(end_without_a_word) == -signal.SIGKILL
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
    def own(_: int) -> list[bool]:
        kept = []
        for _ in range(100):
            with OwnedFolder("own-", tmp_path) as folder:
                kept.append(folder.is_dir())
        return kept

    assert at_once(own, 3) == [[True] * 100] * 3


def test_without_locks_a_folder_is_left_to_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with OwnedFolder("own-", tmp_path) as first, OwnedFolder("own-", tmp_path) as second:
        assert sorted(tmp_path.iterdir()) == sorted([first, second])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_others_have_prepared_takes_no_secret(tmp_path: Path) -> None:
    """Where everybody may write; elsewhere folders are as their owners have made them."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    check_private(shared / "new")
    check_private(shared / "new")
    assert (shared / "new").stat().st_mode & 0o777 == 0o700
    (shared / "link").symlink_to(tmp_path)
    (shared / "file").touch()
    (shared / "open").mkdir(mode=0o755)
    (shared / "theirs").mkdir(mode=0o700)
    if os.getuid() == 0:
        os.chown(shared / "theirs", 65534, 65534)
    else:
        (shared / "theirs").rmdir()
        (shared / "theirs").symlink_to("new")
    for name in ("link", "file", "open", "theirs"):
        with pytest.raises(OSError, match="another user has made this folder"):
            check_private(shared / name)
    (tmp_path / "own").mkdir(mode=0o755)
    check_private(tmp_path / "own")
    check_private(tmp_path / "none" / "below")
