from __future__ import annotations

import itertools
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.job.schedule import checkpoint_path
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.function import ModelFunction
from syncswitch.trainers.model.layout import ModelState
from syncswitch.trainers.model.optimizer import make_optimizer
from syncswitch.trainers.model.saved import check_model_path, export_model
from syncswitch.trainers.model.state import (
    Checkpoint,
    CheckpointManager,
    own_checkpoint,
    read_checkpoint,
    restored_model,
    write_checkpoint,
    written_checkpoints,
)
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.trainer import Observer
from tests.failing import fails
from tests.properties import FIXTURES_STAY, more_examples
from tests.trainers.clicks import CLICKS, USERS, WIDTH
from tests.trainers.final import assert_bitwise_equal
from tests.trainers.jobs import DENSE, digits_model, normalized_model, spec_of

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


GOLDEN = Path(__file__).with_name("golden_checkpoint_1.npz")


def assert_golden(path: Path) -> None:
    checkpoint = read_checkpoint(path)
    np.testing.assert_equal(asdict(replace(checkpoint, history="")), asdict(CHECKPOINT))
    log = RunLog(spec_of(DENSE, 2, 50.0), Observer(), lambda accuracy: False)
    log.go_back(*checkpoint.position, checkpoint.history)
    history = json.loads(log.history())
    assert [one["accuracy"] for one in history["evaluations"]] == [0.8, 0.85]
    assert [one["protocol"] for one in history["phases"]] == ["bsp", "asp"]
    assert [one["switch_percent"] for one in history["guard"]["failed"]] == [25.0]
    assert [one["kind"] for one in history["events"]] == ["alarmed"]


def test_what_the_first_version_has_written_is_read() -> None:
    assert_golden(GOLDEN)


def test_embeddings_that_the_first_version_has_written_are_read(keras: Any) -> None:
    golden = Path(__file__).with_name("golden_embeddings_1.npz")
    checkpoint = read_checkpoint(golden)
    assert checkpoint.embeddings is not None
    with np.load(golden) as file:
        for table, layout in enumerate(checkpoint.layouts):
            for part, name in enumerate(layout.members):
                values = np.concatenate(list(checkpoint.embeddings.part(table, part)))
                np.testing.assert_array_equal(values, file[name])
    state = manager_of(CLICKS).restored(checkpoint, golden)
    assert state.embeddings.layouts == checkpoint.layouts


def rewritten(path: Path, **changed: Any) -> Path:
    with np.load(GOLDEN) as file:
        np.savez(path, **{**dict(file), **changed})
    return path


def test_what_a_later_version_has_added_is_passed_over(tmp_path: Path) -> None:
    with np.load(GOLDEN) as file:
        history = json.loads(str(file["history"]))
    for part in (history, history["guard"], *history["guard"]["failed"], *history["events"]):
        part["later"] = 1
    for part in (*history["evaluations"], *history["phases"]):
        part["later"] = [1]
    assert_golden(
        rewritten(
            tmp_path / "c.npz",
            history=np.array(json.dumps(history)),
            later=np.ones(3),
            **{"later/000-kernel": np.ones(3)},
        )
    )


def test_a_checkpoint_of_a_newer_version_is_not_passed_over(tmp_path: Path) -> None:
    """To begin anew would remove it."""
    path = rewritten(tmp_path / "c.npz", schema_version=np.array(2))
    newer = rf"^checkpoint {path} was written by a newer syncswitch: .* update syncswitch$"
    with fails("newer-version", newer):
        read_checkpoint(path)
    with fails("newer-version", newer):
        own_checkpoint(spec_of(DENSE, 2, 50.0), path)


@pytest.mark.parametrize(("folder_mode", "mode"), [(0o700, 0o600), (0o755, 0o644)])
def test_a_checkpoint_is_as_private_as_its_folder(
    tmp_path: Path, folder_mode: int, mode: int
) -> None:
    tmp_path.chmod(folder_mode)
    before = os.umask(0o022)
    write_checkpoint(tmp_path / "c.npz", CHECKPOINT)
    os.umask(before)
    assert (tmp_path / "c.npz").stat().st_mode & 0o777 == mode


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


NORMALIZED = replace(DENSE, name="normalized", model=normalized_model)


def manager_of(workload: Workload) -> CheckpointManager:
    function = ModelFunction(workload, workload.data())
    return CheckpointManager(workload, function, make_optimizer(workload, function.parameters))


def some_state(manager: CheckpointManager) -> ModelState:
    drawn = np.random.default_rng(2)
    sizes = (manager.parameters.size, manager.slots.size, manager.statistics.size)
    vectors = (drawn.random(size).astype(np.float32) for size in sizes)
    return ModelState(*vectors, updates=17)


def log_of(spec: TrialSpec, done: int = 0) -> RunLog:
    log = RunLog(spec, Observer(), lambda accuracy: False)
    log.fork(done, min(done, 200), 12.5)
    return log


class TestCheckpointManager:
    def test_initial_values_follow_the_seed_and_are_built_once_for_each(self) -> None:
        built = []

        def counted() -> Any:
            built.append(normalized_model())
            return built[-1]

        manager = manager_of(replace(NORMALIZED, model=counted))
        built.clear()
        fresh = {seed: manager_of(NORMALIZED).initial(seed) for seed in (1, 2)}
        for seed in (1, 2, 1, 2):
            state = manager.initial(seed)
            assert_bitwise_equal(state, fresh[seed])
            # As a run may do that is given them.
            for part in (state.parameters, state.slots, state.statistics):
                part[:] = 7.0
        assert len(built) == 2
        assert not np.allclose(fresh[1].parameters, fresh[2].parameters)
        assert fresh[1].updates == 0
        np.testing.assert_array_equal(fresh[1].slots, 0)
        # Means of 0, variances of 1.
        np.testing.assert_array_equal(fresh[1].statistics, [0.0] * 16 + [1.0] * 16)
        spec = spec_of(NORMALIZED, 4, 50.0, seed=2)
        begun = manager.begin(spec, log_of(spec))
        np.testing.assert_array_equal(begun.parameters, fresh[2].parameters)

    def test_a_checkpoint_brings_all_of_a_state_back(self, tmp_path: Path) -> None:
        manager, spec, path = (
            manager_of(NORMALIZED),
            spec_of(NORMALIZED, 4, 50.0),
            tmp_path / "c.npz",
        )
        manager.save(path, (25.0,), some_state(manager), spec, log_of(spec, 100))
        log = log_of(spec)
        state = manager.begin(replace(spec, fork_from=path), log)
        assert_bitwise_equal(state, some_state(manager))
        assert (log.done, log.elapsed_seconds, log.position.inherited_seconds) == (100, 12.5, 12.5)

    def test_of_many_checkpoints_the_furthest_stay(self, tmp_path: Path) -> None:
        """Those of an earlier part of the run are among them; by default all stay."""
        manager = manager_of(DENSE)
        for kept, names in ((None, ["5", "10", "15", "20", "25"]), (2, ["20", "25"])):
            percents = (5.0, 10.0, 15.0, 20.0, 25.0)
            spec = spec_of(DENSE, 4, 50.0, checkpoint_percents=percents, kept_checkpoints=kept)
            log = log_of(spec)
            for percent in percents:
                path = tmp_path / f"{percent:g}"
                manager.save(path, (percent, percent + 1), some_state(manager), spec, log)
            assert sorted((path.name for path in tmp_path.iterdir()), key=float) == names
            assert {path.name for path in log.files.paths.values()} == set(names)
            assert len(log.files.paths) == 2 * len(names)

    def test_of_another_model_or_optimizer_or_beyond_the_end_it_is_refused(
        self, keras: Any, tmp_path: Path
    ) -> None:
        def tanh() -> Any:
            return digits_model(keras.layers.Dense(24, activation="tanh"))

        manager, spec, path = manager_of(DENSE), spec_of(DENSE, 4, 100.0), tmp_path / "c.npz"
        for job, done, words in (
            (NORMALIZED, 100, "another model or optimizer"),
            # The same shapes.
            (replace(DENSE, model=tanh), 100, "another model or optimizer"),
            (replace(DENSE, optimizer=keras.optimizers.Adam), 100, "another model or optimizer"),
            (DENSE, 404, "is at worker-step 404, beyond the 403"),
        ):
            given = spec_of(job, 4, 100.0)
            other = manager_of(job)
            other.save(path, (25.0,), some_state(other), given, log_of(given, done))
            with fails("checkpoint-unusable", f"^checkpoint {path} .*{words}") as error:
                manager.begin(replace(spec, fork_from=path), log_of(spec))
            assert "\n" not in str(error.value)


def test_checkpoints_after_the_position_of_a_run_are_not_its_own(tmp_path: Path) -> None:
    """They are of a part that failed."""
    percents = (25.0, 50.0, 75.0)
    spec = spec_of(DENSE, 4, 100.0, checkpoint_percents=percents, checkpoint_directory=tmp_path)
    for percent in percents:
        checkpoint_path(spec, percent, ".npz").touch()
    half = spec.identity.total_worker_steps // 2
    assert [given for given, _ in written_checkpoints(spec, [spec], half)] == [(25.0,), (50.0,)]


def test_a_model_replaces_a_model_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    check_model_path(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("config.json", "{}")
    check_model_path(path)
    path.write_text("a shopping list")
    with fails("file-unusable", r"model\.keras': that file is not a Keras model"):
        check_model_path(path)


def unnamed_model() -> Any:
    """Its variables have no names, or are numbered through by the user, as in many tutorials."""
    import keras

    class Shift(keras.layers.Layer):  # type: ignore[misc]
        def build(self, shape: Any) -> None:
            number = next(_NUMBERS)
            self.shift = self.add_weight(shape=shape[1:], initializer="zeros")
            self.scale = self.add_weight(shape=shape[1:], initializer="ones", name=f"s{number}_x")
            self.calls = self.add_weight(shape=(), trainable=False, initializer="zeros")

        def call(self, inputs: Any) -> Any:
            return inputs * self.scale + self.shift

    return digits_model(Shift(), keras.layers.Dense(8))


_NUMBERS = itertools.count()


@pytest.mark.parametrize("optimizer", [None, "Adam"])
def test_variables_without_a_name_are_those_of_another_build(
    keras: Any, optimizer: str | None
) -> None:
    built = None if optimizer is None else lambda: keras.optimizers.get(optimizer)
    workload = replace(DENSE, name="shift", model=unnamed_model, optimizer=built)
    first, other = manager_of(workload), manager_of(workload)
    assert first.parameters.names != other.parameters.names
    spec = spec_of(workload, 2, 50.0)
    log = RunLog(spec, Observer(), lambda accuracy: False)
    state = first.initial(3)
    checkpoint = first.checkpoint(state, spec, log)
    restored = other.restored(checkpoint, Path("one.npz"))
    np.testing.assert_array_equal(restored.parameters, state.parameters)
    np.testing.assert_array_equal(restored.slots, state.slots)
    model = restored_model(workload, checkpoint)
    found = first.parameters.pack(model.trainable_variables)
    np.testing.assert_array_equal(found, state.parameters)


def test_a_model_with_large_embeddings_is_written_without_holding_them(
    keras: Any, tmp_path: Path
) -> None:
    manager, spec = manager_of(CLICKS), spec_of(CLICKS, 2, 50.0)
    write_checkpoint(tmp_path / "c.npz", manager.checkpoint(manager.initial(3), spec, log_of(spec)))
    path = tmp_path / "model.keras"
    export_model(CLICKS, tmp_path / "c.npz", path)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["c.npz", "model.keras"]
    exported = keras.saving.load_model(path)
    with np.load(tmp_path / "c.npz") as file:
        for number, variable in enumerate(exported.trainable_variables):
            stored = file[f"parameters/{number:03d}-{variable.name}"]
            np.testing.assert_array_equal(variable, stored)
    table = exported.get_layer("user").get_weights()[0]
    assert table.shape == (USERS, WIDTH)
    assert len(np.unique(table)) > USERS
    inputs = CLICKS.load_data().test_inputs
    assert exported(inputs).shape == (len(inputs), 2)
