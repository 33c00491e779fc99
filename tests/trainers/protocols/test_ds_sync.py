from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from syncswitch.trainers.protocols import Exchange, choose_protocol
from syncswitch.trainers.protocols.ds_sync import DSSync, partition
from tests.failing import fails
from tests.properties import more_examples
from tests.trainers.protocols.protocol_contract import (
    EVENTS,
    MORE_WORKERS,
    Event,
    ProtocolContract,
    cluster,
)

POWERS = [(2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 2), (5, 1)]  # (m, d)
OTHERS = [(2, 6), (2, 10), (3, 12), (6, 12)]  # (m, n)
ROSTERS = st.sets(st.integers(0, 40), min_size=1, max_size=16).map(lambda set_: tuple(sorted(set_)))
ROUNDS = st.integers(0, 1000)


def mixing_matrix(roster: tuple[int, ...], group_size: int, number: int) -> NDArray[np.float64]:
    """The matrix that averaging in the groups of a round applies to the replicas."""
    matrix = np.zeros((len(roster), len(roster)))
    for group in partition(roster, group_size, number):
        ranks = [roster.index(worker) for worker in group]
        matrix[np.ix_(ranks, ranks)] = 1 / len(group)
    return matrix


class TestPartition:
    @given(ROSTERS, st.integers(1, 8), ROUNDS)
    def test_the_groups_are_the_roster_divided(
        self, roster: tuple[int, ...], group_size: int, number: int
    ) -> None:
        groups = partition(roster, group_size, number)
        assert sorted(itertools.chain(*groups)) == list(roster)
        assert all(list(group) == sorted(group) for group in groups)
        sizes = sorted((len(group) for group in groups), reverse=True)
        whole, rest = divmod(len(roster), group_size)
        assert sizes == [group_size] * whole + [rest] * (rest > 0)

    @pytest.mark.parametrize(("group_size", "digits"), POWERS)
    @pytest.mark.parametrize("first_round", [0, 1, 5])
    def test_as_many_rounds_as_digits_are_the_full_average(
        self, group_size: int, digits: int, first_round: int
    ) -> None:
        workers = group_size**digits
        product = np.eye(workers)
        for number in range(first_round, first_round + digits):
            assert np.ptp(product[0]) > 0, "not before"
            product = mixing_matrix(tuple(range(workers)), group_size, number) @ product
        np.testing.assert_allclose(product, 1 / workers)

    @pytest.mark.parametrize(("group_size", "workers"), OTHERS)
    def test_random_groups_contract_the_distance_from_the_mean_as_predicted(
        self, group_size: int, workers: int
    ) -> None:
        replicas = np.arange(workers) - (workers - 1) / 2  # their mean is 0
        roster = tuple(range(workers))
        left = [
            sum(replicas[list(group)].sum() ** 2 for group in partition(roster, group_size, number))
            / group_size
            for number in range(3000)
        ]
        predicted = (workers - group_size) / (group_size * (workers - 1))
        assert np.mean(left) / np.sum(replicas**2) == pytest.approx(predicted, rel=0.05)

    def test_groups_differ_in_one_digit_of_the_rank_or_are_as_random_in_every_year(self) -> None:
        found = [partition((10, 11, 12, 13), 2, number) for number in range(3)]
        assert found == [((10, 11), (12, 13)), ((10, 12), (11, 13)), ((10, 11), (12, 13))]
        assert [partition(tuple(range(6)), 2, number) for number in range(3)] == [
            ((0, 4), (1, 5), (2, 3)),
            ((0, 1), (2, 4), (3, 5)),
            ((0, 5), (1, 4), (2, 3)),
        ]


class TestDSSync(ProtocolContract):
    kind = DSSync
    exchange = Exchange.REPLICA
    texts = ("ds-sync:1", "ds-sync:2", "ds-sync:3", "ds-sync:4")

    @given(st.integers(1, 4), MORE_WORKERS, EVENTS)
    @more_examples(20)
    def test_a_worker_waits_for_its_group_and_for_nobody_else(
        self, group_size: int, more: int, events: list[Event]
    ) -> None:
        sync = cluster(f"ds-sync:{group_size}", 2 + more)
        rounds = dict.fromkeys(sync.active, 0)
        for event in events:
            running, pushes = set(sync.running), dict(sync.pushes)
            sync.released, sync.groups = [], ()
            sync.follow([event])
            roster = tuple(sorted(sync.pushes))
            rounds = {worker: rounds[worker] for worker in rounds if worker in sync.active}
            joined = sync.active - rounds.keys()
            ends = {worker: rounds[worker] for worker in sync.released if worker not in joined}
            rounds |= dict.fromkeys(joined, max(rounds.values(), default=0))
            self._check_groups(sync.groups, ends, roster, group_size)
            for worker in ends:
                rounds[worker] += 1
            for worker in sync.waiting:
                number = rounds[worker]
                assert any(
                    rounds[other] < number or (rounds[other] == number and other in sync.running)
                    for other in _group_of(worker, roster, group_size, number)
                    if other in sync.active
                ), f"worker {worker} waits for nobody after {event}"
            assert running - sync.running <= {
                worker
                for worker in running
                if worker not in sync.active or sync.pushes[worker] > pushes[worker]
            }

    @staticmethod
    def _check_groups(
        groups: tuple[tuple[int, ...], ...],
        ends: dict[int, int],
        roster: tuple[int, ...],
        group_size: int,
    ) -> None:
        """Checks that a released worker is averaged with the members of its group in that round."""
        for worker, number in ends.items():
            group = _group_of(worker, roster, group_size, number)
            together = tuple(other for other in group if ends.get(other) == number)
            assert (together in groups) == (len(together) > 1)
        assert {worker for group in groups for worker in group} <= ends.keys()

    def test_the_size_of_the_groups_has_to_divide_the_cluster(self) -> None:
        with fails("parameter-invalid", r"workers is 6: .*'ds-sync:4' .* one of 1, 2, 3, 6$"):
            choose_protocol("ds-sync:4").check_cluster(6)
        for size in (1, 2, 3, 6):
            choose_protocol(f"ds-sync:{size}").check_cluster(6)


def _group_of(
    worker: int, roster: tuple[int, ...], group_size: int, number: int
) -> tuple[int, ...]:
    return next(group for group in partition(roster, group_size, number) if worker in group)
