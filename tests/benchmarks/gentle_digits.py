"""The digits workload at a rate that ASP of 8 workers bears from the first step on."""

from __future__ import annotations

from dataclasses import replace

from syncswitch.trainers.workloads import digits

workload = replace(digits.workload, learning_rate=0.005)
