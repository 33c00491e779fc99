"""The digits workload without decays and with one test at the end: training and nothing else."""

from __future__ import annotations

from dataclasses import replace

from syncswitch.trainers.workloads import digits

WORKER_STEPS = 1000

workload = replace(
    digits.workload,
    total_worker_steps=WORKER_STEPS,
    learning_rate_boundaries=(),
    evaluation_interval_worker_steps=WORKER_STEPS,
)
