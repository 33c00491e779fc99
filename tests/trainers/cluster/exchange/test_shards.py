from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.cluster.exchange.plans import Sizes
from syncswitch.trainers.cluster.exchange.shards import (
    Shard,
    cut_anywhere,
    cut_between_variables,
    joined,
)
from syncswitch.trainers.model.layout import ModelState
from tests.trainers.final import assert_bitwise_equal

COUNTS = st.integers(1, 6)
VARIABLES = st.lists(st.integers(1, 50), min_size=1, max_size=8)


def state_of(sizes: Sizes) -> ModelState:
    """Returns a state whose values all differ."""
    values = np.arange(sizes.model + sizes.slots, dtype=np.float32)
    parameters, statistics, slots = np.split(values, [sizes.parameters, sizes.model])
    return ModelState(parameters, slots, statistics, 7)


def assert_is_cut(shards: tuple[Shard, ...], sizes: Sizes) -> None:
    """Asserts that shards cover the model in order, and that their states join to the whole."""
    assert shards[0].model.start == 0
    assert shards[-1].model.stop == sizes.model
    assert all(one.model.stop == other.model.start for one, other in pairwise(shards))
    state = state_of(sizes)
    states = [shard.of(state) for shard in shards]
    model = np.concatenate([state.parameters, state.statistics])
    for shard, own in zip(shards, states, strict=True):
        assert shard.sizes == Sizes(own.parameters.size, own.statistics.size, own.slots.size)
        np.testing.assert_array_equal(
            np.concatenate([own.parameters, own.statistics]), model[shard.model]
        )
    assert_bitwise_equal(joined(states, shards, sizes), state)


@given(parameters=st.integers(1, 60), statistics=st.integers(0, 20), count=COUNTS)
def test_what_has_one_slot_for_each_parameter_is_cut_evenly(
    parameters: int, statistics: int, count: int
) -> None:
    sizes = Sizes(parameters, statistics, parameters)
    shards = cut_anywhere(sizes, count)
    assert len(shards) == count
    assert_is_cut(shards, sizes)
    lengths = [shard.sizes.model for shard in shards]
    assert max(lengths) - min(lengths) <= 1
    for shard in shards:
        assert shard.slots == (shard.parameters,)


@given(
    parameters=VARIABLES,
    statistics=st.lists(st.integers(1, 50), max_size=4),
    kinds=st.integers(0, 3),
    interleaved=st.booleans(),
    count=COUNTS,
)
def test_variables_stay_whole_and_have_their_slots(
    parameters: list[int], statistics: list[int], kinds: int, interleaved: bool, count: int
) -> None:
    """In any order of the slots; a scalar is in every shard."""
    places = list(enumerate(parameters))
    owned = [(size, number) for number, size in places for _ in range(kinds)]
    if not interleaved:
        owned = [(size, number) for _ in range(kinds) for number, size in places]
    slots: list[tuple[int, int | None]] = [(1, None), *owned]
    sizes = Sizes(sum(parameters), sum(statistics), sum(size for size, _ in slots))
    shards = cut_between_variables(parameters, statistics, slots, count)
    assert len(shards) == count
    assert_is_cut(shards, sizes)
    ends = set(np.cumsum([0, *parameters, *statistics]).tolist())
    largest = max([*parameters, *statistics])
    for shard in shards:
        assert {shard.model.start, shard.model.stop} <= ends
        assert shard.sizes.model <= sizes.model / count + largest
        held = shard.sizes.parameters
        assert shard.sizes.slots == kinds * held + (held > 0)


def test_a_cut_is_between_the_variables_that_are_nearest() -> None:
    for sizes, first in (([2, 4, 1], 2), ([4, 1, 1], 4), ([1, 4, 1], 5)):
        shards = cut_between_variables(sizes, [], [], 2)
        assert shards[0].sizes.parameters == first
