from __future__ import annotations

import textwrap
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import UserError
from syncswitch.trainers.model.state import Checkpoint, read_checkpoint, write_checkpoint
from tests.properties import FIXTURES_STAY, more_examples
from tests.warm_program import WarmProcess

CHECKPOINT = Checkpoint(
    model="abc",
    seed=7,
    worker_step=120,
    first_protocol_worker_steps=100,
    updates=30,
    elapsed_seconds=1.25,
    parameters={"000-kernel": np.arange(6, dtype=np.float32).reshape(2, 3)},
    slots={"momentum/000-kernel": np.ones((2, 3), np.float32)},
    statistics={"000-moving_mean": np.zeros(3, np.float32)},
)


def assert_refused(path: Path) -> None:
    with pytest.raises(UserError) as error:
        read_checkpoint(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_what_is_written_is_read_and_a_failed_write_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "deep" / "er" / "c.npz"
    write_checkpoint(path, replace(CHECKPOINT, worker_step=1))
    write_checkpoint(path, CHECKPOINT)

    def full_disk(file: IO[bytes], **arrays: object) -> None:
        file.write(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    with pytest.raises(OSError, match="no space"):
        write_checkpoint(path, replace(CHECKPOINT, worker_step=999))
    np.testing.assert_equal(asdict(read_checkpoint(path)), asdict(CHECKPOINT))
    assert [path.name for path in path.parent.iterdir()] == ["c.npz"]


WRITER = """
    import sys
    from tests.trainers.model.test_checkpoint import *

    round = 0
    while True:
        round += 1
        values = np.full(1_500_000, round % 1000, np.float32)
        write_checkpoint(
            Path(sys.argv[1]),
            replace(CHECKPOINT, worker_step=round, parameters={"v": values}, slots={"v": values}),
        )
        print(round, flush=True)
"""


def test_killed_at_any_moment_the_file_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    random = np.random.default_rng(0)
    half_written = 0
    for _ in range(10):
        process = WarmProcess(textwrap.dedent(WRITER), str(path), folder=tmp_path)
        process.stdout.readline()
        time.sleep(random.uniform(0.0, 0.06))
        process.kill()
        reported, _ = process.communicate()
        last_reported = int(("0\n" + reported).split()[-1])
        checkpoint = read_checkpoint(path)
        assert checkpoint.worker_step >= last_reported
        for group in (checkpoint.parameters, checkpoint.slots):
            assert group["v"].shape == (1_500_000,)
            assert (group["v"] == checkpoint.worker_step % 1000).all()
        half_written += len(list(tmp_path.iterdir())) > 1
    assert half_written, "no process was killed while it wrote: the test saw nothing"


def pickled(path: Path) -> None:
    write_checkpoint(path, CHECKPOINT)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{**arrays, "model": np.array("abc", object)})


@pytest.mark.parametrize(
    "write",
    [
        lambda path: None,
        Path.mkdir,
        lambda path: path.write_bytes(b"weights"),
        lambda path: np.savez(path, weights=np.ones(3)),
        lambda path: np.savez(path, embeddings=np.array("no list")),
        pickled,
    ],
    ids=["missing", "folder", "text", "another archive", "no list of embeddings", "pickled"],
)
def test_what_is_not_a_checkpoint_is_refused(tmp_path: Path, write: Callable[[Path], None]) -> None:
    write(tmp_path / "c.npz")
    assert_refused(tmp_path / "c.npz")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "c.npz"
    write_checkpoint(path, CHECKPOINT)
    return path.read_bytes()


def test_truncated_anywhere_it_is_refused(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "c.npz"
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        assert_refused(path)


@given(position=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
@more_examples(6, FIXTURES_STAY)
def test_with_a_byte_altered_it_is_refused_or_says_nothing_else(
    tmp_path: Path, whole: bytes, position: float, flip: int
) -> None:
    """An altered directory of the archive may hide arrays, which a trainer then misses."""
    altered = bytearray(whole)
    altered[int(position * len(altered))] ^= flip
    path = tmp_path / "c.npz"
    path.write_bytes(bytes(altered))
    try:
        checkpoint = read_checkpoint(path)
    except UserError:
        assert_refused(path)
        return
    found, expected = asdict(checkpoint), asdict(CHECKPOINT)
    for group in ("parameters", "slots", "statistics"):
        expected[group] = {name: expected[group][name] for name in found[group]}
    np.testing.assert_equal(found, expected)
