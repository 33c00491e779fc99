from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.cluster.processes.log_tail import tail_of_log


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (b"", "nothing"),
        (b"\n \n", "nothing"),
        (b"one\n  two  \n", "one | two"),
        (b"".join(b"%d\n" % number for number in range(1000)), "995 | 996 | 997 | 998 | 999"),
    ],
)
def test_the_last_lines_are_kept(written: bytes, words: str) -> None:
    assert tail_of_log(io.BytesIO(written)) == f"its last words: {words}"


@given(written=st.binary(max_size=200), times=st.integers(1, 100))
def test_they_are_short_whatever_was_written(written: bytes, times: int) -> None:
    assert len(tail_of_log(io.BytesIO(written * times))) < 1100
