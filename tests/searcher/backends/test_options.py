"""What the options of a trainer make of its name."""

from __future__ import annotations

import pytest

from syncswitch.searcher.backends.base import TrainerChoice
from syncswitch.searcher.backends.local import LocalTrainer
from syncswitch.searcher.backends.ray import RayCluster

RAY = RayCluster(cpus_per_worker=4, gpus_per_worker=0.5, parameter_servers=2)
LOCAL = LocalTrainer(launcher="processes", gpus_per_worker=0.5, parameter_servers=2)


@pytest.mark.parametrize(
    ("trainer", "kind"),
    [
        (RAY, "ray, 4 CPU, 0.5 GPU, 2 parameter servers"),
        (LOCAL, "local/processes, 2 parameter servers, 0.5 GPU"),
    ],
)
def test_the_name_of_a_kind_stays_as_databases_hold_it(trainer: TrainerChoice, kind: str) -> None:
    assert trainer.kind == kind
