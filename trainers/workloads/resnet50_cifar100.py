"""ResNet-50 on CIFAR-100 (fine labels): setup 2 (8 workers) of the Sync-Switch paper.

Length, decays and tests are those of the authors' logs: a test every 4,000 worker-steps, 8 of which
follow the last decay, and 5 of these make the converged accuracy.
"""

from __future__ import annotations

from typing import Any

from syncswitch.trainers.job.data import Data
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.workloads.cifar import CIFAR_100
from syncswitch.trainers.workloads.pictures import load_pictures
from syncswitch.trainers.workloads.residual import bottleneck_network


def _load() -> Data:
    return load_pictures(CIFAR_100)


def _model() -> Any:
    return bottleneck_network((3, 4, 6, 3), classes=CIFAR_100.classes)


workload = Workload(
    name="resnet50-cifar100",
    model=_model,
    data=_load,
    data_set="CIFAR-100, shifted by 4, mirrored, standardized by picture",
    total_worker_steps=128_000,
    batch_size=128,
    learning_rate=0.1,
    momentum=0.9,
    learning_rate_boundaries=((64_000, 0.1), (96_000, 0.01)),
    evaluation_interval_worker_steps=4_000,
)
