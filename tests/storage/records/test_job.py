"""What a job is known by, on every machine and in every year."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from syncswitch.storage.records.job import WorkloadIdentity
from tests.identities import GENERATED, UNRECORDED
from tests.storage.conftest import IDENTITY

IMPORTED = replace(
    GENERATED, name="golden", total_worker_steps=200, workers=2, **dict.fromkeys(UNRECORDED)
)


@pytest.mark.parametrize(
    ("identity", "fingerprint"),
    [
        (GENERATED, "7c8c8559b0320c4d023014e21ccbda24a9935cb7b61fcc58b200f1c00a21c3cf"),
        (
            replace(GENERATED, name="larger", workers=8),
            "dacf876316ae3913c7639d98864730332cf8872bc60f9b0c06b5e6567593d723",
        ),
        (IMPORTED, "60b2782e89b7221b2b523bf1cd3407d914662f101bd4b399e877d93c6d5bedde"),
        (
            replace(GENERATED, simulated_cluster="5" * 64),
            "ca5f1ff5a029355b566ec28e5f2408b3416fe0e7edda63d51f210868f97c2280",
        ),
    ],
    ids=["real", "larger", "imported", "simulated"],
)
def test_a_fingerprint_never_changes(fingerprint: str) -> None:
    """The databases of all revisions hold these."""
    assert IDENTITY.fingerprint == fingerprint


def test_everything_but_the_name_enters_the_fingerprint() -> None:
    known = replace(
        GENERATED,
        simulated_cluster="5" * 64,
        metric_goal="min",
        metric_unit="km",
        metric_lowest=1.0,
        metric_highest=9.0,
    )
    for field in fields(WorkloadIdentity):
        value = getattr(known, field.name)
        other = f"{value}x" if isinstance(value, str) else value * 2
        changed = replace(known, **{field.name: other})
        assert (changed.fingerprint == known.fingerprint) == (field.name == "name"), field.name


@pytest.mark.parametrize(
    ("digest", "text"), [(None, "4 workers, bsp,asp"), ("5" * 64, "4 simulated workers, bsp,asp")]
)
def test_a_cluster_in_words_says_that_it_is_simulated(digest: str | None, text: str) -> None:
    assert replace(GENERATED, simulated_cluster=digest).cluster == text
