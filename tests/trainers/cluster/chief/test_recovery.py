"""What is said of a lost worker."""

from __future__ import annotations

import pytest

from syncswitch.trainers.cluster.chief.recovery import loss_of


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("worker 1 is gone", "worker 1 is gone"),
        ("it was told to end", "worker 1: it was told to end"),
        ("worker 12 is gone", "worker 1: worker 12 is gone"),
    ],
)
def test_a_lost_worker_is_named_once(reason: str, said: str) -> None:
    assert loss_of(1, reason) == said
