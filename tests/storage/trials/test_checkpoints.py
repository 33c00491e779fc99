"""What complete runs left on disk is remembered until it is forgotten, on each kind of database."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from syncswitch.storage.errors import FatalError, UserError
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.trial import TrialRecord
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Owner, SearchInfo, StoredCheckpoint
from tests.storage.conftest import both_databases

pytestmark = both_databases

STUDY = "digits-1"
OWNER = Owner("host-1", 4321, 1_700_000_000.25)


def left(record: TrialRecord, replicate: int, *percents: float) -> TrialRecord:
    """The record of a run that left these checkpoints."""
    return replace(
        record,
        spec=replace(record.spec, replicate=replicate),
        checkpoints={percent: Path(f"/left/{percent:g}.npz") for percent in percents},
    )


def add(store: TrialStore, number: int, record: TrialRecord, study: str = STUDY) -> None:
    store.begin(study, number, record.spec, OWNER)
    store.complete(study, number, record)


def stored(number: int, replicate: int, percent: float) -> StoredCheckpoint:
    return StoredCheckpoint(number, replicate, percent, Path(f"/left/{percent:g}.npz"), "chief")


def test_checkpoints_stand_by_replicate_and_percent(store: TrialStore, record: TrialRecord) -> None:
    assert store.checkpoints(STUDY) == []
    add(store, 3, left(record, 1, 50.0, 3.125))
    add(store, 2, left(record, 0, 100.0, 3.125))
    add(store, 1, left(record, 1, 3.125, 0.0))
    add(store, 0, left(record, 1))
    assert store.checkpoints(STUDY) == [
        stored(2, 0, 3.125),
        stored(2, 0, 100.0),
        stored(1, 1, 0.0),
        stored(1, 1, 3.125),
        stored(3, 1, 3.125),
        stored(3, 1, 50.0),
    ]


def test_only_complete_trials_have_any(store: TrialStore, record: TrialRecord) -> None:
    run = left(record, 0, 50.0)
    for number in range(3):
        store.begin(STUDY, number, run.spec, OWNER)
    store.fail(STUDY, 0, "lost")
    store.complete(STUDY, 2, replace(run, diverged=True, converged=False))
    assert store.checkpoints(STUDY) == [stored(2, 0, 50.0)]


def test_what_is_complete_keeps_its_checkpoints(store: TrialStore, record: TrialRecord) -> None:
    add(store, 0, left(record, 0, 50.0))
    store.complete(STUDY, 0, left(record, 0, 12.5, 25.0))
    assert store.checkpoints(STUDY) == [stored(0, 0, 50.0)]


def test_a_path_is_remembered_from_the_root(
    store: TrialStore, record: TrialRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    add(store, 0, replace(record, checkpoints={50.0: Path("ä b/50.npz")}))
    monkeypatch.chdir("/")
    (found,) = store.checkpoints(STUDY)
    assert found.path == tmp_path / "ä b" / "50.npz"


def test_an_impossible_percent_changes_nothing(store: TrialStore, record: TrialRecord) -> None:
    store.begin(STUDY, 0, record.spec, OWNER)
    for percent in (-0.1, 100.1, math.nan):
        with pytest.raises(FatalError, match="refuses these values"):
            store.complete(STUDY, 0, left(record, 0, 50.0, percent))
    trial = store.get(STUDY, 0)
    assert trial is not None
    assert (trial.state, trial.phases) == ("running", ())
    assert store.evaluations(STUDY, 0) == store.checkpoints(STUDY) == []


def test_a_path_that_cannot_be_kept_is_refused_before_the_run(
    store: TrialStore, record: TrialRecord
) -> None:
    path = Path("/left/caf\udce9")
    said = r"the checkpoint path '/left/caf\\udce9' is not UTF-8 text; name a folder"
    for place in ("checkpoint_directory", "fork_from"):
        with pytest.raises(UserError, match=said):
            store.begin(STUDY, 0, replace(record.spec, **{place: path}), OWNER)
    assert store.get(STUDY, 0) is None


def test_checkpoints_are_forgotten_study_by_study(
    store: TrialStore, record: TrialRecord, search: SearchInfo, identity: WorkloadIdentity
) -> None:
    store.register(identity, "digits", replace(search, study="digits-2"))
    add(store, 0, left(record, 0, 25.0, 50.0))
    add(store, 0, left(record, 0, 50.0), study="digits-2")
    before = store.trials()
    for _ in range(2):
        store.forget_checkpoints(STUDY)
        assert store.checkpoints(STUDY) == []
        assert store.checkpoints("digits-2") == [stored(0, 0, 50.0)]
    assert store.trials() == before
    assert store.evaluations(STUDY, 0) == list(record.evaluations)
