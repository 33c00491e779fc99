"""The file that a run leaves: that it can be used, and what becomes of one that was there."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.saved import check_model_path, export_model, saving_problem
from syncswitch.trainers.model.state import restored_model, write_checkpoint
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.trainer import Observer
from tests.failing import fails
from tests.trainers.jobs import DENSE, digits_model, spec_of
from tests.trainers.model.test_state import manager_of
from tests.wording import Said


def checkpoint_of(workload: Workload, path: Path) -> Any:
    manager, spec = manager_of(workload), spec_of(workload, 2, 50.0)
    log = RunLog(spec, Observer(), lambda accuracy: False)
    checkpoint = manager.checkpoint(manager.initial(3), spec, log)
    write_checkpoint(path, checkpoint)
    return checkpoint


def kinds(keras: Any) -> dict[str, Any]:
    """Models by what Keras can do with them."""

    class Plain(keras.layers.Layer):  # type: ignore[misc]
        """Known by its class alone."""

        def build(self, shape: Any) -> None:
            self.w = self.add_weight(shape=shape[1:], initializer="ones")

        def call(self, inputs: Any) -> Any:
            return inputs * self.w

    class Forgetful(Plain):
        """Keras describes it, and cannot build it of that."""

        def __init__(self, factor: float) -> None:
            super().__init__()
            self.factor = factor

    class Opaque(keras.Model):  # type: ignore[misc]
        """Keras cannot describe what it was made of."""

        def __init__(self, options: object) -> None:
            super().__init__()
            self.flat, self.last = keras.layers.Flatten(), keras.layers.Dense(10)

        def call(self, inputs: Any) -> Any:
            return self.last(self.flat(inputs))

    def opaque() -> Any:
        model = Opaque(object())
        model(np.zeros((1, 8, 8, 1), "float32"))
        return model

    return {
        "usual": lambda: digits_model(keras.layers.Dense(4, activation="relu")),
        "plain": lambda: digits_model(Plain()),
        "forgetful": lambda: digits_model(Forgetful(2.0)),
        "opaque": opaque,
    }


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [("usual", ".keras"), ("plain", ".keras"), ("forgetful", ".keras"), ("opaque", ".weights.h5")],
)
def test_what_it_says_before_the_training_is_how_the_model_is_loaded_after_it(
    keras: Any, tmp_path: Path, said: Said, kind: str, suffix: str
) -> None:
    workload = replace(DENSE, name=kind, model=kinds(keras)[kind])
    wanted = Path("model.keras")
    problem = saving_problem(workload, wanted)
    said("nothing" if problem is None else str(problem))
    assert (problem is not None) == (kind in ("forgetful", "opaque"))
    checkpoint = checkpoint_of(workload, tmp_path / "c.npz")
    saved = export_model(workload, tmp_path / "c.npz", tmp_path / wanted)
    assert saved == (tmp_path / f"model{suffix}", None)
    expected = restored_model(workload, checkpoint)
    if problem is None:
        own = {type(one).__name__: type(one) for one in expected.layers}
        loaded = keras.saving.load_model(saved.path, custom_objects=own)
    else:
        loaded = workload.model()
        loaded.load_weights(saved.path)
    for one, other in zip(loaded.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert saving_problem(workload, tmp_path / "model.weights.h5") is None


@pytest.mark.parametrize("suffix", [".keras", ".weights.h5"])
def test_the_model_of_another_run_is_kept(tmp_path: Path, suffix: str) -> None:
    checkpoint_of(DENSE, tmp_path / "c.npz")
    path = tmp_path / f"model{suffix}"

    def saved(run: str) -> str | None:
        check_model_path(path)
        found, earlier = export_model(DENSE, tmp_path / "c.npz", path, run)
        assert found == path
        return None if earlier is None else earlier.name

    assert saved("a") is None
    first = path.read_bytes()
    # A run that was killed after it had saved its model saves it again.
    assert saved("a") is None
    again = path.read_bytes()
    assert saved("b") == f"model-1{suffix}"
    assert saved("c") == f"model-2{suffix}"
    assert (tmp_path / f"model-1{suffix}").read_bytes() == again
    assert first[:2] == again[:2]
    # It was killed between its two steps.
    (tmp_path / f"model-3{suffix}").hardlink_to(path)
    assert saved("d") == f"model-3{suffix}"
    names = [f"model{number}{suffix}" for number in ("-1", "-2", "-3", "")]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["c.npz", *names]


def test_runs_that_end_at_once_keep_each_other(tmp_path: Path) -> None:
    checkpoint_of(DENSE, tmp_path / "c.npz")
    ends = [
        threading.Thread(
            target=export_model,
            args=(DENSE, tmp_path / "c.npz", tmp_path / "model.keras", f"run {number}"),
        )
        for number in range(4)
    ]
    for one in ends:
        one.start()
    for one in ends:
        one.join()
    names = [f"model{number}.keras" for number in ("-1", "-2", "-3", "")]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["c.npz", *names]


def test_weights_do_not_replace_what_are_none(tmp_path: Path) -> None:
    path = tmp_path / "model.weights.h5"
    path.write_text("a shopping list")
    with fails("file-unusable", "that file is not a Keras model"):
        check_model_path(path)
    with fails("file-unusable", "or for the weights alone in"):
        check_model_path(tmp_path / "model.h5")
