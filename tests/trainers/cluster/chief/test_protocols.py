"""Every protocol on the TensorFlow cluster: its steps, its limits, and its numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.records.job import RunConditions
from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.layout import ModelState
from syncswitch.trainers.model.tester import ModelTester
from syncswitch.trainers.protocols import Exchange, choose_protocol
from tests.trainers.final import final_state, train_to_end
from tests.trainers.jobs import (
    BRIEF,
    CONSTANT,
    CONSTANT_GRADIENT,
    DENSE,
    BusyGate,
    constant_data,
    momentum_answer,
    normalized_model,
    own_momentum_answer,
    spec_of,
)
from tests.trainers.reference import (
    assert_close,
    plain_bsp,
    plain_local_sgd,
    plain_own_momentum,
    plain_selsync,
)

MakeTrainer = Callable[[Workload, int], ClusterTrainer]

PROTOCOLS = (
    *("ssp:1", "dssp:1-3", "ds-sync:2", "qsr:2:0.1:kept"),
    *(
        "selsync:0.3",
        "local-sgd:3",
        "local-sgd:2:semi-sync",
        "qsr:4:0.1:semi-sync:growing",
        "gba:3",
    ),
)
# Each before the switch and after it.
PAIRS = list(zip(PROTOCOLS, (*PROTOCOLS[1:], PROTOCOLS[0]), strict=True))
REPLICATED = {one for one in PROTOCOLS if choose_protocol(one).exchange is Exchange.REPLICA}

# 12 rounds of 4 at the first rate, 10 at the next.
ROUNDS = replace(
    DENSE,
    name="rounds",
    model=normalized_model,
    total_worker_steps=88,
    learning_rate_boundaries=((48, 0.1),),
)
PLAIN_SGD = replace(ROUNDS, name="plain sgd", momentum=0.0)
# After k worker-steps by anybody the parameters, or the mean of replicas, are 1 - k * eta * g.
STRAIGHT = replace(CONSTANT, name="straight", momentum=0.0, evaluation_interval_worker_steps=20)


def train(make_trainer: MakeTrainer, folder: Path, workload: Workload, protocol: str) -> ModelState:
    """Trains the whole job with one protocol on 4 workers."""
    spec = spec_of(workload, 4, 0.0, protocols=("bsp", protocol))
    return final_state(make_trainer(workload, 4), spec, folder)


@pytest.mark.parametrize("pair", PAIRS, ids=",".join)
def test_before_and_after_the_switch_all_steps_are_done_and_it_learns(
    make_trainer: MakeTrainer, pair: tuple[str, str]
) -> None:
    record = make_trainer(BRIEF, 4).train(spec_of(BRIEF, 4, 50.0, protocols=pair))
    assert [phase.protocol for phase in record.phases] == list(pair)
    assert record.phases[0].end_worker_step == record.phases[1].start_worker_step
    assert record.worker_steps == record.phases[1].end_worker_step == BRIEF.total_worker_steps
    # Chance is a tenth; how stale gradients are, and so how good so brief a training is, depends on
    # what else the machine does.
    assert record.final_accuracy > 0.5
    for phase in record.phases:
        assert (phase.mean_staleness is None) == (phase.protocol in REPLICATED)


class TestTheSameNumbers:
    def test_full_averaging_of_plain_sgd_is_bsp(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        expected = plain_bsp(PLAIN_SGD, 4, seed=1)
        for protocol in ("ds-sync:4", "local-sgd:1:kept", "selsync:0"):
            state = train(make_trainer, tmp_path, PLAIN_SGD, protocol)
            assert_close(state, expected)
            assert state.updates == 22

    def test_local_sgd_has_a_momentum_on_each_worker(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        state = train(make_trainer, tmp_path, ROUNDS, "local-sgd:1:kept")
        assert_close(state, plain_local_sgd(ROUNDS, 4, 1, seed=1))

    @pytest.mark.parametrize(
        ("protocol", "after"),
        [
            *(("local-sgd:1", after) for after in ("averaged", "zeroed", "nesterov")),
            ("qsr:1:1e-6", "nesterov"),
            ("selsync:0", "averaged"),
        ],
    )
    def test_after_an_average_momenta_are_what_they_are_to_be(
        self, make_trainer: MakeTrainer, tmp_path: Path, protocol: str, after: str
    ) -> None:
        state = train(make_trainer, tmp_path, ROUNDS, f"{protocol}:{after}")
        expected = plain_local_sgd(ROUNDS, 4, 1, seed=1, after=after)
        np.testing.assert_allclose(state.parameters, expected.parameters, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(state.slots, expected.slots, rtol=1e-3, atol=1e-5)
        assert state.updates == (0 if after == "zeroed" else 22)

    @pytest.mark.parametrize("delta", [0.02, 1e6])
    def test_selsync_averages_when_a_gradient_changes(
        self, make_trainer: MakeTrainer, tmp_path: Path, delta: float
    ) -> None:
        longer = replace(ROUNDS, total_worker_steps=160)
        state = train(make_trainer, tmp_path, longer, f"selsync:{delta}")
        assert_close(state, plain_selsync(longer, 4, delta, seed=1))

    @pytest.mark.parametrize(
        ("protocol", "rates"),
        [
            ("bsp", [0.04] * 50),
            ("asp", [0.01] * 200),
            ("ssp:2", [0.01] * 200),
            ("dssp:1-4", [0.01] * 200),
            ("ds-sync:2", [0.04] * 50),
            ("local-sgd:5:kept", [0.04] * 50),
            ("gba:200", [0.04] * 50),
        ],
    )
    def test_a_constant_gradient_has_the_known_answer(
        self, make_trainer: MakeTrainer, tmp_path: Path, protocol: str, rates: list[float]
    ) -> None:
        """With 4 workers: pushes of eta, or updates of 4 eta, on the shared ones or on replicas."""
        shared = replace(CONSTANT, momentum_after_switch="same")
        state = train(make_trainer, tmp_path, shared, protocol)
        parameters, accumulator = momentum_answer(rates, 0.9)
        np.testing.assert_allclose(state.parameters, parameters, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(state.slots, accumulator, rtol=1e-5)
        assert state.updates == len(rates)


class TestOwnMomentum:
    def test_workers_that_take_turns_have_the_known_answer(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        """Nobody is ahead, so that each pushes as often; who is first makes no difference."""
        spec = spec_of(CONSTANT, 4, 50.0, protocols=("bsp", "ssp:0"))
        state = final_state(make_trainer(CONSTANT, 4), spec, tmp_path)
        parameters, accumulator = own_momentum_answer([0.01] * 100, 4, [0.04] * 25)
        np.testing.assert_allclose(state.parameters, parameters, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(state.slots, accumulator, rtol=1e-5)
        assert state.updates == 125

    def test_one_worker_looks_ahead_as_in_a_plain_loop(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        state = final_state(make_trainer(ROUNDS, 1), spec_of(ROUNDS, 1, 0.0), tmp_path)
        assert_close(state, plain_own_momentum(ROUNDS, 1, seed=1))


class TestLimits:
    @pytest.mark.parametrize(("protocol", "lead"), [("ssp:0", 0), ("ssp:2", 2), ("dssp:1-3", 3)])
    def test_staleness_keeps_to_the_limit_while_a_worker_is_held(
        self, make_trainer: MakeTrainer, protocol: str, lead: int
    ) -> None:
        """Meanwhile, ASP would end the job."""
        held = RunConditions(injections=("straggler:worker=1,at=30%,for=5%,delay=500ms",))
        spec = spec_of(CONSTANT, 4, 0.0, protocols=("bsp", protocol), conditions=held)
        record = make_trainer(CONSTANT, 4).train(spec)
        (phase,) = record.phases
        assert phase.max_staleness is not None
        assert phase.max_staleness <= 3 * (2 * lead + 1)
        assert record.worker_steps == 200

    def test_nobody_waits_for_a_worker_that_is_held_and_its_old_gradient_has_no_weight(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        """Meanwhile the others fill buffers without it."""
        held = BusyGate(60, batches=100)
        data = replace(constant_data(), transform=held.transform)
        workload = replace(CONSTANT, momentum=0.0, data=lambda: data)
        spec = spec_of(workload, 4, 0.0, protocols=("bsp", "gba:20"))
        record, state = train_to_end(make_trainer(workload, 4), spec, tmp_path)
        assert not held.timed_out
        (phase,) = record.phases
        assert phase.max_staleness is not None
        assert phase.max_staleness > 20
        assert record.worker_steps == 200
        assert state.updates == 50
        # On a busy machine others may be held as well.
        counted = (1 - state.parameters) / (workload.learning_rate * CONSTANT_GRADIENT)
        np.testing.assert_allclose(counted, round(counted[0]), rtol=1e-3)
        assert 150 < counted[0] < 199.5

    @pytest.mark.parametrize("held_step", [2, 60, 77])
    def test_averages_do_not_wait_for_a_worker_that_does_not_come(
        self, make_trainer: MakeTrainer, tmp_path: Path, held_step: int
    ) -> None:
        """Its step still counts: an average without it leaves the mean of all replicas as it is."""
        held = BusyGate(held_step, batches=100)
        data = replace(constant_data(), transform=held.transform)
        workload = replace(CONSTANT, momentum=0.0, data=lambda: data)
        spec = spec_of(workload, 4, 0.0, protocols=("bsp", "local-sgd:4:semi-sync"))
        record, state = train_to_end(make_trainer(workload, 4), spec, tmp_path)
        assert not held.timed_out
        assert record.worker_steps == 200
        counted = (1 - state.parameters) / (workload.learning_rate * CONSTANT_GRADIENT)
        np.testing.assert_allclose(counted, 200, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("protocol", ["local-sgd:1000", "ds-sync:2"])
def test_evaluations_are_of_the_mean_of_replicas(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """Even if replicas were never averaged; some may be a step ahead."""
    trainer = make_trainer(STRAIGHT, 4)
    tested = []
    accuracy = ModelTester.accuracy

    def watched(tester: ModelTester, parameters: Any, statistics: Any) -> float:
        tested.append(np.asarray(parameters))
        return accuracy(tester, parameters, statistics)

    monkeypatch.setattr(ModelTester, "accuracy", watched)
    record = trainer.train(spec_of(STRAIGHT, 4, 100.0, protocols=(protocol, "asp")))
    assert len(tested) == len(record.evaluations) >= 10
    for parameters, evaluation in zip(tested, record.evaluations, strict=True):
        steps = (1 - parameters) / (0.01 * CONSTANT_GRADIENT)
        np.testing.assert_allclose(steps, steps[0], rtol=1e-3)
        ahead = steps[0] - evaluation.worker_step
        assert -0.1 < ahead < 3.1
    assert steps[0] == pytest.approx(200, rel=1e-4)
