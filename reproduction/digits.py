"""The first data set of docs/papers.md; in the papers all pushes move one momentum."""

from dataclasses import replace

from syncswitch.trainers.workloads import digits

workload = replace(digits.workload, momentum_after_switch="same")
