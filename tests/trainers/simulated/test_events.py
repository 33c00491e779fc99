"""Times of simulated segments, against closed forms and the papers' figures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.trainers.protocols import choose_protocol
from syncswitch.trainers.protocols.steps import Group, Groups, SegmentSteps, Ticket
from syncswitch.trainers.simulated.events import Learner, SegmentPlayer
from syncswitch.trainers.simulated.membership import Membership
from syncswitch.trainers.simulated.profile import ClusterProfile, Straggler
from tests.trainers.protocols.test_known_answers import FINISH_SECONDS
from tests.trainers.simulated.clusters import (
    EVEN,
    PROTOCOLS_OF_FOUR,
    VARIED,
    asp_throughput,
    end_seconds,
    play,
    times_of,
)

EXACT = 1e-9


class Witness(Learner):
    """Checks the order of what it is told, and counts."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.pushes: Counter[int] = Counter()
        self.joined = 0
        self.staleness: list[int] = []
        self._under_way: dict[int, tuple[Ticket, int]] = {}

    def pull(self, ticket: Ticket) -> None:
        assert ticket.worker not in self._under_way
        self.started.append(ticket.worker_step)
        self._under_way[ticket.worker] = ticket, self.pushes.total()

    def push(self, ticket: Ticket) -> None:
        started, before = self._under_way.pop(ticket.worker)
        assert started == ticket
        self.staleness.append(self.pushes.total() - before)
        self.pushes[ticket.worker] += 1

    def join(self, group: Group, worker_step: int) -> None:
        assert group.worker_steps or not self._under_way.keys() & set(group.workers)
        self.joined += len(group.workers)


class Until(SegmentSteps):
    """Steps that end, and tell the time, when worker 0 has pushed so often."""

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
    """Steps of 1.0 and 1.9 s; the fast worker does 3000 pushes."""
    speeds = (1.0, 1 / 1.9)
    profile = ClusterProfile(compute_seconds=1.0, relative_speeds=speeds)
    steps = Until(text, speeds, 3000)
    membership = Membership(range(len(speeds)))
    times = times_of(profile, 6000)
    SegmentPlayer(steps, times, Learner(), membership, 0.0, lambda *_: None).play()
    assert round(steps.end_seconds) == seconds


class TestEveryProtocol:
    @given(
        protocol=st.sampled_from([*PROTOCOLS_OF_FOUR, "ds-sync:1", "ds-sync:4", "ssp:0"]),
        steps=st.integers(1, 90),
        variation=st.sampled_from([0.0, 0.5, 3.0]),
        speeds=st.lists(st.floats(0.1, 10), min_size=1, max_size=4).map(tuple),
        transfer=st.sampled_from([0.0, 0.3]),
        join=st.sampled_from([0.0, 0.2]),
    )
    def test_does_each_step_once_and_counts_all_of_them(
        self,
        protocol: str,
        steps: int,
        variation: float,
        speeds: tuple[float, ...],
        transfer: float,
        join: float,
    ) -> None:
        profile = ClusterProfile(
            compute_seconds=1.0,
            compute_variation=variation,
            relative_speeds=speeds,
            parameter_bytes=3,
            worker_bandwidths_bytes_per_second=(4 / transfer, 3 / transfer) if transfer else (),
            server_bandwidth_bytes_per_second=5 / transfer if transfer else None,
            latency_seconds=join,
            apply_seconds=join,
            barrier_seconds=join,
        )
        witness = Witness()
        done = play(protocol, profile, 4, steps, witness)
        assert sorted(witness.started) == list(range(steps))
        assert witness.pushes.total() == steps
        counts = [count for count, _ in done]
        assert counts == sorted(set(counts))
        assert counts[-1] == steps
        assert all(math.isfinite(seconds) and seconds > 0 for _, seconds in done)
        assert done == play(protocol, profile, 4, steps)

    @given(
        kind=st.sampled_from([("ssp:{}", 0), ("ssp:{}", 1), ("ssp:{}", 3), ("dssp:0-{}", 2)]),
        workers=st.integers(2, 5),
        speeds=st.lists(st.floats(0.05, 20), min_size=1, max_size=5).map(tuple),
    )
    def test_with_a_lead_bounds_the_staleness(
        self, kind: tuple[str, int], workers: int, speeds: tuple[float, ...]
    ) -> None:
        text, lead = kind
        profile = ClusterProfile(
            compute_seconds=1.0, compute_variation=1.0, relative_speeds=speeds, latency_seconds=0.1
        )
        witness = Witness()
        play(text.format(lead), profile, workers, 300, witness)
        assert max(witness.staleness) <= (workers - 1) * (2 * lead + 1)

    @pytest.mark.parametrize("workers", [2, 3, 7])
    def test_in_asp_equal_workers_are_as_stale_as_there_are_others(self, workers: int) -> None:
        witness = Witness()
        play("asp", EVEN, workers, 20 * workers, witness)
        assert witness.staleness[workers:] == [workers - 1] * (19 * workers)
        # In the first round the parameters are still those of the start.
        assert witness.staleness[:workers] == list(range(workers))


class TestHeterogeneity:
    SPEEDS = (1.0, 0.5, 2.0, 0.8)

    def test_bsp_has_the_pace_of_the_slowest(self) -> None:
        profile = ClusterProfile(compute_seconds=0.3, relative_speeds=self.SPEEDS)
        done = play("bsp", profile, 4, 40)
        assert done == [
            (4 * number, pytest.approx(number * 0.3 / 0.5, abs=EXACT)) for number in range(1, 11)
        ]

    def test_asp_has_the_sum_of_the_paces(self) -> None:
        profile = ClusterProfile(compute_seconds=0.3, relative_speeds=self.SPEEDS)
        done = play("asp", profile, 4, 4300)
        # Each worker pushes at the multiples of its own time per step.
        pushes = sorted(number * 0.3 / speed for speed in self.SPEEDS for number in range(1, 4301))[
            : 4300 - 3
        ]
        for (_, seconds), expected in zip(done, pushes, strict=False):
            assert seconds == pytest.approx(expected, abs=EXACT * 1000)
        rate = 4000 / done[3999][1]
        assert rate == pytest.approx(sum(self.SPEEDS) / 0.3, rel=1e-3)

    def test_speeds_repeat_along_the_workers(self) -> None:
        profile = ClusterProfile(compute_seconds=1.0, relative_speeds=(1.0, 0.5))
        assert [
            times_of(profile, 1).compute_seconds(worker, 0, 0.0) for worker in range(5)
        ] == pytest.approx([1, 2, 1, 2, 1])


class TestStragglers:
    WORKERS, STEPS = 4, 400

    def end(self, protocol: str, **fields: float) -> float:
        straggler = Straggler(worker=1, **fields)  # type: ignore[arg-type]
        profile = ClusterProfile(compute_seconds=1.0, stragglers=(straggler,))
        return end_seconds(protocol, profile, self.WORKERS, self.STEPS)

    def test_bsp_waits_for_each_delay(self) -> None:
        """Rounds that start in the window, at 10.0, 11.3, ... 18.8 and 20.1 (too late)."""
        end = self.end("bsp", start_seconds=10.0, duration_seconds=10.0, delay_seconds=0.3)
        slow_rounds = len([1 for number in range(100) if 10 + 1.3 * number < 20])
        assert slow_rounds == 8
        assert end == pytest.approx(100 + 8 * 0.3, abs=EXACT)

    def test_asp_loses_about_its_share(self) -> None:
        """While one of n workers does nothing for so long, the others share its steps."""
        lost = 40.0
        bsp = self.end("bsp", start_seconds=10.0, duration_seconds=0.5, delay_seconds=lost)
        asp = self.end("asp", start_seconds=10.0, duration_seconds=0.5, delay_seconds=lost)
        assert bsp == pytest.approx(100 + lost, abs=EXACT)
        assert asp == pytest.approx(100 + lost / self.WORKERS, abs=1.0)

    def test_a_slow_worker_takes_so_many_times_as_long(self) -> None:
        """Rounds that start at 10, 12, ... 18."""
        end = self.end("bsp", start_seconds=10.0, duration_seconds=10.0, slowdown=2.0)
        assert end == pytest.approx(100 + 5, abs=EXACT)

    @pytest.mark.parametrize(("start", "extra"), [(99.0, 1.0), (99.5, 0.0), (100.0, 0.0)])
    def test_only_steps_that_start_in_the_window_are_slow(self, start: float, extra: float) -> None:
        end = self.end("bsp", start_seconds=start, duration_seconds=9.0, delay_seconds=1.0)
        assert end == pytest.approx(100 + extra, abs=EXACT)

    def test_a_delay_is_not_slowed_down_and_two_add_up(self) -> None:
        straggler = Straggler(
            worker=0, start_seconds=0, duration_seconds=1, delay_seconds=0.5, slowdown=3
        )
        both = ClusterProfile(compute_seconds=1.0, stragglers=(straggler, straggler))
        seconds = times_of(both, 1).compute_seconds(0, 0, 0.5)
        assert seconds == pytest.approx((1 * 3 + 0.5) * 3 + 0.5)


def network(server: float | None = 400.0, own: Sequence[float] = (), **fields: Any) -> Any:
    """Of a model of 100 bytes, on links of so many bytes a second."""
    return ClusterProfile(
        parameter_bytes=100,
        server_bandwidth_bytes_per_second=server,
        worker_bandwidths_bytes_per_second=tuple(own),
        **{"compute_seconds": 1.0, **fields},
    )


class TestTheServersLink:
    """A transfer takes 0.25 s alone."""

    def test_pulls_at_the_same_time_share_it(self) -> None:
        """All n have the parameters after n transfers; so it is with their gradients."""
        n = 4
        ends = [seconds for _, seconds in play("asp", network(), n, n)]
        assert ends == pytest.approx([n * 0.25 + 1 + n * 0.25] * n, abs=EXACT)

    @pytest.mark.parametrize("n", [1, 3, 8])
    def test_a_round_sends_n_models_each_way(self, n: int) -> None:
        end = end_seconds("bsp", network(barrier_seconds=0.5), n, 5 * n)
        assert end == pytest.approx(5 * (2 * n * 0.25 + 1 + 0.5), abs=EXACT)

    def test_pulls_and_pushes_do_not_share(self) -> None:
        """Worker 1, twice as fast, pushes and pulls while worker 0 computes and pushes.

        Both have pulled at 0.5 s. Worker 1 pushes from 1.0 to 1.25 s, pulls until 1.5 s, computes
        until 2.0 s; worker 0 pushes from 1.5 to 1.75 s, pulls until 2.0 s.
        """
        profile = network(relative_speeds=(1.0, 2.0))
        assert [seconds for _, seconds in play("asp", profile, 2, 3)] == pytest.approx(
            [1.25, 1.75, 2.25], abs=EXACT
        )

    @pytest.mark.parametrize(
        ("workers", "compute_seconds"), [(1, 1.0), (4, 1.0), (16, 2.0), (8, 0.5)]
    )
    def test_throughput_of_asp(self, workers: int, compute_seconds: float) -> None:
        expected = asp_throughput(workers, compute_seconds, 0.25)
        assert self.throughput(workers, compute_seconds) == pytest.approx(expected, rel=0.015)

    def test_at_its_limit_it_sets_the_pace_of_asp(self) -> None:
        """400 bytes a second are 4 steps a second, however many workers there are."""
        assert self.throughput(100, 1.0) == pytest.approx(4.0, rel=0.015)

    def throughput(self, workers: int, compute_seconds: float) -> float:
        """ASP's, without its first quarter and its end."""
        profile = network(compute_seconds=compute_seconds, compute_variation=0.5)
        done = play("asp", profile, workers, 8000)
        (first, since), (last, until) = done[2000], done[-workers]
        return (last - first) / (until - since)

    def test_updates_queue_behind_it(self) -> None:
        """Both gradients are there at 2.0 s; an update takes 0.5 s."""
        ends = [seconds for _, seconds in play("asp", network(apply_seconds=0.5), 2, 2)]
        assert ends == pytest.approx([2.5, 3.0], abs=EXACT)

    def test_without_a_size_it_is_four_bytes_for_each_value(self) -> None:
        profile = ClusterProfile(compute_seconds=1.0, server_bandwidth_bytes_per_second=400)
        assert end_seconds("asp", profile, 1, 1, values=25) == pytest.approx(1.5)
        assert end_seconds("asp", profile, 1, 1, values=0) == 1.0
        assert end_seconds("asp", EVEN, 1, 1, values=25) == 1.0

    @pytest.mark.parametrize("protocol", ["asp", "bsp", "ssp:2"])
    def test_more_equal_workers_make_no_step_faster(self, protocol: str) -> None:
        profile = network(600.0, [500.0], latency_seconds=0.01, apply_seconds=0.02)
        ends = [end_seconds(protocol, profile, n, 6 * n) for n in range(2, 12)]
        assert ends == sorted(ends)


class TestTheWorkersLinks:
    def test_slow_ones_do_not_fill_the_servers(self) -> None:
        """4 links of 50 bytes a second fit into 400: nobody waits for anybody."""
        end = end_seconds("bsp", network(own=[50.0]), 4, 4)
        assert end == pytest.approx(2.0 + 1 + 2.0, abs=EXACT)

    def test_each_has_its_own(self) -> None:
        """The slow one takes 2 + 1 + 2 seconds for a step, and is not in the fast one's way."""
        ends = [seconds for _, seconds in play("asp", network(own=[50.0, 350.0]), 2, 5)]
        fast = 1 + 2 * 100 / 350
        assert ends == pytest.approx([fast, 2 * fast, 3 * fast, 5.0, 4 * fast], abs=EXACT)

    def test_without_the_servers_they_limit_alone(self) -> None:
        end = end_seconds("asp", network(None, [50.0]), 3, 3)
        assert end == pytest.approx(2.0 + 1 + 2.0, abs=EXACT)


class TestLatency:
    def test_each_message_has_its_own_and_a_round_its_barrier(self) -> None:
        profile = ClusterProfile(compute_seconds=1.0, latency_seconds=0.125, barrier_seconds=0.5)
        # The worker asks, the parameters come, the gradient goes.
        assert end_seconds("bsp", profile, 4, 8) == pytest.approx(2 * 1.875, abs=EXACT)
        assert end_seconds("asp", profile, 4, 8) == pytest.approx(2 * 1.375, abs=EXACT)

    @pytest.mark.parametrize(("own", "transfer"), [((), 0.25), ((200.0,), 0.5), ((800.0,), 0.25)])
    def test_a_lone_transfer_takes_it_and_the_time_on_the_slower_link(
        self, own: tuple[float, ...], transfer: float
    ) -> None:
        profile = network(own=own, latency_seconds=0.125)
        end = end_seconds("asp", profile, 1, 1)
        assert end == pytest.approx(3 * 0.125 + 2 * transfer + 1, abs=EXACT)


class TestUpdates:
    def test_what_the_server_does_with_a_push_queues(self) -> None:
        profile = ClusterProfile(compute_seconds=1.0, apply_seconds=0.5)
        assert [seconds for _, seconds in play("asp", profile, 4, 4)] == pytest.approx(
            [1.5, 2.0, 2.5, 3.0], abs=EXACT
        )

    def test_a_round_is_one_and_each_push_of_asp_is_one(self) -> None:
        profile = ClusterProfile(compute_seconds=1.0, apply_seconds=0.25)
        assert end_seconds("bsp", profile, 4, 8) == pytest.approx(2 * 1.25, abs=EXACT)
        assert end_seconds("asp", profile, 4, 4) == pytest.approx(1.0 + 4 * 0.25, abs=EXACT)


class TestReplicas:
    """Links of 400 bytes a second carry the model in 0.25 s; a message takes 0.125 s."""

    PROFILE = network(1.0, [400.0], latency_seconds=0.125)
    MESSAGES = 6 * 0.125

    @pytest.mark.parametrize(
        ("protocol", "workers", "members"),
        [("ds-sync:2", 4, 2), ("ds-sync:2", 16, 2), ("ds-sync:4", 4, 4), ("local-sgd:1", 5, 5)],
    )
    def test_members_average_among_themselves(
        self, protocol: str, workers: int, members: int
    ) -> None:
        """A ring's bytes in three exchanges of messages; all groups at once, without the server."""
        end = end_seconds(protocol, self.PROFILE, workers, 3 * workers)
        mean = 2 * (members - 1) / members * 0.25 + self.MESSAGES
        assert end == pytest.approx(3 * (1.0 + mean), abs=EXACT)

    def test_local_steps_cost_no_network(self) -> None:
        end = end_seconds("local-sgd:5", self.PROFILE, 4, 40)
        mean = 2 * 3 / 4 * 0.25 + self.MESSAGES
        assert end == pytest.approx(10 * 1.0 + 2 * mean, abs=EXACT)

    def test_the_slowest_link_of_a_group_is_that_of_its_mean(self) -> None:
        """In the first round 0 and 1, 2 and 3 are groups; in the second 0 and 2, 1 and 3."""
        profile = network(own=[400.0, 400.0, 100.0, 100.0])
        fast, slow = 1.0 + 0.25, 1.0 + 1.0
        first = [seconds for _, seconds in play("ds-sync:2", profile, 4, 4)]
        assert first[1:] == pytest.approx([fast, fast, slow], abs=EXACT)
        assert end_seconds("ds-sync:2", profile, 4, 8) == pytest.approx(2 * slow, abs=EXACT)

    def test_one_alone_has_nothing_to_average(self) -> None:
        assert end_seconds("local-sgd:1", self.PROFILE, 1, 3) == pytest.approx(3.0, abs=EXACT)


class TestVariation:
    def test_has_the_mean_and_the_deviation_of_the_profile(self) -> None:
        steps = 20_000
        times = times_of(VARIED, steps)
        seconds = [times.compute_seconds(0, step, 0.0) for step in range(steps)]
        mean = math.fsum(seconds) / steps
        deviation = math.sqrt(math.fsum((one - mean) ** 2 for one in seconds) / steps)
        assert mean == pytest.approx(0.05, rel=0.02)
        assert deviation / mean == pytest.approx(0.3, rel=0.05)

    def test_belongs_to_the_step_and_the_seed_alone(self) -> None:
        def seconds(seed: int, steps: int = 50) -> list[float]:
            times = times_of(VARIED, steps, seed=seed)
            return [times.compute_seconds(0, step, 0.0) for step in range(50)]

        assert seconds(1) == seconds(1)
        assert seconds(1) != seconds(2)

    def test_a_longer_job_begins_like_a_short_one(self) -> None:
        short, long = (times_of(VARIED, steps) for steps in (50, 5000))
        for step in range(50):
            assert short.compute_seconds(0, step, 0.0) == long.compute_seconds(0, step, 0.0)
