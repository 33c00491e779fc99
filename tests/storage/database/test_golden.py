"""A database that the release of its revision has made is read by all later ones.

`golden_database_REVISION.sql` is never changed: a new revision adds a file of its own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from syncswitch import PolicyRegistry, frames, lookup, open_database
from syncswitch.storage.database.check import database_findings
from syncswitch.storage.database.inspection import REVISION
from tests.golden import GOLDEN_DATABASES, restored


@pytest.mark.parametrize("golden", GOLDEN_DATABASES, ids=lambda path: path.stem[-4:])
def test_it_is_opened_and_holds_what_it_held(golden: Path, tmp_path: Path) -> None:
    url = restored(golden, tmp_path)
    with open_database(url, create=False) as database:
        assert list(database_findings(database)) == []
        policies = PolicyRegistry(database).policies()
    found = [(one.job.workload, one.version, one.switch_percent) for one in policies]
    assert sorted(found) == [
        ("disturbed", 1, 25.0),
        ("generated", 1, 12.5),
        ("generated", 1, 25.0),
        ("generated", 2, 12.5),
    ]
    tables = (frames.trials, frames.evaluations, frames.events, frames.uses, frames.switch_points)
    assert [len(table(url)) for table in tables] == [35, 153, 9, 3, 15]
    policy = lookup("generated@1", cluster="real", storage=url)
    assert (policy.switch_percent, policy.measured.training_seconds) == (12.5, 47.5)


def test_each_revision_that_is_read_has_one() -> None:
    assert GOLDEN_DATABASES[-1].stem == f"golden_database_{REVISION}"
