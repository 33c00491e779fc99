"""Reads CIFAR-10 and CIFAR-100 as their authors publish them; never downloads anything.

https://www.cs.toronto.edu/~kriz/cifar.html describes them. The files are pickles, which can run any
code when they are read, so only those with a published hash are.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from syncswitch.storage.errors import WorkloadError, one_line
from syncswitch.trainers.job.sources.source import Array

FOLDER_VARIABLE = "SYNCSWITCH_DATA"
"""Environment variable that names the folder with the data, instead of the Keras cache."""


@dataclass(frozen=True)
class CifarFiles:
    """How one of the data sets is laid out.

    Attributes:
        title: What people call it.
        folder: Folder in the archive.
        archive: Name of the archive where it is published.
        train: MD5 of the files with the training pictures by name, in order.
        test: The same of the test pictures.
        label_key: What the class numbers are called in a file.
        classes: How many there are.
        keras_name: Module in `keras.datasets`.
    """

    title: str
    folder: str
    archive: str
    train: Mapping[str, str]
    test: Mapping[str, str]
    label_key: bytes
    classes: int
    keras_name: str

    @property
    def md5(self) -> Mapping[str, str]:
        """Of all files, by name."""
        return {**self.train, **self.test}

    @property
    def fetch_command(self) -> str:
        """The command that puts it into the Keras cache."""
        return f'python -c "import keras; keras.datasets.{self.keras_name}.load_data()"'

    def folders_in(self, place: Path) -> tuple[Path, ...]:
        """Where the files may be: as Keras unpacks them (from 3.6 on, before), or the place."""
        return place / f"{self.folder}-target" / self.folder, place / self.folder, place

    def archives_in(self, place: Path) -> tuple[Path, ...]:
        """Where the archive may be: as Keras names it (from 3.6 on, before), or as published."""
        names = (f"{self.folder}-target_archive", f"{self.folder}.tar.gz", self.archive)
        return tuple(place / name for name in names)


CIFAR_10 = CifarFiles(
    title="CIFAR-10",
    folder="cifar-10-batches-py",
    archive="cifar-10-python.tar.gz",
    train={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    },
    test={"test_batch": "40351d587109b95175f43aff81a1287e"},
    label_key=b"labels",
    classes=10,
    keras_name="cifar10",
)
CIFAR_100 = CifarFiles(
    title="CIFAR-100",
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    train={"train": "16019d7e3df5f24257cddd939b257f8d"},
    test={"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
    label_key=b"fine_labels",
    classes=100,
    keras_name="cifar100",
)


def read_cifar(files: CifarFiles) -> tuple[Array, Array, Array, Array]:
    """Reads a data set from the folder in `SYNCSWITCH_DATA`, else from the Keras cache.

    Returns:
        Training pictures (uint8, shape [pictures, 32, 32, 3]), training labels (int32, shape
        [pictures]), test pictures, test labels.
    """
    places, is_named = _places()
    source = _find(files, places)
    if source is None:
        raise WorkloadError(
            f"{files.title} is missing in {' and '.join(map(str, places))}: {_wanted(files)}; "
            f"{_remedy(files, is_named=is_named)}"
        )
    batches = {}
    where = source
    try:
        for name, read in _members(files, source):
            where = source / name if source.is_dir() else source
            batches[name] = _read_batch(read(), files.md5[name], files.label_key)
            where = source
        train, test = _concatenated(batches, files.train), _concatenated(batches, files.test)
    except Exception as error:  # a damaged archive raises errors of a dozen kinds
        raise WorkloadError(
            f"{files.title}: {where} is damaged or of another data set ({one_line(error)}); "
            f"remove it and {_remedy(files, is_named=is_named)}"
        ) from error
    return (*train, *test)


def _places() -> tuple[tuple[Path, ...], bool]:
    """Where to look, and whether the user named the place.

    Keras keeps data sets in its home, and in a temporary one where it may not write there.
    """
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return (Path(named).expanduser(),), True
    home = Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser()
    if os.access(home, os.W_OK):
        return (home / "datasets",), False
    temporary = Path("/tmp") if Path("/tmp").is_dir() else Path(tempfile.gettempdir())
    return (home / "datasets", temporary / ".keras" / "datasets"), False


def _find(files: CifarFiles, places: tuple[Path, ...]) -> Path | None:
    """The folder that holds all files, else the archive, else a folder that holds some."""
    names = files.md5
    folders = [folder for place in places for folder in files.folders_in(place)]
    archives = [archive for place in places for archive in files.archives_in(place)]
    held = {folder: sum((folder / name).is_file() for name in names) for folder in folders}
    for folder in folders:
        if held[folder] == len(names):
            return folder
    for archive in archives:
        if archive.is_file():
            return archive
    # A lone file called `train` in a folder of the user's says nothing.
    return next((folder for folder in folders if held[folder] and folder not in places), None)


def _members(files: CifarFiles, source: Path) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Name of each file that is there, and what reads it; to be called before the next one."""
    names = files.md5
    if source.is_dir():
        for name in names:
            if (source / name).is_file():
                yield name, (source / name).read_bytes
        return
    # Front to back: to go back in a compressed archive is to read it again.
    with tarfile.open(source, "r|*") as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            opened = archive.extractfile(member) if name in names and member.isfile() else None
            if opened is not None:
                yield name, opened.read


def _read_batch(content: bytes, md5: str, label_key: bytes) -> tuple[Array, Array]:
    """Pictures and labels of one file."""
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != md5:
        raise ValueError(f"its MD5 is {found} instead of the published {md5}")
    batch = pickle.loads(content, encoding="bytes")
    # Each picture is a row: all red values first, then the green, then the blue ones.
    planes = batch[b"data"].reshape(-1, 3, 32, 32)
    return np.ascontiguousarray(planes.transpose(0, 2, 3, 1)), np.array(batch[label_key], np.int32)


def _concatenated(
    batches: Mapping[str, tuple[Array, Array]], names: Iterable[str]
) -> tuple[Array, Array]:
    for name in names:
        if name not in batches:
            raise ValueError(f"it has no {name}")
    pictures, labels = zip(*(batches[name] for name in names), strict=True)
    return np.concatenate(pictures), np.concatenate(labels)


def _wanted(files: CifarFiles) -> str:
    names = ", ".join(files.md5)
    return (
        f"neither a folder {files.folder} nor an archive {files.archive} is there, "
        f"nor are the files {names}"
    )


def _remedy(files: CifarFiles, *, is_named: bool) -> str:
    if is_named:
        return (
            f"name the folder that holds it in {FOLDER_VARIABLE}, or unset that variable and fetch "
            f"it with: {files.fetch_command}"
        )
    return f"fetch it with: {files.fetch_command} (or name its folder in {FOLDER_VARIABLE})"
