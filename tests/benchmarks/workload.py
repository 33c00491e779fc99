"""The digits workload without decays and with one test at the end: training and nothing else."""

from __future__ import annotations

import os
from dataclasses import replace

from syncswitch.trainers.workloads import digits

# From the environment, as servers and engines load it in processes of their own.
WORKER_STEPS = int(os.environ.get("SYNCSWITCH_BENCHMARK_WORKER_STEPS", "1000"))

workload = replace(
    digits.workload,
    total_worker_steps=WORKER_STEPS,
    learning_rate_boundaries=(),
    evaluation_interval_worker_steps=WORKER_STEPS,
)
