from __future__ import annotations

import pytest

from tests.trainers.protocols.play import finish_seconds

# Steps of 1.0 and 1.9 s; the fast worker does 3000 pushes.
FINISH_SECONDS = {
    "bsp": 5699,
    "asp": 3000,
    "ssp:0": 5699,
    "ssp:3": 5693,
    "ssp:15": 5671,
    "ssp:1000000": 3000,
    "dssp": 5680,
    "dssp:3-3": 5693,
    "dssp:3-3:unbounded": 5693,
    "dssp:3-15:unbounded": 3000,
    # Groups of both workers are a barrier per step, groups of one are none.
    "ds-sync:2": 5699,
    "ds-sync:1": 3000,
    "local-sgd:1": 5699,
    # The last of 3000 steps needs 374 whole periods of the slow worker, and 8 of its own.
    "local-sgd:8": round(374 * 8 * 1.9 + 8),
}


@pytest.mark.parametrize(("text", "seconds"), FINISH_SECONDS.items(), ids=FINISH_SECONDS)
def test_a_fast_and_a_slow_worker_finish_when_the_papers_rules_say(text: str, seconds: int) -> None:
    assert round(finish_seconds(text, [1.0, 1.9], 3000)) == seconds
