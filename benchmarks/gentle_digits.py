"""The digits workload at a rate that ASP of 8 workers bears from the first step on."""

from __future__ import annotations

from dataclasses import replace

from syncswitch.trainers.workloads import digits

workload = replace(digits.workload, learning_rate=0.005)
short = replace(
    workload,
    total_worker_steps=1_600,
    learning_rate_boundaries=((800, 0.1), (1_200, 0.01)),
    evaluation_interval_worker_steps=200,
)
