from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.model.checkpoint import write_checkpoint
from syncswitch.trainers.model.export import check_model_path, export_model
from syncswitch.trainers.model.function import ModelFunction
from syncswitch.trainers.model.optimizer import make_optimizer
from syncswitch.trainers.model.state import StateForm
from syncswitch.trainers.run.log import RunLog
from syncswitch.trainers.trainer import Observer
from tests.trainers.clicks import CLICKS, USERS, WIDTH


def test_a_model_replaces_a_model_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    check_model_path(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("config.json", "{}")
    check_model_path(path)
    path.write_text("a shopping list")
    with pytest.raises(UserError, match=r"model\.keras: that file is not a Keras model"):
        check_model_path(path)


def test_a_model_with_large_embeddings_is_written_without_holding_them(
    keras: Any, tmp_path: Path
) -> None:
    function = ModelFunction(CLICKS, CLICKS.load_data())
    form = StateForm(CLICKS, function, make_optimizer(CLICKS, function.parameters))
    identity = workload_identity(CLICKS, 2, "bsp", "asp")
    spec = TrialSpec(identity, 50.0, 3)
    log = RunLog(spec, Observer(), lambda accuracy: False)
    write_checkpoint(tmp_path / "c.npz", form.checkpoint(form.initial(3), spec, log))
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
