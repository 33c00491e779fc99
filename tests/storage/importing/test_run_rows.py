"""Imported runs as rows: added once, compared, and what their workload is to reach."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import text

from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import RecordingError
from syncswitch.storage.importing.imported_run import ImportedRun, Measurements
from syncswitch.storage.importing.run_rows import Added, RunImporter
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.records.trial import Evaluation, PhaseRecord
from syncswitch.storage.trials.store import TrialStore
from tests.storage.conftest import both_databases
from tests.storage.filled import content

STARTED_AT = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)

MEASURED = Measurements(
    worker_steps=1000,
    evaluations=(Evaluation(500, 1.5, 0.8, 0.7), Evaluation(1000, 2.5, 0.9, float("nan"))),
    phases=(
        PhaseRecord("bsp", 0, 500, 2.0, None, None),
        PhaseRecord("asp", 500, 1000, 1.0, None, None),
    ),
    final_accuracy=0.9,
    converged=True,
    stopped_early=False,
    training_seconds=3.0,
    switch_overhead_seconds=0.25,
    started_at=STARTED_AT,
    ended_at=STARTED_AT + timedelta(seconds=9),
)


def with_first_evaluation(**values: float) -> Measurements:
    first, *others = MEASURED.evaluations
    return replace(MEASURED, evaluations=(replace(first, **values), *others))


@pytest.fixture
def run(identity: WorkloadIdentity) -> ImportedRun:
    nothing_known = replace(
        identity,
        model=None,
        data_set=None,
        loss=None,
        optimizer=None,
        batch_size=None,
        learning_rate=None,
        momentum=None,
        learning_rate_boundaries=None,
        metric=None,
        evaluation_interval_worker_steps=None,
    )
    return ImportedRun("digits/a", nothing_known, 50.0, 40.0, 2, False, MEASURED)


@pytest.fixture
def importer(database: Database) -> RunImporter:
    return RunImporter(database)


class TestAdd:
    @both_databases
    def test_a_run_is_added_with_everything_that_was_measured(
        self, importer: RunImporter, database: Database, run: ImportedRun
    ) -> None:
        assert importer.add([run]) == [Added.NOW]
        (trial,) = TrialStore(database).trials()
        assert (trial.source, trial.study, trial.trial_number) == ("digits/a", None, None)
        assert (trial.workload, trial.fingerprint) == ("digits", run.identity.fingerprint)
        assert (trial.candidate_percent, trial.switch_percent, trial.replicate) == (50.0, 40.0, 2)
        assert (trial.state, trial.diverged, trial.converged) == ("complete", False, True)
        assert trial.converged_accuracy == trial.final_accuracy == 0.9
        assert trial.converged_evaluations == 1
        assert (trial.training_seconds, trial.inherited_seconds) == (3.0, 0.0)
        assert (trial.switch_overhead_seconds, trial.worker_steps) == (0.25, 1000)
        assert (trial.started_at, trial.ended_at) == (MEASURED.started_at, MEASURED.ended_at)
        assert (trial.seed, trial.host, trial.owner, trial.heartbeat_at) == (None,) * 4
        assert trial.phases == MEASURED.phases
        with database.session(read_only=True) as session:
            query = text(
                "SELECT worker_step, elapsed_seconds, accuracy, training_loss"
                " FROM syncswitch_evaluations ORDER BY worker_step"
            )
            rows = [tuple(row) for row in session.execute(query)]
        assert rows == [(500, 1.5, 0.8, 0.7), (1000, 2.5, 0.9, None)]

    @both_databases
    def test_a_run_of_which_only_its_divergence_is_known(
        self, importer: RunImporter, database: Database, run: ImportedRun
    ) -> None:
        importer.add([replace(run, diverged=True, measured=None)])
        (trial,) = TrialStore(database).trials()
        assert (trial.state, trial.diverged, trial.worker_steps) == ("complete", True, 0)
        assert (trial.converged_accuracy, trial.training_seconds, trial.started_at) == (None,) * 3
        assert trial.phases == ()

    def test_what_is_there_is_left_alone(
        self, importer: RunImporter, database: Database, run: ImportedRun
    ) -> None:
        importer.add([run])
        before = content(database)
        assert importer.add([run]) == [Added.BEFORE]
        assert content(database) == before
        other = replace(run, source="digits/b")
        assert importer.add([run, other]) == [Added.BEFORE, Added.NOW]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"candidate_percent": None}, "candidate_percent is None, was 50.0"),
            ({"switch_percent": 41.0}, "switch_percent is 41.0, was 40.0"),
            ({"replicate": 3}, "replicate is 3, was 2"),
            ({"diverged": True}, "diverged is True, was False"),
            ({"measured": None, "diverged": True}, "diverged is True, was False"),
            (
                {"measured": replace(MEASURED, final_accuracy=0.8)},
                "final_accuracy is 0.8, was 0.9",
            ),
            (
                {"measured": replace(MEASURED, training_seconds=4.0)},
                "training_seconds is 4.0, was 3.0",
            ),
            (
                {"measured": replace(MEASURED, evaluations=MEASURED.evaluations[1:])},
                "evaluations is 1, was 2",
            ),
            (
                {"measured": with_first_evaluation(accuracy=0.80001)},
                "sum_of_accuracies is 1.70001, was 1.7",
            ),
            (
                {"measured": with_first_evaluation(elapsed_seconds=1.5001)},
                "sum_of_elapsed_seconds is 4.0001, was 4.0",
            ),
        ],
    )
    def test_what_is_there_with_other_values_is_told_and_left_alone(
        self,
        importer: RunImporter,
        database: Database,
        run: ImportedRun,
        change: dict[str, Any],
        message: str,
    ) -> None:
        importer.add([run])
        before = content(database)
        (error,) = importer.add([replace(run, **change)])
        assert isinstance(error, RecordingError)
        assert "differs from what was imported as digits/a" in str(error)
        assert message in str(error)
        assert content(database) == before

    @both_databases
    def test_the_order_in_which_a_database_sums_makes_no_difference(
        self, importer: RunImporter, run: ImportedRun
    ) -> None:
        chances = random.Random(3)
        evaluations = tuple(
            Evaluation(step, step / 3, chances.random(), 0.5) for step in range(5000)
        )
        long = replace(run, measured=replace(MEASURED, evaluations=evaluations))
        lost = replace(run, source="lost", diverged=True, measured=None)
        assert importer.add([long, lost]) == [Added.NOW, Added.NOW]
        assert importer.add([long, lost]) == [Added.BEFORE, Added.BEFORE]

    def test_a_run_does_not_move_to_another_workload(
        self, importer: RunImporter, database: Database, run: ImportedRun
    ) -> None:
        importer.add([run])
        before = content(database)
        (error,) = importer.add([replace(run, identity=replace(run.identity, workers=16))])
        assert "its workload differs" in str(error)
        assert content(database) == before

    def test_an_impossible_value_adds_none_of_the_runs(
        self, importer: RunImporter, database: Database, run: ImportedRun
    ) -> None:
        bad = replace(run, source="digits/b", measured=replace(MEASURED, training_seconds=-1.0))
        with pytest.raises(Exception, match="training_seconds"):
            importer.add([run, bad])
        assert TrialStore(database).trials() == []

    @both_databases
    def test_importers_side_by_side_add_a_run_once(
        self, url: str, database: Database, run: ImportedRun, at_once: Any
    ) -> None:
        runs = [replace(run, source=f"digits/{number}") for number in range(20)]

        def work(_: int) -> int:
            with open_database(url, create=False) as mine:
                return RunImporter(mine).add(runs).count(Added.NOW)

        assert sum(at_once(work, 3)) == 20
        assert len(TrialStore(database).trials()) == 20


class TestTarget:
    @both_databases
    def test_is_the_mean_of_the_first_protocol_alone(
        self, importer: RunImporter, database: Database, run: ImportedRun
    ) -> None:
        baseline = [0.83, 0.81]
        importer.add(
            [
                run,
                *(
                    replace(
                        run,
                        source=f"digits/bsp-{accuracy}",
                        candidate_percent=100.0,
                        measured=replace(MEASURED, final_accuracy=accuracy),
                    )
                    for accuracy in baseline
                ),
                replace(run, source="lost", candidate_percent=100.0, diverged=True, measured=None),
                replace(run, source="unused", candidate_percent=None, switch_percent=100.0),
            ]
        )
        importer.set_target(run.identity.fingerprint)
        trials = {trial.source: trial for trial in TrialStore(database).trials()}
        assert {trial.target_accuracy for trial in trials.values()} == {sum(baseline) / 2}
        assert trials["digits/a"].time_to_accuracy_seconds == 2.5
        assert trials["lost"].time_to_accuracy_seconds is None
        before = content(database)
        importer.set_target(run.identity.fingerprint)
        assert content(database) == before

    @both_databases
    def test_of_importers_side_by_side_is_the_mean_of_the_runs_of_all(
        self, url: str, database: Database, run: ImportedRun, at_once: Any
    ) -> None:
        accuracies = [0.5, 0.75, 0.875]

        def work(number: int) -> None:
            measured = replace(MEASURED, final_accuracy=accuracies[number])
            mine = replace(run, source=f"{number}", candidate_percent=100.0, measured=measured)
            with open_database(url, create=False) as connected:
                importer = RunImporter(connected)
                importer.add([mine])
                importer.set_target(run.identity.fingerprint)

        at_once(work, 3)
        targets = {trial.target_accuracy for trial in TrialStore(database).trials()}
        assert targets == {sum(accuracies) / 3}

    def test_is_unknown_without_such_runs(
        self, importer: RunImporter, database: Database, run: ImportedRun
    ) -> None:
        importer.add([run])
        importer.set_target(run.identity.fingerprint)
        (trial,) = TrialStore(database).trials()
        assert trial.target_accuracy is None
