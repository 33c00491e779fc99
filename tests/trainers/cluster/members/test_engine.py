from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.cluster.members.engine import tail_of_log


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (b"", "nothing"),
        (b"\n \n", "nothing"),
        (b"one\n  two  \n", "one | two"),
        (b"".join(b"%d\n" % number for number in range(1000)), "995 | 996 | 997 | 998 | 999"),
    ],
)
def test_the_last_lines_are_kept(tmp_path: Path, written: bytes, words: str) -> None:
    log = tmp_path / "part.log"
    log.write_bytes(written)
    assert tail_of_log(log) == f"its last words: {words}"


def test_a_log_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert tail_of_log(tmp_path / "none.log") == "its last words: nothing"


@given(written=st.binary(max_size=200), times=st.integers(1, 100))
def test_they_are_short_whatever_was_written(written: bytes, times: int) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(written * times)
        file.flush()
        assert len(tail_of_log(Path(file.name))) < 1100
