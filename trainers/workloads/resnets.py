"""The workloads of the Sync-Switch paper: ResNets on CIFAR.

Lengths, decays and tests are those of the authors' logs. At least 8 tests follow the last decay, 5
of which make the converged accuracy.
"""

from __future__ import annotations

from functools import partial

from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.workloads.pictures import load_pictures
from syncswitch.trainers.workloads.residual import basic_network, bottleneck_network

resnet32_cifar10 = Workload(
    name="resnet32-cifar10",
    model=partial(basic_network, blocks_per_stage=5, classes=10),
    data=partial(load_pictures, "cifar10"),
    data_set="CIFAR-10, shifted by 4, mirrored, standardized by picture",
    total_worker_steps=64_000,
    batch_size=128,
    learning_rate=0.1,
    momentum=0.9,
    learning_rate_boundaries=((32_000, 0.1), (48_000, 0.01)),
    evaluation_interval_worker_steps=2_000,
)
"""Setups 1 (8 workers) and 3 (16 workers)."""

resnet50_cifar100 = Workload(
    name="resnet50-cifar100",
    model=partial(bottleneck_network, (3, 4, 6, 3), classes=100),
    data=partial(load_pictures, "cifar100"),
    data_set="CIFAR-100, shifted by 4, mirrored, standardized by picture",
    total_worker_steps=128_000,
    batch_size=128,
    learning_rate=0.1,
    momentum=0.9,
    learning_rate_boundaries=((64_000, 0.1), (96_000, 0.01)),
    evaluation_interval_worker_steps=4_000,
)
"""Setup 2 (8 workers), with fine labels."""
