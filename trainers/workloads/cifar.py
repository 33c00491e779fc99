"""Reads CIFAR-10 and CIFAR-100 as their authors publish them; never downloads anything.

https://www.cs.toronto.edu/~kriz/cifar.html describes them.
"""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from syncswitch.storage.errors import WorkloadError, one_line
from syncswitch.trainers.job.data import Array
from syncswitch.trainers.workloads.cifar_batch import parse_batch

FOLDER_VARIABLE = "SYNCSWITCH_DATA"
"""Environment variable that names the folder with the data, instead of the Keras cache."""


@dataclass(frozen=True)
class CifarFiles:
    """How one of the data sets is laid out.

    Attributes:
        title: What people call it.
        folder: Folder in the archive.
        archive: Name of the archive where it is published.
        train: Names of the files with the training pictures, in order.
        test: Names of the files with the test pictures.
        label_key: What the class numbers are called in a file.
        classes: How many there are.
        keras_name: Module in `keras.datasets`.
    """

    title: str
    folder: str
    archive: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    label_key: bytes
    classes: int
    keras_name: str

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
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test=("test_batch",),
    label_key=b"labels",
    classes=10,
    keras_name="cifar10",
)
CIFAR_100 = CifarFiles(
    title="CIFAR-100",
    folder="cifar-100-python",
    archive="cifar-100-python.tar.gz",
    train=("train",),
    test=("test",),
    label_key=b"fine_labels",
    classes=100,
    keras_name="cifar100",
)


def read_cifar(files: CifarFiles) -> tuple[Array, Array, Array, Array]:
    """Reads a data set from the folder in `SYNCSWITCH_DATA`, else from the Keras cache.

    Returns:
        Training pictures (uint8, shape [pictures, 32, 32, 3]), training labels (int32, shape
        [pictures]), test pictures, test labels.

    Raises:
        WorkloadError: The files are missing, damaged, or not of this data set.
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
            batches[name] = parse_batch(read(), files.label_key, files.classes)
            where = source
        train, test = _joined(batches, files.train), _joined(batches, files.test)
    except Exception as error:  # a damaged archive or pickle raises errors of a dozen kinds
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
    names = (*files.train, *files.test)
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
    names = (*files.train, *files.test)
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


def _joined(
    batches: Mapping[str, tuple[Array, Array]], names: tuple[str, ...]
) -> tuple[Array, Array]:
    for name in names:
        if name not in batches:
            raise ValueError(f"it has no {name}")
    pictures, labels = zip(*(batches[name] for name in names), strict=True)
    return np.concatenate(pictures), np.concatenate(labels)


def _wanted(files: CifarFiles) -> str:
    names = ", ".join((*files.train, *files.test))
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
