from __future__ import annotations

from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import SearchInfo
from tests.storage.conftest import both_databases

pytestmark = both_databases


def test_what_selects_a_workload(
    store: TrialStore, identity: WorkloadIdentity, search: SearchInfo
) -> None:
    store.register(identity, "job.py:work", search)
    starts = [identity.fingerprint[:length] for length in (8, 9, 63, 64)]
    for selector in ("digits", "job.py:work", *starts):
        assert store.searches(workload=selector) == [search]
    too_short = identity.fingerprint[:7]
    for selector in ("", "digit", "DIGITS", "digits%", "%", "_" * 8, "%" * 8, too_short):
        assert store.searches(workload=selector) == []
