"""One trainer after the other: what the first has compiled, the second need not compile again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from syncswitch.storage.records.trial import Evaluation, TrialRecord
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.model.kept import computation, kept_for_the_next
from syncswitch.trainers.simulated.trainer import SimulatedTrainer
from syncswitch.trainers.trainer import Observer, Verdict
from tests.trainers.jobs import BRIEF, dense_model, digits_data
from tests.trainers.simulated.clusters import VARIED, spec_of


@pytest.fixture
def loads() -> list[int]:
    """Has an entry for each time that the data are loaded: each time that a model is compiled."""
    return []


@pytest.fixture
def first(loads: list[int]) -> Workload:
    def load() -> Any:
        loads.append(1)
        return digits_data()

    return replace(BRIEF, data=load, total_worker_steps=40, learning_rate_boundaries=((20, 0.1),))


def trained(workload: Workload, observer: Any = None) -> TrialRecord:
    with SimulatedTrainer(workload, 2, VARIED) as trainer:
        record = trainer.train(spec_of(workload, 2, 50.0), observer)
        trainer.close()
    return record


def test_other_hyper_parameters_need_no_other_model(loads: list[int], first: Workload) -> None:
    second = replace(
        first,
        learning_rate=0.02,
        learning_rate_boundaries=((10, 0.5),),
        total_worker_steps=30,
        evaluation_interval_worker_steps=10,
        momentum=0.9,
        momentum_after_switch="zero",
        batch_after_switch="global",
    )
    with kept_for_the_next():
        with kept_for_the_next():
            trained(first)
        found = trained(second)
        assert len(loads) == 1
        trained(replace(second, batch_size=8))
        assert len(loads) == 2
    assert found.evaluations == trained(second).evaluations
    assert len(loads) == 3


def test_another_computation_is_compiled() -> None:
    one = computation(BRIEF, 2)
    assert one == computation(replace(BRIEF, learning_rate=0.2), 2)
    assert one != computation(BRIEF, 4)
    for field, value in {
        "model": lambda: dense_model(),
        "batch_size": 8,
        "loss": "mse",
        "metric": "loss",
        "least_embedding_values": 1,
        "class_weight": {1: 2.0},
        "further_metrics": ("loss",),
    }.items():
        assert one != computation(replace(BRIEF, **{field: value}), 2), field


def test_a_run_that_was_interrupted_leaves_nothing(loads: list[int], first: Workload) -> None:
    class Interrupting(Observer):
        def on_evaluation(self, evaluation: Evaluation) -> Verdict:
            raise KeyboardInterrupt

    with kept_for_the_next():
        with pytest.raises(KeyboardInterrupt):
            trained(first, Interrupting())
        trained(first)
    assert len(loads) == 2
