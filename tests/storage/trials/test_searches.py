"""The options of a search are those with which it began, on each kind of database."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import FatalError
from syncswitch.storage.records.job import WorkloadIdentity
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import SearchInfo
from tests.properties import FIXTURES_STAY
from tests.storage.conftest import both_databases

pytestmark = both_databases

Run = Callable[[Callable[[int], Any], int], list[Any]]

OPTIONS = {"spread": 0.004, "shares": [0.5, 1], "is_warm": True, "from": None, "name": "ä\0"}
NUMBERS = itertools.count()

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
options = st.dictionaries(st.text(), scalars | st.lists(scalars, max_size=3), max_size=4)


@FIXTURES_STAY
@given(options=options)
def test_every_option_survives(
    store: TrialStore, identity: WorkloadIdentity, search: SearchInfo, options: dict[str, Any]
) -> None:
    new = replace(search, study=f"study-{next(NUMBERS)}", options=options)
    assert store.register(identity, "digits", new) == new
    (found,) = [found for found in store.searches() if found.study == new.study]
    assert repr(found.options) == repr(options)  # as 1 equals 1.0 and True


def test_what_is_registered_again_keeps_its_options(
    store: TrialStore, identity: WorkloadIdentity, search: SearchInfo
) -> None:
    first = replace(search, study="new", options=OPTIONS)
    store.register(identity, "digits", first)
    for other in ({}, {"spread": 9}):
        again = replace(first, settings=9, options=other)
        expected = replace(first, settings=9)
        assert store.register(identity, "digits", again) == expected
        assert store.searches() == [search, expected]


def test_a_search_without_options_keeps_none(
    store: TrialStore, identity: WorkloadIdentity, search: SearchInfo
) -> None:
    assert search.options == {}
    assert store.register(identity, "digits", replace(search, options=OPTIONS)) == search


def test_the_answer_is_what_the_database_has(
    store: TrialStore, identity: WorkloadIdentity, search: SearchInfo
) -> None:
    given_options: dict[str, Any] = {"shares": (0.5, 1)}  # JSON knows lists alone
    new = replace(search, study="new", options=given_options)
    registered = store.register(identity, "digits", new)
    given_options["shares"] = None
    assert registered.options == {"shares": [0.5, 1]}
    assert store.searches() == [search, registered]


def test_what_is_no_json_is_refused(
    store: TrialStore, identity: WorkloadIdentity, search: SearchInfo
) -> None:
    for value in (math.nan, -math.inf, {1}, b"bytes"):
        with pytest.raises(FatalError, match="an option of search 'new' is no JSON value"):
            store.register(identity, "other", replace(search, study="new", options={"x": value}))
    assert store.searches() == store.searches(workload="digits") == [search]


def test_of_searchers_that_begin_at_once_one_sets_the_options(
    url: str, at_once: Run, identity: WorkloadIdentity, search: SearchInfo
) -> None:
    def work(number: int) -> SearchInfo:
        with open_database(url, create=True) as database:
            mine = replace(search, options={"number": number})
            return TrialStore(database).register(identity, "digits", mine)

    answers = at_once(work, 3)
    with open_database(url, create=False) as database:
        (registered,) = TrialStore(database).searches()
    assert registered.options["number"] in range(3)
    assert answers == [registered] * 3
