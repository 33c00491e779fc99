"""The second data set of docs/papers.md at a rate that ASP does not bear."""

from dataclasses import replace

from syncswitch.trainers.workloads import breast_cancer

workload = replace(
    breast_cancer.workload,
    name="hot-breast-cancer",
    learning_rate=0.05,
    largest_scaling=8,
    momentum_after_switch="same",
)
