"""Replays of real runs: those of the authors' logs, and runs on a TensorFlow cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from syncswitch.storage.database.engine import open_database
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Fork, Owner, SearchInfo
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.replay.recording import Recording, read_recording
from syncswitch.trainers.replay.trainer import ReplayTrainer
from tests.trainers.jobs import DENSE, RecordingObserver, spec_of

PAIR = ("bsp", "asp")


def test_five_draws_have_the_published_means(authors: dict[int, Recording]) -> None:
    """5 runs of a switch point are recorded, and each of them is drawn once."""
    recording = authors[8]
    trainer = ReplayTrainer(recording, deck_seed=1)
    for percent, accuracy, seconds in (
        (100.0, 0.9188, 10604),
        (50.0, 0.9202, 5994),
        (25.0, 0.9178, 3883),
        (12.5, 0.9142, 2543),
        (6.25, 0.9182, 2084),
    ):
        records = [
            trainer.train(TrialSpec(recording.identity, percent, 1, replicate=replicate))
            for replicate in range(5)
        ]
        assert len({record.training_seconds for record in records}) == 5
        mean = sum(record.converged_accuracy for record in records) / 5
        assert mean == pytest.approx(accuracy, abs=6e-5)
        mean_seconds = sum(record.training_seconds for record in records) / 5
        assert mean_seconds == pytest.approx(seconds, rel=0.003)


def test_a_diverged_run_without_a_log_is_a_result(authors: dict[int, Recording]) -> None:
    record = ReplayTrainer(authors[16]).train(TrialSpec(authors[16].identity, 25.0, 1))
    assert record.diverged
    assert (record.converged_accuracy, record.training_seconds) == (0.0, 0.0)
    assert record.evaluations == ()


WORKLOAD = replace(
    DENSE,
    name="recorded",
    total_worker_steps=120,
    learning_rate_boundaries=((80, 0.1),),
    evaluation_interval_worker_steps=10,
)
STUDY = "recorded-1"
Made = tuple[list[TrialRecord], Recording]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """From a real cluster, by way of a real database: BSP, a switch, and a fork of the first."""
    from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer

    folder = tmp_path_factory.mktemp("recorded")
    identity = workload_identity(WORKLOAD, 2, *PAIR)
    info = SearchInfo(STUDY, identity.fingerprint, "paper", 2, 2, 0.01, None, "local", 0)
    records: list[TrialRecord] = []
    with (
        open_database(f"sqlite:///{folder}/runs.db", create=True) as database,
        ClusterTrainer(WORKLOAD, 2) as trainer,
    ):
        store = TrialStore(database)
        store.register(identity, "job.py:recorded", info)

        def make(trial: TrialSpec, fork: Fork | None = None) -> TrialRecord:
            number = len(records)
            store.begin(STUDY, number, trial, Owner.current(), fork=fork)
            records.append(trainer.train(trial))
            store.complete(STUDY, number, records[-1])
            return records[-1]

        wanted = {"checkpoint_percents": (25.0,), "checkpoint_directory": folder}
        base = make(spec_of(WORKLOAD, 2, 100.0, seed=5, **wanted))
        make(spec_of(WORKLOAD, 2, 50.0, seed=5))
        start = base.checkpoints[25.0]
        make(spec_of(WORKLOAD, 2, 50.0, seed=6, replicate=1, fork_from=start), Fork(0, 25.0))
        return records, read_recording(database, "recorded", workers=2, protocols=PAIR)


def test_real_runs_are_replayed_as_they_were(made: Made) -> None:
    records, recording = made
    assert recording.reference == "job.py:recorded"
    assert recording.switch_points == (50.0, 100.0)
    for record in records[:2]:
        observer = RecordingObserver()
        trial = replace(record.spec, checkpoint_percents=(), checkpoint_directory=None)
        replayed = ReplayTrainer(recording).train(trial, observer)
        now = datetime.now(timezone.utc)
        # What happened then does not happen again.
        expected = replace(
            record, spec=trial, checkpoints={}, events=(), started_at=now, ended_at=now
        )
        assert replace(replayed, started_at=now, ended_at=now) == expected
        assert tuple(observer.evaluations) == record.evaluations


def test_a_real_fork_is_replayed_as_the_whole_run_that_it_was(made: Made) -> None:
    (base, _, fork), recording = made
    whole = ReplayTrainer(recording).train(replace(fork.spec, fork_from=None))
    inherited = tuple(one for one in base.evaluations if one.worker_step <= 30)
    assert len(inherited) == 3
    assert whole.evaluations == (*inherited, *fork.evaluations)
    assert whole.training_seconds == whole.paid_seconds == fork.training_seconds
    assert whole.inherited_seconds == 0.0
    assert [(p.protocol, p.start_worker_step) for p in whole.phases] == [("bsp", 0), ("asp", 60)]
    assert sum(p.seconds for p in whole.phases) == pytest.approx(fork.training_seconds)
    assert whole.converged_accuracy == fork.converged_accuracy


def test_a_fork_of_a_replay_pays_what_the_real_fork_paid(made: Made, tmp_path: Path) -> None:
    (base, _, fork), recording = made
    trainer = ReplayTrainer(recording)
    prefix = trainer.train(replace(base.spec, checkpoint_directory=tmp_path))
    replayed = trainer.train(replace(fork.spec, fork_from=prefix.checkpoints[25.0]))
    assert replayed.inherited_seconds == pytest.approx(fork.inherited_seconds)
    assert replayed.paid_seconds == pytest.approx(fork.paid_seconds)
    assert [one.accuracy for one in replayed.evaluations] == [
        one.accuracy for one in fork.evaluations
    ]
    for one, real in zip(replayed.phases, fork.phases, strict=True):
        assert one == replace(real, seconds=one.seconds, mean_staleness=one.mean_staleness)
        assert one.seconds == pytest.approx(real.seconds)
