"""Makes the test tools of this folder importable; and a finished search that many tests look at."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from stored import EVENTS, Made, add_search, publish

from syncswitch.searcher.report.data import ReportData, load_report
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.records.job import RunConditions


@pytest.fixture
def database(sqlite_url: str, our_tables: None) -> Iterator[Database]:
    with open_database(sqlite_url, create=False) as database:
        yield database


@pytest.fixture(scope="session")
def finished(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    """A search with its policy, and a run of an evaluation to which something happened."""
    path = tmp_path_factory.mktemp("finished") / "search.db"
    shutil.copyfile(sqlite_template, path)
    disturbed = RunConditions(injections=("straggler:worker=3",))
    run = Made(50.0, 0.5, conditions=disturbed, events=EVENTS)
    with open_database(f"sqlite:///{path}", create=False) as database:
        publish(database, add_search(database))
        add_search(database, [run], study="disturbed", strategy="sweep")
        return load_report(database, "generated")
