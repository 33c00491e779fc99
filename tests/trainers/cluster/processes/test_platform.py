from __future__ import annotations

import socket
from typing import Any

import pytest

from syncswitch.storage.errors import UserError
from syncswitch.trainers.cluster.processes.platform import await_name, cluster_secret


def test_a_cluster_without_a_secret_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for given in (None, ""):
        if given is None:
            monkeypatch.delenv("SYNCSWITCH_SECRET", raising=False)
        else:
            monkeypatch.setenv("SYNCSWITCH_SECRET", given)
        with pytest.raises(UserError, match=r"SYNCSWITCH_SECRET is not set: .* add --open-network"):
            cluster_secret(is_open=False)
        assert cluster_secret(is_open=True) is None
    monkeypatch.setenv("SYNCSWITCH_SECRET", "words")
    with pytest.raises(UserError, match=r"SYNCSWITCH_SECRET has 5 characters, too few: .* 16 char"):
        cluster_secret(is_open=False)
    monkeypatch.setenv("SYNCSWITCH_SECRET", "words enough to it")
    assert cluster_secret(is_open=False) == b"words enough to it"


def test_a_chief_waits_until_its_name_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new pod may start before its name is known."""
    with pytest.raises(
        UserError, match=r"the chief is at chief\.invalid, a name that is not known"
    ):
        await_name("chief.invalid", 0.3)
    answers = [socket.gaierror(), socket.gaierror(), None]

    def answer(*address: Any) -> None:
        if (found := answers.pop(0)) is not None:
            raise found

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    await_name("chief", 60)
    assert not answers
