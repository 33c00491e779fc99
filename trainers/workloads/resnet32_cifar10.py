"""ResNet-32 on CIFAR-10: setups 1 (8 workers) and 3 (16 workers) of the Sync-Switch paper.

The test comes every 2,000 worker-steps, as in the authors' logs: 8 tests follow the last decay, 5
of which make the converged accuracy.
"""

from __future__ import annotations

from typing import Any

from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.workloads.cifar import CIFAR_10
from syncswitch.trainers.workloads.pictures import load_pictures
from syncswitch.trainers.workloads.residual import basic_network


def _load() -> Data:
    return load_pictures(CIFAR_10)


def _model() -> Any:
    return basic_network(blocks_per_stage=5, classes=CIFAR_10.classes)


workload = Workload(
    name="resnet32-cifar10",
    model=_model,
    data=_load,
    data_set="CIFAR-10, shifted by 4, mirrored, standardized by picture",
    total_worker_steps=64_000,
    batch_size=128,
    learning_rate=0.1,
    momentum=0.9,
    learning_rate_boundaries=((32_000, 0.1), (48_000, 0.01)),
    evaluation_interval_worker_steps=2_000,
)
