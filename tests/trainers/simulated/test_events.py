"""Times of simulated segments, against closed forms and the papers' figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from syncswitch.trainers.protocols import choose_protocol
from syncswitch.trainers.protocols.steps import Groups, SegmentSteps
from syncswitch.trainers.simulated.events import Learner, SegmentPlayer
from syncswitch.trainers.simulated.membership import Membership
from syncswitch.trainers.simulated.profile import ClusterProfile, Straggler
from tests.trainers.simulated.clusters import EVEN, VARIED, times_of

EXACT = 1e-9

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


class Until(SegmentSteps):
    """Ends after a number of pushes of worker 0, and tells the time."""

    def __init__(self, protocol: str, speeds: Sequence[float], pushes: int) -> None:
        super().__init__(choose_protocol(protocol).machine(range(len(speeds))), 0, 10**9)
        self.end_seconds = math.nan
        self._left = pushes

    def push(self, worker: int, now_seconds: float) -> Groups:
        self._left -= worker == 0
        if self._left == 0 and math.isnan(self.end_seconds):
            self.end_seconds = now_seconds
            self.stop()
        return super().push(worker, now_seconds)


@pytest.mark.parametrize(("text", "seconds"), FINISH_SECONDS.items(), ids=FINISH_SECONDS)
def test_a_fast_and_a_slow_worker_finish_when_the_papers_rules_say(text: str, seconds: int) -> None:
    speeds = (1.0, 1 / 1.9)
    profile = ClusterProfile(compute_seconds=1.0, relative_speeds=speeds)
    steps = Until(text, speeds, 3000)
    membership = Membership(range(len(speeds)))
    times = times_of(profile, 6000)
    SegmentPlayer(steps, times, Learner(), membership, 0.0, lambda *_: None).play()
    assert round(steps.end_seconds) == seconds


def play(
    protocol: str,
    profile: ClusterProfile,
    workers: int,
    steps: int,
    values: int = 0,
) -> list[tuple[int, float]]:
    """Worker-steps done, and when, after each update of a segment."""
    machine = choose_protocol(protocol).machine(range(workers))
    done: list[tuple[int, float]] = []
    SegmentPlayer(
        SegmentSteps(machine, 0, steps),
        times_of(profile, steps, values),
        Learner(),
        Membership(range(workers)),
        0.0,
        lambda *update: done.append(update),
    ).play()
    return done


def cluster(**fields: Any) -> ClusterProfile:
    """A cluster of workers that compute for a second."""
    return ClusterProfile(**{"compute_seconds": 1.0, **fields})


def network(server: float | None = 400.0, own: Sequence[float] = (), **fields: Any) -> Any:
    """Links of this many bytes per second, and a model of 100 bytes: 0.25 s for a lone transfer."""
    return cluster(
        parameter_bytes=100,
        server_bandwidth_bytes_per_second=server,
        worker_bandwidths_bytes_per_second=tuple(own),
        **fields,
    )


def slow(**fields: Any) -> ClusterProfile:
    """Worker 1 is a straggler for a while."""
    return cluster(stragglers=(Straggler(worker=1, **fields),))


def late(start_seconds: float, **fields: float) -> ClusterProfile:
    """Worker 1 is slow for 10 s from then on."""
    return slow(start_seconds=start_seconds, duration_seconds=10.0, **fields)


UNEVEN = cluster(compute_seconds=0.3, relative_speeds=(1.0, 0.5, 2.0, 0.8))
BARRIER = network(barrier_seconds=0.5)
CHATTY = cluster(latency_seconds=0.125, barrier_seconds=0.5)
FAST = 1 + 2 * 100 / 350
# A mean of replicas: a ring's bytes, in three exchanges of two messages each.
REPLICAS = network(1.0, [400.0], latency_seconds=0.125)
MESSAGES = 6 * 0.125


@pytest.mark.parametrize(
    ("protocol", "profile", "workers", "steps", "expected"),
    [
        # A round waits for the slowest.
        ("bsp", UNEVEN, 4, 40, 10 * 0.3 / 0.5),
        # Rounds that start at 10.0, 11.3, ... 18.8 are late, the one at 20.1 is not.
        ("bsp", late(10.0, delay_seconds=0.3), 4, 400, 100 + 8 * 0.3),
        # Rounds that start at 10, 12, ... 18.
        ("bsp", late(10.0, slowdown=2.0), 4, 400, 100 + 5),
        # Only steps that start in the time of the straggler.
        ("bsp", late(99.0, delay_seconds=1.0), 4, 400, 101.0),
        ("bsp", late(99.5, delay_seconds=1.0), 4, 400, 100.0),
        ("bsp", late(100.0, delay_seconds=1.0), 4, 400, 100.0),
        # All have the parameters after n transfers; so it is with their gradients.
        ("asp", network(), 4, 4, [4 * 0.25 + 1 + 4 * 0.25] * 4),
        # A round sends n models each way.
        ("bsp", BARRIER, 1, 5, 5 * (2 * 0.25 + 1.5)),
        ("bsp", BARRIER, 3, 15, 5 * (6 * 0.25 + 1.5)),
        ("bsp", BARRIER, 8, 40, 5 * (16 * 0.25 + 1.5)),
        # Pulls and pushes do not share. Both have pulled at 0.5 s. Worker 1 pushes from 1.0 to
        # 1.25 s, pulls until 1.5 s, computes until 2.0 s; worker 0 pushes from 1.5 to 1.75 s.
        ("asp", network(relative_speeds=(1.0, 2.0)), 2, 3, [1.25, 1.75, 2.25]),
        # Updates queue, also behind transfers; a round is one.
        ("asp", cluster(apply_seconds=0.5), 4, 4, [1.5, 2.0, 2.5, 3.0]),
        ("asp", network(apply_seconds=0.5), 2, 2, [2.5, 3.0]),
        ("bsp", cluster(apply_seconds=0.25), 4, 8, 2 * 1.25),
        # A gradient that arrives during the update of a full buffer counts after it.
        ("gba:0", cluster(apply_seconds=1.5, relative_speeds=(2.0, 1.0)), 2, 6, [2.5, 4.5, 6.5]),
        # 4 links of 50 bytes a second fit into 400: nobody waits for anybody.
        ("bsp", network(own=[50.0]), 4, 4, 2.0 + 1 + 2.0),
        ("asp", network(None, [50.0]), 3, 3, 2.0 + 1 + 2.0),
        # The slow one takes 2 + 1 + 2 seconds for a step, and is not in the fast one's way.
        ("asp", network(own=[50.0, 350.0]), 2, 5, [FAST, 2 * FAST, 3 * FAST, 5.0, 4 * FAST]),
        # The worker asks, the parameters come, the gradient goes.
        ("bsp", CHATTY, 4, 8, 2 * 1.875),
        ("asp", CHATTY, 4, 8, 2 * 1.375),
        # A lone transfer takes its latency, and the time on the slower link.
        ("asp", network(latency_seconds=0.125), 1, 1, 0.375 + 2 * 0.25 + 1),
        ("asp", network(own=[200.0], latency_seconds=0.125), 1, 1, 0.375 + 2 * 0.5 + 1),
        ("asp", network(own=[800.0], latency_seconds=0.125), 1, 1, 0.375 + 2 * 0.25 + 1),
        # Members average among themselves, all groups at once, without the server.
        ("ds-sync:2", REPLICAS, 4, 12, 3 * (1 + 0.25 + MESSAGES)),
        ("ds-sync:2", REPLICAS, 16, 48, 3 * (1 + 0.25 + MESSAGES)),
        ("ds-sync:4", REPLICAS, 4, 12, 3 * (1 + 1.5 * 0.25 + MESSAGES)),
        ("local-sgd:1", REPLICAS, 5, 15, 3 * (1 + 1.6 * 0.25 + MESSAGES)),
        # Local steps cost no network, and one alone has nothing to average.
        ("local-sgd:5", REPLICAS, 4, 40, 10 + 2 * (1.5 * 0.25 + MESSAGES)),
        ("local-sgd:1", REPLICAS, 1, 3, 3.0),
        # The slowest link of a group sets the pace of its mean: first 0 and 1, 2 and 3 are groups,
        # then 0 and 2, 1 and 3. Gradients of replicas count when they are there.
        ("ds-sync:2", network(own=[400.0, 400.0, 100.0, 100.0]), 4, 4, [1.0, 1.25, 1.25, 2.0]),
        ("ds-sync:2", network(own=[400.0, 400.0, 100.0, 100.0]), 4, 8, 2 * 2.0),
    ],
)
def test_known_times(
    protocol: str,
    profile: ClusterProfile,
    workers: int,
    steps: int,
    expected: float | list[float],
) -> None:
    """The time of each update, or of the last one."""
    ends = [seconds for _, seconds in play(protocol, profile, workers, steps)]
    found: Any = ends if isinstance(expected, list) else max(ends)
    assert found == pytest.approx(expected, abs=EXACT)


def test_without_a_size_a_model_is_four_bytes_for_each_value() -> None:
    profile = cluster(server_bandwidth_bytes_per_second=400)
    assert play("asp", profile, 1, 1, values=25)[-1][1] == pytest.approx(1.5)
    assert play("asp", EVEN, 1, 1, values=25)[-1][1] == 1.0


def test_speeds_repeat_along_the_workers() -> None:
    times = times_of(cluster(relative_speeds=(1.0, 0.5)), 1)
    seconds = [times.compute_seconds(worker, 0, 0.0) for worker in range(5)]
    assert seconds == pytest.approx([1, 2, 1, 2, 1])


def test_a_delay_is_not_slowed_down_two_add_up_and_each_gradient_is_late_once() -> None:
    one = Straggler(worker=0, start_seconds=0, duration_seconds=1, delay_seconds=0.5, slowdown=3)
    times = times_of(cluster(stragglers=(one, one)), 8)
    assert times.compute_seconds(0, 0, 0.5) == pytest.approx((1 * 3 + 0.5) * 3 + 0.5)
    assert times.compute_seconds(0, 3, 0.5, batches=4) == pytest.approx((4 * 3 + 0.5) * 3 + 0.5)


def test_computing_varies_as_the_profile_says_with_the_step_and_the_seed_alone() -> None:
    """A longer job begins like a short one."""

    def found(steps: int, seed: int = 1) -> list[float]:
        times = times_of(VARIED, steps, seed=seed)
        return [times.compute_seconds(0, step, 0.0) for step in range(steps)]

    seconds = np.array(found(20_000))
    assert seconds.mean() == pytest.approx(0.05, rel=0.02)
    assert seconds.std() / seconds.mean() == pytest.approx(0.3, rel=0.05)
    assert found(50) == list(seconds[:50])
    assert found(50, seed=2) != found(50)
