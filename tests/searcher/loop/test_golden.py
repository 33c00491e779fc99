"""A search goes on from the database that any earlier revision of the software wrote."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from generated_trainer import GeneratedTrainer, identity

from syncswitch.searcher.loop.search import Search
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.searcher.study.consistency import check_database
from syncswitch.searcher.study.plan import SearchPlan
from syncswitch.storage.database.engine import open_database, upgrade_database
from syncswitch.storage.policies.registry import CURRENT, PolicyRegistry

GOLDEN = sorted((Path(__file__).parents[2] / "storage" / "golden").glob("*.sql"))
FINISHED = SearchPlan(PaperStrategy(3, 2))
ANOTHER = SearchPlan(PaperStrategy(2, 3))


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_a_search_goes_on_from_every_revision(file: Path, sqlite_url: str, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(file.read_text())
    upgrade_database(sqlite_url)
    trainer = GeneratedTrainer()
    with open_database(sqlite_url, create=False) as database:
        registry = PolicyRegistry(database)
        fingerprint = identity().fingerprint
        before = {policy.version: policy for policy in registry.policies(workload=fingerprint)}
        last = max(before)
        assert last >= 2

        finished = Search(database, identity(), FINISHED, lambda: trainer).run()
        assert trainer.runs == []
        assert finished.policy == before[1]

        new = Search(database, identity(), ANOTHER, lambda: trainer).run()
        assert len(trainer.runs) == 9
        assert new.policy.version == last + 1
        after = {policy.version: policy for policy in registry.policies(workload=fingerprint)}
        assert after == {
            **before,
            last + 1: new.policy,
        }
        assert registry.aliases(new.policy.fingerprint) == {CURRENT: last + 1, "pinned": 1}
    assert not any(finding.is_problem for finding in check_database(sqlite_url))
