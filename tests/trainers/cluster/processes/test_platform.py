from __future__ import annotations

import pytest

from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.processes.platform import cluster_secret


def test_a_cluster_without_a_secret_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for given in (None, ""):
        if given is None:
            monkeypatch.delenv("SYNCSWITCH_SECRET", raising=False)
        else:
            monkeypatch.setenv("SYNCSWITCH_SECRET", given)
        with pytest.raises(UserError, match=r"SYNCSWITCH_SECRET is not set: .* add --open-network"):
            cluster_secret(is_open=False)
        assert cluster_secret(is_open=True)
    monkeypatch.setenv("SYNCSWITCH_SECRET", "words")
    assert cluster_secret(is_open=False) == b"words"
