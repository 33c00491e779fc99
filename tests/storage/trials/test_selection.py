from __future__ import annotations

import pytest

from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import SearchInfo
from tests.storage.conftest import both_databases

pytestmark = both_databases


@pytest.mark.parametrize("length", [8, 9, 63, 64])
def test_the_start_of_a_fingerprint_selects(
    store: TrialStore, identity: WorkloadIdentity, search: SearchInfo, length: int
) -> None:
    assert store.searches(workload=identity.fingerprint[:length]) == [search]


@pytest.mark.parametrize("selector", ["digits", "job.py:work"])
def test_a_name_or_a_reference_selects(
    store: TrialStore, identity: WorkloadIdentity, search: SearchInfo, selector: str
) -> None:
    store.register(identity, "job.py:work", search)
    assert store.searches(workload=selector) == [search]


@pytest.mark.parametrize("selector", ["", "digit", "DIGITS", "digits%", "%", "_" * 8, "%" * 8])
def test_nothing_else_selects(store: TrialStore, selector: str) -> None:
    assert store.searches(workload=selector) == []


def test_less_than_8_digits_do_not_select(store: TrialStore, identity: WorkloadIdentity) -> None:
    assert store.searches(workload=identity.fingerprint[:7]) == []
