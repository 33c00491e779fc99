from __future__ import annotations

import multiprocessing
import os
import random
import signal
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, func, select, text

from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.importing import run_import
from syncswitch.storage.importing.manifest import read_manifest
from syncswitch.storage.importing.run_import import ImportReport, import_manifest
from syncswitch.storage.tables.trials import TrialRow
from syncswitch.storage.trials.store import TrialStore
from tests.recordings import PAPER, log_rows, needs_paper, walls, write_log, write_manifest
from tests.storage.conftest import both_databases
from tests.storage.filled import content


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 short runs of two workloads, and a row that cannot be used."""
    folder = tmp_path_factory.mktemp("recordings")
    rows: list[tuple[object, ...]] = []
    for number in range(40):
        name = f"run-{number}"
        percent = (100.0, 0.0)[number % 2]
        steps = list(range(0, 101 if percent else 801, 25))
        values = [0.1 + 0.8 * index / len(steps) + number / 1000 for index in range(len(steps))]
        write_log(folder / name / "acc.csv", log_rows(steps, walls(steps), values))
        rows.append((f"job-{number // 20}", name, "bsp", "asp", percent, number, 8, 800))
    rows.append(("job-0", "nowhere", "bsp", "asp", 100, 0, 8, 800))
    write_manifest(folder / "manifest.csv", rows)
    return folder


def import_all(url: str, folder: Path) -> ImportReport:
    with open_database(url, create=True) as database:
        return import_manifest(database, read_manifest(folder / "manifest.csv"), folder)


class TestManifest:
    def test_the_report_says_what_became_of_each_row(self, url: str, recordings: Path) -> None:
        report = import_all(url, recordings)
        assert (report.imported_runs, report.present_runs) == (40, 0)
        assert report.imported_evaluations == 20 * 5 + 20 * 33
        assert [identity.name for identity in report.workloads] == ["job-0", "job-1"]
        assert [(fault.line, fault.run, fault.text) for fault in report.faults] == [
            (42, "nowhere", "there is no folder nowhere; is --logs right?")
        ]

    @both_databases
    def test_a_second_time_changes_nothing(self, url: str, recordings: Path) -> None:
        import_all(url, recordings)
        with open_database(url, create=False) as database:
            before = content(database)
            report = import_all(url, recordings)
            assert (report.imported_runs, report.present_runs) == (0, 40)
            assert report.imported_evaluations == 0
            assert len(report.faults) == 1
            assert content(database) == before

    def test_a_bad_row_does_not_end_the_import(self, url: str, tmp_path: Path) -> None:
        steps = [0, 50, 100]
        rows = log_rows(steps, walls(steps), [0.5, 0.6, 0.7])
        for name in ("good", "last"):
            write_log(tmp_path / name / "acc.csv", rows)
        endless = [*rows[:-1], rows[-1]._replace(step=int("9" * 400))]
        write_log(tmp_path / "endless" / "acc.csv", endless)
        (tmp_path / "loop").symlink_to("loop")
        (tmp_path / "link").symlink_to("good")
        runs = [
            (name, 2**53 + 1 if name == "huge" else 800)
            for name in ("good", "loop", "endless", "huge", "link", tmp_path / "good", "last")
        ]
        cells = [("job", name, "bsp", "asp", 100, 0, 8, total) for name, total in runs]
        write_manifest(tmp_path / "manifest.csv", cells)
        report = import_all(url, tmp_path)
        assert report.imported_runs == 2
        assert [fault.line for fault in report.faults] == [3, 4, 5, 6, 7]
        _, endless_text, huge_text, link_text, absolute_text = (f.text for f in report.faults)
        assert "acc.csv line 4: step 9999" in endless_text
        assert huge_text.startswith("total_worker_steps is")
        assert link_text == "its folder is that of the run in line 2"
        assert "is absolute" in absolute_text
        again = import_all(url, tmp_path)
        assert (again.imported_runs, again.present_runs) == (0, 2)
        assert again.faults == report.faults

    def test_worker_steps_of_the_longest_jobs_fit(self, url: str, tmp_path: Path) -> None:
        workers = 2**31 - 1
        steps = [0, 2**53 // workers, 2**53]
        for name, count in (("longest", 2), ("too-long", 3)):
            rows = log_rows(steps[:count], range(1, 1 + count), [0.5] * count)
            write_log(tmp_path / name / "acc.csv", rows)
        cells = [
            ("job", name, "bsp", "asp", 100, 0, workers, 2**53) for name in ("longest", "too-long")
        ]
        write_manifest(tmp_path / "manifest.csv", cells)
        report = import_all(url, tmp_path)
        assert (report.imported_runs, [fault.line for fault in report.faults]) == (1, [3])
        with open_database(url, create=False) as database:
            (trial,) = TrialStore(database).trials()
        assert trial.worker_steps == steps[1] * workers

    def test_batches_make_no_difference(
        self, url: str, recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import_all(url, recordings)
        monkeypatch.setattr(run_import, "_BATCH_RUNS", 3)
        monkeypatch.setattr(run_import, "_BATCH_EVALUATIONS", 70)
        other_url = f"sqlite:///{tmp_path}/other.db"
        import_all(other_url, recordings)
        with (
            open_database(url, create=False) as one,
            open_database(other_url, create=False) as other,
        ):
            assert content(one) == content(other)


def import_and_die(url: str, folder: Path, statement: int) -> None:
    """Ends the process by signal 9 at one of its statements or commits."""
    passed = 0

    def count(*_: object) -> None:
        nonlocal passed
        passed += 1
        if passed == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "after_cursor_execute", count)
    event.listen(Engine, "commit", count)
    run_import._BATCH_RUNS = 4
    import_all(url, folder)


# Each later than those before, as an import that goes on has less to do.
MOMENTS = sorted(random.Random(9).sample(range(5, 75), 6))


def test_kills_at_any_moment_change_nothing(url: str, recordings: Path, tmp_path: Path) -> None:
    undisturbed_url = f"sqlite:///{tmp_path}/undisturbed.db"
    import_all(undisturbed_url, recordings)
    context = multiprocessing.get_context("fork")
    kept = []
    for statement in MOMENTS:
        process = context.Process(target=import_and_die, args=(url, recordings, statement))
        process.start()
        process.join()
        assert process.exitcode in {-signal.SIGKILL, 0}
        with open_database(url, create=True) as database:
            with database.session(read_only=True) as session:
                kept.append(session.scalar(select(func.count()).select_from(TrialRow)) or 0)
            for trial in TrialStore(database).trials():
                assert trial.phases, "a run without its phases"
    assert len({runs for runs in kept if 0 < runs < 40}) > 2, "few kills were in the middle"
    import_all(url, recordings)
    with (
        open_database(url, create=False) as database,
        open_database(undisturbed_url, create=False) as undisturbed,
    ):
        assert content(database) == content(undisturbed)


def test_the_published_means_come_out_of_sql(database: Database, published: Path) -> None:
    import_manifest(database, read_manifest(published / "manifest.csv"), published / "data")
    expected = {
        ("resnet32-cifar10-8", 100.0): (5, 0.9188, 10604),
        ("resnet32-cifar10-8", 50.0): (5, 0.9202, 5994),
        ("resnet32-cifar10-8", 25.0): (5, 0.9178, 3883),
        ("resnet32-cifar10-8", 12.5): (5, 0.9142, 2543),
        ("resnet32-cifar10-8", 6.25): (5, 0.9182, 2084),
        ("resnet32-cifar10-8", 3.125): (4, 0.9037, 1776),
        ("resnet32-cifar10-8", 0.0): (4, 0.8918, 1607),
        ("resnet32-cifar10-16", 100.0): (3, 0.9229, None),
        ("resnet32-cifar10-16", 50.0): (3, 0.9206, None),
    }
    query = text(
        "SELECT workload, candidate_percent, COUNT(*), AVG(converged_accuracy),"
        " AVG(training_seconds) FROM syncswitch_trial_facts"
        " WHERE candidate_percent IS NOT NULL AND NOT diverged GROUP BY 1, 2"
    )
    with database.session(read_only=True) as session:
        found = {(row[0], row[1]): row[2:] for row in session.execute(query)}
    assert found.keys() == expected.keys()
    for switch_point, (runs, accuracy, seconds) in expected.items():
        assert found[switch_point][0] == runs
        assert found[switch_point][1] == pytest.approx(accuracy, abs=1e-4)
        if seconds is not None:
            assert found[switch_point][2] == pytest.approx(seconds, rel=0.01)


@needs_paper
class TestTheAuthorsLogs:
    @pytest.fixture
    def report(self, database: Database) -> ImportReport:
        return import_manifest(database, read_manifest(PAPER / "manifest.csv"), PAPER / "logs")

    def test_what_is_told_of_the_rows(self, report: ImportReport) -> None:
        assert (report.imported_runs, report.imported_evaluations) == (82, 2198)
        assert len(report.workloads) == 3
        assert [fault.line for fault in report.faults] == [17, 32]
        assert [note.line for note in report.notes] == [2]

    def test_what_analysts_ask_for_is_filled(
        self, database: Database, report: ImportReport
    ) -> None:
        query = text(
            "SELECT COUNT(*), COUNT(target_accuracy), COUNT(time_to_accuracy_seconds),"
            " COUNT(first_phase_seconds), SUM(CASE WHEN diverged THEN 1 ELSE 0 END)"
            " FROM syncswitch_trial_facts WHERE first_protocol = 'bsp'"
        )
        with database.session(read_only=True) as session:
            runs, targets, reached, first_phases, diverged = session.execute(query).one()
        assert (runs, targets, diverged) == (71, 71, 6)
        assert 0 < reached < runs
        assert first_phases == runs - 6 - 4  # those without logs, and ASP alone
