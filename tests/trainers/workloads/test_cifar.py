from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.workloads.cifar import (
    CIFAR_10,
    CIFAR_100,
    FOLDER_VARIABLE,
    CifarFiles,
    _places,
    read_cifar,
)
from tests.trainers.workloads.cifar_files import (
    batch_of,
    contents_of,
    small,
    write_archive,
    write_folder,
)

BOTH = pytest.mark.parametrize("files", [CIFAR_10, CIFAR_100], ids=lambda files: files.title)

# Where Keras leaves a data set below its home: from 3.6 on, and before.
UNPACKED = ["datasets/{folder}-target/{folder}", "datasets/{folder}"]
ARCHIVES = ["datasets/{folder}-target_archive", "datasets/{folder}.tar.gz"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of Keras, empty."""
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    (tmp_path / "keras").mkdir()
    return tmp_path / "keras"


def assert_whole(files: CifarFiles) -> None:
    """What `contents_of` wrote is read, each set in its order."""
    train, train_labels, test, test_labels = read_cifar(small(files))
    batches = [batch_of(files, 20, seed) for seed in range(len(files.train) + 1)]
    for pictures, labels, expected in (
        (train, train_labels, batches[:-1]),
        (test, test_labels, batches[-1:]),
    ):
        assert (pictures.dtype, labels.dtype) == (np.uint8, np.int32)
        assert pictures.shape == (20 * len(expected), 32, 32, 3)
        assert pictures.flags.c_contiguous
        planes = np.concatenate([batch[b"data"] for batch in expected]).reshape(-1, 3, 32, 32)
        for channel in range(3):
            np.testing.assert_array_equal(pictures[..., channel], planes[:, channel])
        assert labels.tolist() == [label for batch in expected for label in batch[files.label_key]]


def message_of(files: CifarFiles) -> str:
    """The one line that says what is wrong."""
    with pytest.raises(WorkloadError) as error:
        read_cifar(small(files))
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(files.title)
    assert f'python -c "import keras; keras.datasets.{files.keras_name}.load_data()"' in message
    assert FOLDER_VARIABLE in message
    return message


class TestPlaces:
    @BOTH
    @pytest.mark.parametrize("place", UNPACKED)
    def test_a_folder_in_the_keras_cache(self, home: Path, files: CifarFiles, place: str) -> None:
        write_folder(home / place.format(folder=files.folder), contents_of(files))
        assert_whole(files)

    @BOTH
    @pytest.mark.parametrize("place", ARCHIVES)
    def test_an_archive_in_the_keras_cache(self, home: Path, files: CifarFiles, place: str) -> None:
        path = home / place.format(folder=files.folder)
        write_archive(path, files.folder, contents_of(files))
        assert_whole(files)
        assert sorted(home.rglob("*")) == [home / "datasets", path]

    @BOTH
    @pytest.mark.parametrize("place", ["elsewhere", "elsewhere/{folder}"])
    def test_a_folder_that_the_variable_names(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, files: CifarFiles, place: str
    ) -> None:
        write_folder(home / "datasets" / files.folder, dict.fromkeys(contents_of(files), b"wrong"))
        write_folder(home / place.format(folder=files.folder), contents_of(files))
        monkeypatch.setenv(FOLDER_VARIABLE, str(home / "elsewhere"))
        assert_whole(files)

    def test_an_archive_as_published_where_the_variable_says(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = home / "elsewhere" / "cifar-10-python.tar.gz"
        write_archive(path, CIFAR_10.folder, contents_of(CIFAR_10))
        monkeypatch.setenv(FOLDER_VARIABLE, str(home / "elsewhere"))
        assert_whole(CIFAR_10)

    def test_both_data_sets_side_by_side(self, home: Path) -> None:
        for files in (CIFAR_10, CIFAR_100):
            write_folder(home / "datasets" / files.folder, contents_of(files))
        assert_whole(CIFAR_10)
        assert_whole(CIFAR_100)

    def test_a_whole_archive_beside_half_a_folder(self, home: Path) -> None:
        contents = contents_of(CIFAR_10)
        write_folder(home / "datasets" / CIFAR_10.folder, {"test_batch": contents["test_batch"]})
        write_archive(home / "datasets/cifar-10-batches-py.tar.gz", CIFAR_10.folder, contents)
        assert_whole(CIFAR_10)

    def test_where_keras_itself_looks(self, keras: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
        from keras.src.backend.config import keras_home

        places, _ = _places()
        assert Path(keras_home()).expanduser() / "datasets" in places


class TestMissing:
    @BOTH
    def test_says_what_was_looked_for_where_and_what_to_do(
        self, home: Path, files: CifarFiles
    ) -> None:
        message = message_of(files)
        for part in (str(home / "datasets"), files.folder, files.archive, *files.train):
            assert part in message
        assert "/tmp/.keras" not in message
        assert list(home.iterdir()) == []

    def test_also_where_keras_goes_when_it_may_not_write(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("KERAS_HOME", str(home / "nobody-made-it"))
        message = message_of(CIFAR_10)
        assert str(home / "nobody-made-it" / "datasets") in message
        assert ".keras/datasets" in message

    @BOTH
    def test_where_the_variable_says(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, files: CifarFiles
    ) -> None:
        write_folder(home / "datasets" / files.folder, contents_of(files))
        monkeypatch.setenv(FOLDER_VARIABLE, str(home / "elsewhere"))
        message = message_of(files)
        assert str(home / "elsewhere") in message
        assert str(home / "datasets") not in message

    def test_an_empty_variable_is_none(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_folder(home / "datasets" / CIFAR_10.folder, contents_of(CIFAR_10))
        monkeypatch.setenv(FOLDER_VARIABLE, "")
        assert_whole(CIFAR_10)

    def test_one_file_of_a_folder(self, home: Path) -> None:
        contents = contents_of(CIFAR_10)
        del contents["data_batch_3"]
        folder = write_folder(home / "datasets" / CIFAR_10.folder, contents)
        message = message_of(CIFAR_10)
        assert f"{folder} is damaged" in message
        assert "no data_batch_3" in message

    def test_one_file_of_an_archive(self, home: Path) -> None:
        contents = contents_of(CIFAR_100)
        del contents["test"]
        path = home / "datasets" / "cifar-100-python.tar.gz"
        write_archive(path, CIFAR_100.folder, contents)
        message = message_of(CIFAR_100)
        assert f"{path} is damaged" in message
        assert "no test" in message

    def test_a_folder_of_the_users_with_a_file_of_that_name(
        self, home: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It is no reason to tell anybody to remove that folder."""
        monkeypatch.setenv(FOLDER_VARIABLE, str(write_folder(home / "mine", {"train": b"ours"})))
        assert "remove" not in message_of(CIFAR_100)


class TestDamaged:
    @BOTH
    @pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
    def test_a_truncated_file(self, home: Path, files: CifarFiles, share: float) -> None:
        contents = contents_of(files)
        whole = contents[[*files.train][-1]]
        contents[[*files.train][-1]] = whole[: int(share * len(whole))]
        folder = write_folder(home / "datasets" / files.folder, contents)
        assert f"{folder / [*files.train][-1]} is damaged" in message_of(files)

    @pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9])
    def test_a_truncated_archive(self, home: Path, share: float) -> None:
        path = home / "datasets" / "cifar-10-batches-py-target_archive"
        write_archive(path, CIFAR_10.folder, contents_of(CIFAR_10))
        whole = path.read_bytes()
        path.write_bytes(whole[: int(share * len(whole))])
        assert f"{path} is damaged" in message_of(CIFAR_10)

    @pytest.mark.parametrize("content", [b"", b"<html>404</html>", b"\x80\x02", bytes(1024)])
    def test_an_archive_that_is_none(self, home: Path, content: bytes) -> None:
        path = home / "datasets" / "cifar-10-batches-py.tar.gz"
        path.parent.mkdir()
        path.write_bytes(content)
        assert f"{path} is damaged" in message_of(CIFAR_10)

    def test_a_file_of_the_other_data_set(self, home: Path) -> None:
        other = contents_of(CIFAR_100)["train"]
        contents = {**contents_of(CIFAR_10), "data_batch_2": other}
        write_folder(home / "datasets" / CIFAR_10.folder, contents)
        message = message_of(CIFAR_10)
        assert "data_batch_2 is damaged or of another data set" in message
        found = hashlib.md5(other).hexdigest()
        published = small(CIFAR_10).train["data_batch_2"]
        assert f"its MD5 is {found} instead of the published {published}" in message

    def test_a_file_that_cannot_be_read(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = write_folder(home / "datasets" / CIFAR_100.folder, contents_of(CIFAR_100))
        real = Path.read_bytes

        def forbidden(path: Path) -> bytes:
            if path.name == "test":
                raise PermissionError(13, "Permission denied", str(path))
            return real(path)

        monkeypatch.setattr(Path, "read_bytes", forbidden)
        message = message_of(CIFAR_100)
        assert f"{folder / 'test'} is damaged" in message
        assert "Permission denied" in message

    @pytest.mark.parametrize("is_archive", [False, True])
    def test_a_file_that_would_run_code(self, home: Path, is_archive: bool) -> None:
        evil = b"cos\nsystem\n(S'touch ran'\ntR."
        contents = {**contents_of(CIFAR_10), "data_batch_1": evil}
        if is_archive:
            path = home / "datasets" / "cifar-10-batches-py.tar.gz"
            write_archive(path, CIFAR_10.folder, contents)
        else:
            path = write_folder(home / "datasets" / CIFAR_10.folder, contents) / "data_batch_1"
        assert f"{path} is damaged" in message_of(CIFAR_10)
        assert not Path("ran").exists()

    @BOTH
    def test_the_published_hashes_are_asked_for(self, home: Path, files: CifarFiles) -> None:
        write_folder(home / "datasets" / files.folder, contents_of(files))
        with pytest.raises(WorkloadError, match="is damaged or of another data set"):
            read_cifar(files)
