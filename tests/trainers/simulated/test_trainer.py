"""Training on a virtual clock: the contract, its times, and the same numbers as everywhere else."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import TrialRecord
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.schedule import checkpoint_path
from syncswitch.trainers.job.workload import Batch
from syncswitch.trainers.model.layout import ModelState
from syncswitch.trainers.model.state import read_checkpoint
from syncswitch.trainers.simulated.profile import ClusterProfile, Straggler
from syncswitch.trainers.simulated.trainer import (
    SimulatedTrainer,
    gradients_at_once,
    simulated_identity,
)
from tests.failing import fails
from tests.records import changed
from tests.trainers import jobs
from tests.trainers.batch_contract import COUNTING, BatchContract
from tests.trainers.final import assert_bitwise_equal, final_state, train_to_end
from tests.trainers.jobs import (
    BRIEF,
    CONSTANT,
    CONSTANT_GRADIENT,
    DENSE,
    RecordingObserver,
    momentum_answer,
    normalized_model,
    own_momentum_answer,
    phases_answer,
)
from tests.trainers.reference import (
    assert_close,
    plain_bsp,
    plain_local_sgd,
    plain_own_momentum,
    plain_stale,
)
from tests.trainers.simulated.clusters import EVEN, PROTOCOLS_OF_FOUR, VARIED, spec_of
from tests.trainers.simulated.test_executor import subclassed
from tests.trainers.trainer_contract import NOT_YET_HOPELESS, ForkContract
from tests.warm_program import run_code

MakeTrainer = Callable[..., SimulatedTrainer]
EndOf = Callable[..., ModelState]

# 22 rounds of 4, and one of 2.
SHORT = replace(
    DENSE,
    model=normalized_model,
    total_worker_steps=90,
    learning_rate_boundaries=((50, 0.1),),
    evaluation_interval_worker_steps=7,
)
EQUAL = ClusterProfile(compute_seconds=1.0, latency_seconds=0.001)
SLOW_LINK = ClusterProfile(
    compute_seconds=1.0, worker_bandwidths_bytes_per_second=(1000.0,), switch_seconds=0
)
STRAGGLER = ClusterProfile(
    compute_seconds=1.0,
    stragglers=(Straggler(worker=2, start_seconds=10, duration_seconds=2, delay_seconds=0.5),),
    switch_seconds=7.0,
)
# Each once before the switch, and once after it.
PAIRS = list(zip(PROTOCOLS_OF_FOUR, (*PROTOCOLS_OF_FOUR[1:], PROTOCOLS_OF_FOUR[0]), strict=True))


class TestSimulatedTrainer(ForkContract):
    virtual_time: ClassVar[bool] = True

    spec_of = staticmethod(spec_of)


def measured(record: TrialRecord) -> tuple[Any, ...]:
    """The parts of a record that do not depend on the wall clock."""
    return (
        record.evaluations,
        record.phases,
        record.worker_steps,
        record.training_seconds,
        record.switch_overhead_seconds,
    )


@pytest.mark.parametrize(("percent", "is_told"), [(100.0, True), (50.0, False)])
def test_a_job_that_learns_next_to_nothing_is_no_secret(
    make_trainer: MakeTrainer, caplog: pytest.LogCaptureFixture, percent: float, is_told: bool
) -> None:
    spec = spec_of(NOT_YET_HOPELESS, 4, percent)
    make_trainer(NOT_YET_HOPELESS, 4).train(spec)
    assert any("BSP alone reached an accuracy of 0." in line for line in caplog.messages) == is_told


@pytest.mark.parametrize("pair", [*PAIRS, ("bsp", "local-sgd:8:semi-sync:growing")], ids=",".join)
def test_a_run_measures_the_same_again_and_its_forks_end_bitwise_where_it_does(
    make_trainer: MakeTrainer, tmp_path: Path, pair: tuple[str, str]
) -> None:
    """Forks from before and after the switch, which is at 50 percent."""
    trainer = make_trainer(SHORT, 4)
    spec = spec_of(
        SHORT,
        4,
        50.0,
        protocols=pair,
        checkpoint_percents=(20.0, 80.0, 100.0),
        checkpoint_directory=tmp_path,
    )
    whole, end = train_to_end(trainer, spec, tmp_path)
    assert [phase.protocol for phase in whole.phases] == list(pair)
    assert abs(whole.phases[0].end_worker_step - 45) <= 3
    assert measured(trainer.train(spec)) == measured(whole)
    for percent, later in ((20.0, (80.0, 100.0)), (80.0, (100.0,))):
        fork_spec = replace(
            spec,
            fork_from=whole.checkpoints[percent],
            checkpoint_percents=later,
            checkpoint_directory=tmp_path / str(percent),
        )
        fork, found = train_to_end(trainer, fork_spec, tmp_path)
        assert_bitwise_equal(found, end)
        assert fork.training_seconds == whole.training_seconds
        start = fork.phases[0].start_worker_step
        assert [(e.worker_step, e.elapsed_seconds, e.accuracy) for e in fork.evaluations] == [
            (e.worker_step, e.elapsed_seconds, e.accuracy)
            for e in whole.evaluations
            if e.worker_step > start
        ]


@pytest.mark.slow
def test_another_process_measures_the_same(make_trainer: MakeTrainer) -> None:
    code = """
        from tests.trainers.jobs import BRIEF
        from tests.trainers.simulated.clusters import VARIED, spec_of
        from tests.trainers.simulated.test_trainer import measured
        from syncswitch.trainers.simulated import trainer
        trainer._MOST_AT_ONCE = 1
        spec = spec_of(BRIEF, 4, 30.0, protocols=("dssp:1-3", "asp"))
        print(measured(trainer.SimulatedTrainer(BRIEF, 4, VARIED).train(spec)))
    """
    spec = spec_of(BRIEF, 4, 30.0, protocols=("dssp:1-3", "asp"))
    record = make_trainer(BRIEF, 4).train(spec)
    result = run_code(textwrap.dedent(code), folder=Path(__file__).parents[3])
    assert result.stdout.strip() == str(measured(record)), result.stderr


class TestTheSameNumbers:
    """As plain loops and as the TensorFlow cluster."""

    @pytest.mark.parametrize(
        ("protocol", "workers", "profile", "updates", "plain"),
        [
            ("bsp", 4, VARIED, 23, partial(plain_bsp, workers=4)),
            # Each worker has its own momentum, and the last period is cut short.
            ("local-sgd:5:kept", 4, EQUAL, 23, partial(plain_local_sgd, workers=4, period_steps=5)),
            # Equal workers make as many steps each.
            *(
                (
                    f"{text}:kept:semi-sync",
                    4,
                    EQUAL,
                    23,
                    partial(plain_local_sgd, workers=4, period_steps=5),
                )
                for text in ("local-sgd:5", "qsr:5:1e-4")
            ),
            ("selsync:0", 4, EQUAL, 23, partial(plain_local_sgd, workers=4, period_steps=1)),
            ("qsr:5:1e-4:kept", 4, EQUAL, 23, partial(plain_local_sgd, workers=4, period_steps=5)),
            # All push at once, and pull when the update is made; also the last one, which is short.
            ("gba:0", 4, EQUAL, 23, partial(plain_bsp, workers=4)),
            # Without latency, the first of two equal workers begins just before their update.
            ("gba:0", 2, EVEN, 45, partial(plain_stale, at_once=2)),
            # Two equal workers take turns: each gradient is of the parameters one update before.
            ("asp", 2, EVEN, 90, plain_stale),
        ],
    )
    def test_a_protocol_is_a_plain_loop(
        self,
        end_of: EndOf,
        protocol: str,
        workers: int,
        profile: ClusterProfile,
        updates: int,
        plain: Callable[..., Any],
    ) -> None:
        pair = (protocol, "local-sgd:1")
        found = end_of(SHORT, workers, profile=profile, protocols=pair, seed=3)
        assert found.updates == updates
        assert_close(found, plain(SHORT, seed=3))

    @pytest.mark.parametrize("after", ["kept", "averaged", "zeroed", "nesterov"])
    def test_what_becomes_of_momenta_is_as_in_a_plain_loop(self, end_of: EndOf, after: str) -> None:
        pair = (f"local-sgd:5:{after}", "bsp")
        found = end_of(SHORT, 4, profile=EQUAL, protocols=pair, seed=3)
        assert found.updates == (3 if after == "zeroed" else 23)
        assert_close(found, plain_local_sgd(SHORT, 4, 5, seed=3, after=after))

    @pytest.mark.parametrize("text", ["local-sgd:4", "local-sgd:3:zeroed", "qsr:2:0.02:kept"])
    def test_the_period_of_equal_workers_is_that_of_each(self, end_of: EndOf, text: str) -> None:
        found = end_of(SHORT, 4, 30.0, profile=EQUAL, protocols=("bsp", f"{text}:semi-sync"))
        assert_bitwise_equal(found, end_of(SHORT, 4, 30.0, profile=EQUAL, protocols=("bsp", text)))

    @pytest.mark.parametrize("speed", [0.25, 0.01])
    def test_each_gradient_counts_alike_in_a_pooled_period(
        self, make_trainer: MakeTrainer, tmp_path: Path, speed: float
    ) -> None:
        """Though the others make more of them, and hardly wait for the slow worker."""
        profile = ClusterProfile(compute_seconds=1.0, relative_speeds=(1.0, 1.0, 1.0, speed))
        workload = replace(CONSTANT, momentum=0.0)
        pair = ("bsp", "local-sgd:4:semi-sync")
        spec = spec_of(workload, 4, 0.0, profile=profile, protocols=pair)
        record, found = train_to_end(make_trainer(workload, 4, profile), spec, tmp_path)
        expected = 1 - 200 * 0.01 * CONSTANT_GRADIENT
        np.testing.assert_allclose(found.parameters, expected, rtol=1e-4, atol=1e-5)
        # All together do 3 steps a second, and the slow one its own; its last ends the job.
        assert record.training_seconds <= max(1.2 * 200 / (3 + speed), 1 / speed)

    @pytest.mark.parametrize(("iota", "steps"), [(2, 15), (3, 16)])
    def test_of_a_slow_worker_gba_counts_what_is_not_too_old(
        self, end_of: EndOf, iota: int, steps: int
    ) -> None:
        """At 5.5 s three others have filled 3 buffers, and as many while it does each next step."""
        slow = ClusterProfile(compute_seconds=1.0, relative_speeds=(1.0, 1.0, 1.0, 1 / 5.5))
        workload = replace(CONSTANT, momentum=0.0, total_worker_steps=16)
        found = end_of(workload, 4, profile=slow, protocols=(f"gba:{iota}", "asp"))
        assert found.updates == 4
        expected = 1 - steps * 0.01 * CONSTANT_GRADIENT
        np.testing.assert_allclose(found.parameters, expected, rtol=1e-5)

    @pytest.mark.parametrize("protocol", ["bsp", "ds-sync:2", "local-sgd:1"])
    def test_a_subclassed_model_and_a_keras_optimizer_move_as_on_the_cluster(
        self, keras: Any, end_of: EndOf, cluster_of: Any, tmp_path: Path, protocol: str
    ) -> None:
        workload = replace(
            SHORT,
            model=lambda: subclassed(keras),
            optimizer=lambda: keras.optimizers.Adam(),
            learning_rate=0.002,
        )
        found = end_of(workload, 2, protocols=(protocol, "asp"))
        spec = jobs.spec_of(workload, 2, 100.0, protocols=(protocol, "asp"))
        real = final_state(cluster_of(workload, 2), spec, tmp_path / "real")
        assert found.updates == real.updates
        assert_close(found, real, 1e-4)

    @pytest.mark.parametrize(
        "protocol", ["asp", "ssp:2", "ds-sync:2", "local-sgd:5:kept", "gba:50"]
    )
    def test_a_constant_gradient_has_the_known_answer(self, end_of: EndOf, protocol: str) -> None:
        """After rounds of 4: 100 updates of eta, or 25 of 4 eta, shared or on each replica."""
        shared = replace(CONSTANT, momentum_after_switch="same")
        found = end_of(shared, 4, 50.0, protocols=("bsp", protocol))
        is_shared = protocol in ("asp", "ssp:2")
        later = [0.01] * 100 if is_shared else [0.04] * 25
        parameters, accumulator = momentum_answer([0.04] * 25 + later, 0.9)
        np.testing.assert_allclose(found.parameters, parameters, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found.slots, accumulator, rtol=1e-5)
        assert found.updates == 25 + len(later)


class TestOwnMomentum:
    @pytest.mark.parametrize("protocol", ["asp", "ssp:2", "dssp:1-3"])
    def test_a_constant_gradient_has_the_known_answer(self, end_of: EndOf, protocol: str) -> None:
        """What all gradients have in common has no bound."""
        found = end_of(CONSTANT, 4, 50.0, profile=EVEN, protocols=("bsp", protocol))
        parameters, accumulator = own_momentum_answer([0.01] * 100, 4, [0.04] * 25)
        np.testing.assert_allclose(found.parameters, parameters, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found.slots, accumulator, rtol=1e-5)
        assert found.updates == 125

    @pytest.mark.parametrize("workers", [1, 2, 4])
    def test_workers_that_take_turns_move_as_in_a_plain_loop(
        self, end_of: EndOf, workers: int
    ) -> None:
        found = end_of(SHORT, workers, 0.0, profile=EVEN)
        assert_close(found, plain_own_momentum(SHORT, workers, seed=1))

    def test_protocols_without_single_pushes_know_no_own_momentum(self, end_of: EndOf) -> None:
        found = end_of(SHORT, 4, 50.0, protocols=("bsp", "gba:2"))
        shared = replace(SHORT, momentum_after_switch="same")
        assert_bitwise_equal(found, end_of(shared, 4, 50.0, protocols=("bsp", "gba:2")))


class TestTheRecord:
    def test_times_are_those_of_the_virtual_clock(self, make_trainer: MakeTrainer) -> None:
        """Rounds of 1 s, two of them with a straggler, a switch, then pushes at 4 a second."""
        spec = spec_of(CONSTANT, 4, 50.0, profile=STRAGGLER)
        record = make_trainer(CONSTANT, 4, STRAGGLER).train(spec)
        assert [phase.seconds for phase in record.phases] == pytest.approx([26.0, 32.0], abs=1e-9)
        assert record.training_seconds == pytest.approx(58.0, abs=1e-9)
        assert record.switch_overhead_seconds == 7.0
        (switched,) = record.events
        assert (switched.kind, switched.worker_step) == ("switched", 100)
        assert (switched.elapsed_seconds, switched.seconds) == (pytest.approx(26.0), 7.0)

    def test_what_is_sent_are_the_parameters_and_the_statistics(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        """Each step of one worker pulls them and pushes as much, at 1000 bytes a second."""
        spec = spec_of(SHORT, 1, 0.0, profile=SLOW_LINK)
        record, state = train_to_end(make_trainer(SHORT, 1, SLOW_LINK), spec, tmp_path)
        values = len(state.parameters) + len(state.statistics)
        assert len(state.statistics) > 0
        seconds = SHORT.total_worker_steps * (1 + 2 * 4 * values / 1000)
        assert record.training_seconds == pytest.approx(seconds)


def test_gradients_are_joined_where_job_and_cluster_are_large() -> None:
    sizes = [(64, 32), (1024, 32), (8, 32), (17, 32), (50, 32), (64, 128), (64, 1024), (1, 32)]
    assert [gradients_at_once(512, *one) for one in sizes] == [16, 16, 8, 9, 13, 8, 1, 1]
    assert gradients_at_once(511, 64, 32) == 1


class TestLargeClusters:
    def test_rounds_that_share_calls_end_bitwise_where_a_fork_does(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        """12 workers, one killed for a while; the checkpoint and the end cut a round short."""
        workload = replace(BRIEF, total_worker_steps=512)
        spec = spec_of(
            workload,
            12,
            100.0,
            conditions=RunConditions(injections=("kill:worker=3,at=60%,for=1s",)),
            checkpoint_percents=(37.0, 100.0),
            checkpoint_directory=tmp_path,
        )
        trainer = make_trainer(workload, 12, is_batched=True)
        whole, end = train_to_end(trainer, spec, tmp_path)
        fork = replace(spec, fork_from=whole.checkpoints[37.0], checkpoint_percents=(100.0,))
        record, found = train_to_end(trainer, fork, tmp_path / "fork")
        assert_bitwise_equal(found, end)
        assert record.training_seconds == whole.training_seconds
        single = train_to_end(make_trainer(workload, 12), spec, tmp_path / "single")[1]
        assert_close(end, single, 1e-3)
        assert not np.array_equal(end.parameters, single.parameters)

    def test_too_many_for_the_memory_are_refused_in_one_line(self) -> None:
        with fails("cluster-unusable"):
            SimulatedTrainer(CONSTANT, 10**12, EVEN)


def test_protocols_that_are_not_for_so_many_workers_are_refused(make_trainer: MakeTrainer) -> None:
    with fails("parameter-invalid", r"workers is 4: .* cannot be used"):
        make_trainer(BRIEF, 4).train(spec_of(BRIEF, 4, 50.0, protocols=("bsp", "ds-sync:3")))


def test_the_identity_tells_the_clusters_apart() -> None:
    real = workload_identity(BRIEF, 4, "bsp", "asp")
    prints = {real.fingerprint}
    for profile in (EVEN, VARIED, VARIED.model_copy(update={"description": "other words"})):
        identity = simulated_identity(BRIEF, 4, ("bsp", "asp"), profile)
        assert changed(identity, simulated_cluster=None) == real
        prints.add(identity.fingerprint)
    assert len(prints) == 3


class Killed(BaseException):
    """Raised instead of killing the test's own process."""


def killing(worker_step: int) -> RecordingObserver:
    def kill(done: int) -> None:
        if done > worker_step:
            raise Killed

    return RecordingObserver(at_progress=kill)


def known(record: TrialRecord) -> tuple[Any, ...]:
    """All but the loss since the test before, which a checkpoint between tests cuts."""
    tests = [(e.worker_step, e.elapsed_seconds, e.accuracy) for e in record.evaluations]
    return (tests, *measured(record)[1:], record.inherited_seconds, sorted(record.checkpoints))


@pytest.mark.parametrize("last", [None, 40.0, 80.0])
def test_a_run_that_was_killed_ends_bitwise_as_if_nothing_had_happened(
    make_trainer: MakeTrainer, tmp_path: Path, last: float | None
) -> None:
    """Before its first checkpoint it starts afresh; two of four are behind the switch."""
    trainer, percents = make_trainer(SHORT, 4), (20.0, 40.0, 80.0, 100.0)
    spec = spec_of(
        SHORT, 4, 50.0, checkpoint_percents=percents, checkpoint_directory=tmp_path / "whole"
    )
    whole, end = train_to_end(trainer, spec, tmp_path)
    killed = replace(spec, checkpoint_directory=tmp_path / "killed")
    reached = read_checkpoint(whole.checkpoints[last]).worker_step if last else 7
    with pytest.raises(Killed):
        trainer.train(killed, killing(reached))
    assert not checkpoint_path(killed, 100.0, ".npz").exists()
    record, found = train_to_end(trainer, replace(killed, resume=True), tmp_path)
    assert_bitwise_equal(found, end)
    assert known(record) == known(whole)
    resumed = [event for event in record.events if event.kind == "resumed"]
    assert [event.worker_step for event in resumed] == ([reached] if last else [])
    assert [event for event in record.events if event.kind != "resumed"] == list(whole.events)


def test_a_checkpoint_that_cannot_be_written_is_missed_alone(
    make_trainer: MakeTrainer, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    percents = (40.0, 100.0)
    spec = spec_of(SHORT, 4, 50.0, checkpoint_percents=percents, checkpoint_directory=blocked)
    trainer = make_trainer(SHORT, 4)
    record = trainer.train(spec)
    assert not record.checkpoints
    (unsaved,) = (event for event in record.events if event.kind == "unsaved")
    assert (unsaved.worker_step, "free some disk space" in unsaved.reason) == (36, True)
    whole = trainer.train(replace(spec, checkpoint_directory=tmp_path / "folder"))
    assert measured(whole) == measured(record)


class TestDisturbed:
    @pytest.mark.parametrize(("protocol", "momentum"), [("bsp", 0.9), ("local-sgd:1:kept", 0.0)])
    def test_a_round_of_fewer_has_their_rate(
        self, end_of: Callable[..., ModelState], protocol: str, momentum: float
    ) -> None:
        """Of 50 rounds of 1 s, ten from the 11th on have 3 gradients, which takes 2 more rounds.

        Who comes back has the replicas of the others; of the last round two do not take part.
        """
        workload, pair = replace(CONSTANT, momentum=momentum), (protocol, "asp")
        kill = RunConditions(injections=("kill:worker=2,at=10500ms,for=9s",))
        found = end_of(workload, 4, profile=EVEN, protocols=pair, conditions=kill)
        sizes = [4] * 10 + [3] * 10 + [4] * 32 + [2]
        assert sum(sizes) == 200
        parameters, _ = momentum_answer([0.01 * size for size in sizes], momentum)
        assert found.parameters == pytest.approx(parameters, rel=1e-4, abs=1e-5)
        assert found.updates == len(sizes)

    @pytest.mark.parametrize(("batch", "phases"), [("same", 4), ("global", 2)])
    def test_a_detour_has_the_second_protocols_momentum_and_batch(
        self, make_trainer: MakeTrainer, tmp_path: Path, batch: Batch, phases: int
    ) -> None:
        """One of 8 workers is slow before the switch: BSP has its share in two parts.

        Of gradients that are as large as rounds there are too few to see before the end that it is
        slow no more.
        """
        workload = replace(
            CONSTANT, total_worker_steps=800, momentum_after_switch="zero", batch_after_switch=batch
        )
        slow = RunConditions("greedy", injections=("straggler:worker=5,at=10%,for=30%,slowdown=3",))
        spec = spec_of(workload, 8, 60.0, profile=EVEN, conditions=slow)
        record, found = train_to_end(make_trainer(workload, 8, EVEN), spec, tmp_path)
        assert [phase.protocol for phase in record.phases] == ["bsp", "asp"] * (phases // 2)
        expected = phases_answer(workload, record)
        assert found.parameters == pytest.approx(expected, rel=1e-4)
        np.testing.assert_allclose(found.slots, CONSTANT_GRADIENT)
        sizes = {"bsp": 8, "asp": 8 if batch == "global" else 1}
        assert found.updates == sum(
            math.ceil((one.end_worker_step - one.start_worker_step) / sizes[one.protocol])
            for one in record.phases
        )


class TestBatchAfterTheSwitch(BatchContract):
    spec_of = staticmethod(spec_of)

    def test_a_gradient_takes_the_time_of_its_batches_and_of_one_exchange(
        self, make_trainer: MakeTrainer
    ) -> None:
        """5 rounds, then 15 gradients of 4 worker-steps on 4 workers."""
        profile = ClusterProfile(compute_seconds=1.0, latency_seconds=0.1, switch_seconds=0.0)
        spec = spec_of(COUNTING, 4, 25.0, profile=profile)
        first, second = make_trainer(COUNTING, 4, profile).train(spec).phases
        assert first.seconds == pytest.approx(5 * 1.3)
        assert second.seconds == pytest.approx(4 * (4 * 1.0 + 0.3))
        assert (second.max_staleness, second.protocol) == (3, "asp")
