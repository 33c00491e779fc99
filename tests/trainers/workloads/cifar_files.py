"""Small files in the format of the published ones: pickles that Python 2 and numpy 1 wrote."""

from __future__ import annotations

import hashlib
import io
import pickle
import struct
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from syncswitch.trainers.workloads.cifar import CifarFiles


class _Python2Pickler(pickle._Pickler):  # type: ignore[misc, name-defined]  # not in the stubs
    """Writes what protocol 2 of Python 2 makes: strings are bytes, numpy has its old name."""

    dispatch: ClassVar[dict[Any, Any]] = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def _save_string(self, value: bytes | str) -> None:
        content = value if isinstance(value, bytes) else value.encode("latin-1")
        if len(content) < 256:
            self.write(pickle.SHORT_BINSTRING + bytes([len(content)]) + content)
        else:
            self.write(pickle.BINSTRING + struct.pack("<i", len(content)) + content)
        self.memoize(value)

    def save_global(self, value: Any, name: str | None = None) -> None:
        if getattr(value, "__name__", "") == "_reconstruct":
            self.write(pickle.GLOBAL + b"numpy.core.multiarray\n_reconstruct\n")
            self.memoize(value)
        else:
            super().save_global(value, name)

    dispatch[bytes] = dispatch[str] = _save_string


def python2_pickle(value: Any) -> bytes:
    file = io.BytesIO()
    _Python2Pickler(file, 2).dump(value)
    return file.getvalue()


def batch_of(files: CifarFiles, pictures: int, seed: int) -> dict[bytes, Any]:
    """Pictures whose class shows in their colours, under the keys of the published files."""
    generator = np.random.default_rng(seed)
    labels = np.arange(pictures) % files.classes
    colours = np.random.default_rng(99).integers(0, 200, (files.classes, 3, 1))
    values = colours[labels] + generator.integers(0, 56, (pictures, 3, 32 * 32))
    return {
        b"batch_label": b"training batch 1 of 5",
        files.label_key: [int(label) for label in labels],
        b"data": values.astype(np.uint8).reshape(pictures, -1),
        b"filenames": [b"picture_%d.png" % number for number in range(pictures)],
    }


def contents_of(files: CifarFiles, pictures: int = 20) -> dict[str, bytes]:
    """Each file by name; the last ones, of the test set, hold other pictures than the first."""
    names = (*files.train, *files.test)
    return {
        name: python2_pickle(batch_of(files, pictures, seed)) for seed, name in enumerate(names)
    }


def small(files: CifarFiles, pictures: int = 20) -> CifarFiles:
    """The data set with the hashes of what `contents_of` makes."""
    md5 = {
        name: hashlib.md5(file).hexdigest() for name, file in contents_of(files, pictures).items()
    }
    return replace(
        files,
        train={name: md5[name] for name in files.train},
        test={name: md5[name] for name in files.test},
    )


def write_folder(folder: Path, contents: Mapping[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


def write_archive(path: Path, folder: str, contents: Mapping[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in {"readme.html": b"<html/>", **contents}.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path
