from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from syncswitch.storage.errors import UserError
from syncswitch.trainers.model.export import check_model_path


def test_a_model_replaces_a_model_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    check_model_path(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("config.json", "{}")
    check_model_path(path)
    path.write_text("a shopping list")
    with pytest.raises(UserError, match=r"model\.keras: that is there and no Keras model"):
        check_model_path(path)
