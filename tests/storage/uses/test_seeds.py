"""Seeds of uses: each has its own, whoever asks at the same moment."""

from __future__ import annotations

from dataclasses import replace

from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.uses.store import hand_out_seed, record_use
from tests.storage.conftest import IDENTITY, AtOnce, both_databases, use_of


@both_databases
def test_no_two_who_ask_at_once_get_the_same(database: Database, at_once: AtOnce) -> None:
    url = database.url
    assert hand_out_seed(database, IDENTITY) is None
    database.close()

    def ask(_: int) -> list[int | None]:
        with open_database(url, create=False) as own:
            return [hand_out_seed(own, IDENTITY, "digits") for _ in range(5)]

    assert sorted(seed for seeds in at_once(ask, 4) for seed in seeds) == list(range(20))
    with open_database(url, create=False) as own:
        assert hand_out_seed(own, IDENTITY) == 20
        assert hand_out_seed(own, replace(IDENTITY, workers=7), "digits") == 0


def test_those_that_users_chose_are_left_out(database: Database, used_policy: TimingPolicy) -> None:
    for seed in (1, 2, 5, 2**31 - 1):
        record_use(database, use_of(used_policy, seed))
    assert [hand_out_seed(database, IDENTITY) for _ in range(4)] == [0, 3, 4, 6]
