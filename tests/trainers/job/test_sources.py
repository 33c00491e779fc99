from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.job.sources import NumpyFiles, TFRecordFiles
from tests.failing import fails
from tests.trainers.shipping import shipped
from tests.wording import Said


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
    # A copy on another machine has a time of its own.
    copied = shipped(source)
    os.utime(tmp_path / "a-3", ns=(1, 1))
    assert read(copied, 3) == [b"three"]


def cut(path: Path) -> None:
    write_records(path, [b"one", b"two"])
    path.write_bytes(path.read_bytes()[:-1])


def test_files_that_are_none_are_named_in_one_line(tmp_path: Path, said: Said) -> None:
    for write in (
        lambda path: None,
        Path.touch,
        lambda path: path.write_bytes(b"this is a text, and rather long"),
        cut,
        lambda path: path.write_bytes(gzip.compress(b"x")),
    ):
        write(tmp_path / "file")
        said.refusal("workload-unsuitable", TFRecordFiles, tmp_path / "file")
    for nothing in ("nothing-*.tfrecord", []):
        said.refusal("workload-unsuitable", TFRecordFiles, nothing)


def later(path: Path) -> None:
    write_records(path, [b"7", b"8"])
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: write_records(path, [b"1", b"2", b"3"]), "has changed since"),
        (later, "has changed since"),
        (Path.unlink, "cannot be read here"),
    ],
)
def test_files_have_to_stay_as_they_are(
    tmp_path: Path, change: Callable[[Path], None], words: str
) -> None:
    path = tmp_path / "file"
    write_records(path, [b"1", b"2"])
    source = TFRecordFiles(path)
    source.check()
    change(path)
    for use in (source.check, lambda: read(source, 1)):
        with fails("workload-unsuitable", words):
            use()


def saved(path: Path, values: Any) -> Path:
    np.save(path, values)
    return path


def test_rows_come_from_each_file(tmp_path: Path) -> None:
    inputs, labels = np.arange(24, dtype=np.float32).reshape((6, 2, 2), order="F"), np.arange(6)
    source = NumpyFiles(saved(tmp_path / "x.npy", inputs), saved(tmp_path / "y.npy", labels))
    assert source.examples == 6
    wanted = np.array([5, 0, 3, 0])
    for one in (source, shipped(source)):
        one.check()
        found = one.read(wanted)
        np.testing.assert_array_equal(found[0], inputs[wanted])
        np.testing.assert_array_equal(found[1], labels[wanted])
        assert not any(isinstance(part, np.memmap) for part in found)
    saved(tmp_path / "y.npy", labels[:5])
    with fails("workload-unsuitable", r"y\.npy has changed"):
        source.read(wanted)


def test_threads_read_the_same_files_at_once_and_parse_no_header(tmp_path: Path) -> None:
    inputs = np.arange(24.0).reshape(6, 4)
    path = saved(tmp_path / "x.npy", inputs)
    source = NumpyFiles(path)
    with path.open("r+b") as file:
        file.write(bytes(32))
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(source.read, [np.array([number % 6]) for number in range(3000)]))
    np.testing.assert_array_equal(np.concatenate(found, axis=1)[0], np.tile(inputs, (500, 1)))


def test_what_are_no_rows_is_refused(tmp_path: Path, said: Said) -> None:
    for values in (np.array([{}], object), np.array(3), np.zeros(4)):
        path = saved(tmp_path / "x.npy", values)
        said.refusal(
            "workload-unsuitable", NumpyFiles, path, saved(tmp_path / "y.npy", np.zeros(3))
        )
