from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.workloads.cifar import (
    CIFAR_10,
    CIFAR_100,
    FOLDER_VARIABLE,
    CifarFiles,
    _places,
    read_cifar,
)
from syncswitch.trainers.workloads.cifar_batch import parse_batch
from tests.trainers.workloads.cifar_files import (
    batch_of,
    contents_of,
    python2_pickle,
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
    train, train_labels, test, test_labels = read_cifar(files)
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
        read_cifar(files)
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


class Runs:
    """Runs a function while it is unpickled."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._call


class TestDamaged:
    @BOTH
    @pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
    def test_a_truncated_file(self, home: Path, files: CifarFiles, share: float) -> None:
        contents = contents_of(files)
        whole = contents[files.train[-1]]
        contents[files.train[-1]] = whole[: int(share * len(whole))]
        folder = write_folder(home / "datasets" / files.folder, contents)
        assert f"{folder / files.train[-1]} is damaged" in message_of(files)

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
        assert "no 'labels'" in message

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

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({b"data": b"bytes"}, "no array of bytes"),
            ({b"data": None}, "no array of bytes"),
            ({b"data": np.zeros((4, 3072), np.float32)}, "something else than bytes"),
            ({b"data": np.zeros((4, 100), np.uint8)}, "shape (4, 100)"),
            ({b"data": np.zeros((0, 3072), np.uint8), b"labels": []}, "shape (0, 3072)"),
            ({b"data": np.zeros(3072, np.uint8)}, "shape (3072,)"),
            ({b"labels": [0, 1, 2]}, "4 pictures do not have one class number each"),
            ({b"labels": [0.0, 1.0, 2.0, 3.0]}, "one class number each"),
            ({b"labels": [0, 1, 2, None]}, "one class number each"),
            ({b"labels": [[0], [1], [2], [3, 4]]}, ""),
            ({b"labels": b"0123"}, "one class number each"),
            ({b"labels": [0, 1, 2, 10]}, "0 to 10, not 0 to 9"),
            ({b"labels": [-1, 1, 2, 3]}, "-1 to 3, not 0 to 9"),
        ],
        ids=str,
    )
    def test_a_pickle_of_something_else(self, changes: dict[bytes, Any], words: str) -> None:
        batch = {**batch_of(CIFAR_10, 4, 0), **changes}
        with pytest.raises((ValueError, pickle.UnpicklingError)) as error:
            parse_batch(python2_pickle(batch), b"labels", 10)
        assert words in str(error.value)

    def test_a_pickle_of_no_dictionary(self) -> None:
        with pytest.raises(ValueError, match="a list instead of a dictionary"):
            parse_batch(python2_pickle([1, 2]), b"labels", 10)

    def test_as_this_numpy_pickles_and_in_any_order(self) -> None:
        batch = batch_of(CIFAR_10, 4, 0)
        expected, labels = parse_batch(python2_pickle(batch), b"labels", 10)
        for data in (batch[b"data"], np.asfortranarray(batch[b"data"])):
            content = pickle.dumps({**batch, b"data": data}, protocol=4)
            pictures, again = parse_batch(content, b"labels", 10)
            np.testing.assert_array_equal(pictures, expected)
            np.testing.assert_array_equal(again, labels)

    @given(st.data())
    def test_whatever_is_changed_is_an_error_or_pictures(self, data: st.DataObject) -> None:
        """Never a crash, and never anything else."""
        content = bytearray(python2_pickle(batch_of(CIFAR_10, 2, 0)))
        for _ in range(data.draw(st.integers(1, 4))):
            # Near the ends, where everything but pixels is.
            place = data.draw(st.one_of(st.integers(0, 250), st.integers(-120, -1)))
            content[place] = data.draw(st.integers(0, 255))
        try:
            pictures, labels = parse_batch(bytes(content), b"labels", 10)
        except Exception:
            return
        assert pictures.shape == (len(labels), 32, 32, 3)
        assert pictures.dtype == np.uint8
        assert set(labels.tolist()) <= set(range(10))


class TestMalicious:
    @pytest.mark.parametrize(
        "function",
        [os.system, eval, print, pickle.loads, np.load, np.ndarray, np.frombuffer],
        ids=lambda function: function.__name__,
    )
    def test_a_file_that_calls_something(
        self,
        home: Path,
        capfd: pytest.CaptureFixture[str],
        function: Callable[..., Any],
    ) -> None:
        evil = pickle.dumps({b"data": Runs(function, "print('ran')"), b"labels": [0]}, protocol=2)
        contents = {**contents_of(CIFAR_10), "data_batch_1": evil}
        folder = write_folder(home / "datasets" / CIFAR_10.folder, contents)
        assert f"{folder / 'data_batch_1'} is damaged" in message_of(CIFAR_10)
        assert "ran" not in capfd.readouterr().out

    def test_in_an_archive(self, home: Path) -> None:
        evil = pickle.dumps(Runs(os.system, "touch ran"), protocol=2)
        contents = {**contents_of(CIFAR_10), "data_batch_1": evil}
        path = home / "datasets" / "cifar-10-batches-py.tar.gz"
        write_archive(path, CIFAR_10.folder, contents)
        assert "asks for posix.system" in message_of(CIFAR_10)

    def test_bytes_that_numpy_would_take_for_places_in_memory(self) -> None:
        """`numpy.ndarray` with objects in a buffer of the file's own ends the process."""
        pointers = Runs(np.ndarray, (384,), "O", b"A" * 3072)
        evil = pickle.dumps({b"data": pointers, b"labels": [0]}, protocol=4)
        with pytest.raises(TypeError, match="not callable"):
            parse_batch(evil, b"labels", 10)

    @pytest.mark.parametrize("name", ["dtype", "core.multiarray _reconstruct"])
    def test_what_is_put_into_a_function_of_ours_does_not_stay(self, name: str) -> None:
        module, _, function = f"numpy.{name}".replace(" ", ".").rpartition(".")
        # The function, then a state for it: (None, {"__defaults__": (1,), "mine": 2}).
        state = pickle.dumps((None, {"__defaults__": (1,), "mine": 2}), protocol=2)[2:-1]
        evil = pickle.PROTO + b"\x02" + f"c{module}\n{function}\n".encode() + state + b"b."
        with pytest.raises(ValueError, match="instead of a dictionary"):
            parse_batch(evil, b"labels", 10)
        batch = batch_of(CIFAR_10, 4, 0)
        pictures, _ = parse_batch(python2_pickle(batch), b"labels", 10)
        assert pictures.shape == (4, 32, 32, 3)
