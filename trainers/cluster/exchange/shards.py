"""Shards: how several parameter servers divide a state between them; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np

from syncswitch.trainers.cluster.exchange.plans import Sizes
from syncswitch.trainers.model.layout import ModelState

Undone = Mapping[int, Collection[int]]
"""Worker-steps that are missing from a state, each with the parameter servers that have it already.

A worker that dies during a push may have reached some of the servers.
"""


@dataclass(frozen=True)
class Shard:
    """The pieces of the flat vectors that one parameter server holds."""

    parameters: slice  # its piece of the parameters
    # Its piece of the statistics. The two are adjacent in the vector of parameters followed by
    # statistics.
    statistics: slice
    # Its pieces of the slots, in the order in which it holds them. An optimizer's variable that
    # belongs to no single parameter is in every shard.
    slots: tuple[slice, ...]

    @property
    def model(self) -> slice:
        """Its piece of what a worker pulls: parameters followed by statistics."""
        return slice(
            self.parameters.start + self.statistics.start,
            self.parameters.stop + self.statistics.stop,
        )

    @property
    def sizes(self) -> Sizes:
        return Sizes(
            _length(self.parameters), _length(self.statistics), sum(map(_length, self.slots))
        )

    def of(self, state: ModelState) -> ModelState:
        slots = [state.slots[piece] for piece in self.slots]
        return replace(
            state,
            parameters=state.parameters[self.parameters],
            statistics=state.statistics[self.statistics],
            slots=slots[0] if len(slots) == 1 else np.concatenate([*slots, state.slots[:0]]),
        )


def uncut(sizes: Sizes) -> tuple[Shard, ...]:
    """Returns a single shard that holds everything."""
    whole = [slice(0, size) for size in (sizes.parameters, sizes.statistics, sizes.slots)]
    return (Shard(whole[0], whole[1], (whole[2],)),)


def cut_anywhere(sizes: Sizes, count: int) -> tuple[Shard, ...]:
    """Returns equal shards, for an optimizer with one slot per parameter in the same order."""
    cuts = [sizes.model * number // count for number in range(count + 1)]
    shards = [_piece(start, stop, sizes.parameters) for start, stop in pairwise(cuts)]
    return tuple(replace(shard, slots=(shard.parameters,)) for shard in shards)


def cut_between_variables(
    parameters: Sequence[int],
    statistics: Sequence[int],
    slots: Sequence[tuple[int, int | None]],
    count: int,
) -> tuple[Shard, ...]:
    """Returns shards of whole variables, as equal as possible; some may be empty.

    `parameters` and `statistics` are the sizes of the variables. `slots` are the size of each of
    the optimizer's, and the number of the trained variable that it belongs to, None for no single
    one.
    """
    ends = list(accumulate([*parameters, *statistics], initial=0))
    targets = [ends[-1] * number / count for number in range(count)]
    # Of two ends that are equally near, the later.
    cuts = [min(ends, key=lambda end: (abs(end - target), -end)) for target in targets]
    starts = accumulate((size for size, _ in slots), initial=0)
    owned = [
        (slice(start, start + size), None if owner is None else ends[owner])
        for start, (size, owner) in zip(starts, slots, strict=False)
    ]
    shards = []
    for start, stop in pairwise([*cuts, ends[-1]]):
        shard = _piece(start, stop, sum(parameters))
        has_any = _length(shard.parameters) > 0
        own = tuple(
            piece for piece, place in owned if (has_any if place is None else start <= place < stop)
        )
        shards.append(replace(shard, slots=own))
    return tuple(shards)


def joined(states: Sequence[ModelState], shards: Sequence[Shard], sizes: Sizes) -> ModelState:
    """Joins the states of shards; the whole has the update count of the first."""
    if len(states) == 1:
        return states[0]
    slots = np.empty(sizes.slots, np.float32)
    for state, shard in zip(states, shards, strict=True):
        start = 0
        for piece in shard.slots:
            slots[piece] = state.slots[start : start + _length(piece)]
            start += _length(piece)
    return ModelState(
        np.concatenate([state.parameters for state in states]),
        slots,
        np.concatenate([state.statistics for state in states]),
        states[0].updates,
    )


def _piece(start: int, stop: int, parameters: int) -> Shard:
    """Returns the shard of a piece of parameters followed by statistics, without slots."""
    return Shard(
        slice(min(start, parameters), min(stop, parameters)),
        slice(max(start, parameters) - parameters, max(stop, parameters) - parameters),
        (),
    )


def _length(piece: slice) -> int:
    length: int = piece.stop - piece.start
    return length
