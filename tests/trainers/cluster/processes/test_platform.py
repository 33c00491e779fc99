from __future__ import annotations

import pytest

from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.processes.platform import ChiefWatch, cluster_secret


def test_a_chief_that_has_not_come_is_waited_for_longer_than_one_that_has_gone() -> None:
    watch = ChiefWatch(limit_seconds=10.0, grace_seconds=2.0, since_seconds=100.0)
    assert not watch.is_over(110.0)
    assert watch.is_over(110.1)
    watch.saw(120.0)
    assert watch.was_there
    assert not watch.is_over(122.0)
    assert watch.is_over(122.1)


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
