from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.sources.files import TFRecordFiles
from tests.trainers.shipping import shipped


def write_records(path: Path, records: list[bytes]) -> None:
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


def read(source: TFRecordFiles, *numbers: int) -> list[bytes]:
    (found,) = source.read(np.array(numbers))
    return list(found)


def test_tfrecords_are_found_by_their_numbers(tmp_path: Path) -> None:
    write_records(tmp_path / "a-1", [b"zero", b"", b"two" * 999])
    write_records(tmp_path / "a-2", [])
    write_records(tmp_path / "a-3", [b"three"])
    source = TFRecordFiles(tmp_path / "a-*")
    assert source.examples == 4
    assert read(source, 3, 0, 2, 1, 0) == [b"three", b"zero", b"two" * 999, b"", b"zero"]
    assert read(shipped(source), 3) == [b"three"]


def empty(path: Path) -> None:
    path.write_bytes(b"")


def no_records(path: Path) -> None:
    path.write_bytes(b"this is a text, and rather long")


def cut(path: Path) -> None:
    write_records(path, [b"one", b"two"])
    path.write_bytes(path.read_bytes()[:-1])


def compressed(path: Path) -> None:
    path.write_bytes(gzip.compress(b"x"))


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda path: None, "cannot be read here"),
        (empty, "holds no record"),
        (no_records, "is no TFRecord file, or ends within the record at byte 0$"),
        (cut, "is no TFRecord file, or ends within the record at byte 19$"),
        (compressed, "is compressed, .* unpack it, or"),
    ],
)
def test_files_that_are_none_are_named_in_one_line(
    tmp_path: Path, write: Callable[[Path], None], words: str
) -> None:
    write(tmp_path / "file")
    with pytest.raises(WorkloadError, match=f"^data: {tmp_path}/file {words}"):
        TFRecordFiles(tmp_path / "file")


@pytest.mark.parametrize("given", ["nothing-*.tfrecord", []])
def test_there_has_to_be_a_file(given: str | list[str]) -> None:
    with pytest.raises(WorkloadError, match=r"^data: no file"):
        TFRecordFiles(given)


def longer(path: Path) -> None:
    write_records(path, [b"1", b"2", b"3"])


def later(path: Path) -> None:
    write_records(path, [b"7", b"8"])
    os.utime(path, ns=(1, 1))


def gone(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(
    ("change", "words"),
    [(longer, "has changed since"), (later, "has changed since"), (gone, "cannot be read here")],
)
def test_files_have_to_stay_as_they_are(
    tmp_path: Path, change: Callable[[Path], None], words: str
) -> None:
    path = tmp_path / "file"
    write_records(path, [b"1", b"2"])
    source = TFRecordFiles(path)
    source.check()
    change(path)
    with pytest.raises(WorkloadError, match=words):
        read(source, 1)
    with pytest.raises(WorkloadError, match=words):
        source.check()


def test_a_copy_on_another_machine_has_a_time_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_records(path, [b"1", b"2"])
    source = TFRecordFiles(path)
    source.check()
    os.utime(path, ns=(1, 1))
    assert read(shipped(source), 1) == [b"2"]
