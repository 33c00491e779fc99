"""The second data set of docs/papers.md; in the papers all pushes move one momentum."""

from dataclasses import replace

from syncswitch.trainers.workloads import breast_cancer

workload = replace(breast_cancer.workload, momentum_after_switch="same")
