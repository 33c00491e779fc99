"""The costs of searches in the Sync-Switch paper: its Tables IV to VI, figure by figure."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["TABLES", "WORKLOADS", "PublishedRow"]


class PublishedRow(NamedTuple):
    """A search in the paper's tables.

    Attributes:
        recurring: The accuracy of BSP is known from before.
        bsp_runs: With BSP alone.
        candidate_runs: Number of runs of each candidate.
        search_cost: Cost of the whole search, in trainings with BSP alone.
        amortized_recurrences: After so many trainings with the policy it has paid.
        effective_training: Runs that are of use by themselves, for each training's worth of cost.
        success_percent: Searches that answer as the one with five runs of each does.
    """

    table: str
    recurring: bool
    bsp_runs: int
    candidate_runs: int
    search_cost: float
    amortized_recurrences: float
    effective_training: float
    success_percent: float


WORKLOADS = {"IV": "resnet32-cifar10-8", "V": "resnet50-cifar100-8", "VI": "resnet32-cifar10-16"}
"""The job of each table, as `python -m reproduction logs` names it."""

TABLES = (
    PublishedRow("IV", False, 5, 5, 12.71, 15.79, 1.97, 100),
    PublishedRow("IV", False, 4, 4, 10.17, 12.63, 1.97, 100),
    PublishedRow("IV", False, 3, 3, 7.62, 9.47, 1.97, 99.2),
    PublishedRow("IV", False, 2, 2, 5.07, 6.3, 1.97, 82.3),
    PublishedRow("IV", False, 1, 1, 2.48, 3.08, 2.02, 56.8),
    PublishedRow("IV", False, 1, 5, 8.71, 10.82, 2.41, 80.4),
    PublishedRow("IV", False, 1, 4, 7.16, 8.9, 2.37, 78.7),
    PublishedRow("IV", False, 1, 3, 5.61, 6.97, 2.32, 78),
    PublishedRow("IV", False, 1, 2, 4.06, 5.04, 2.22, 69.4),
    PublishedRow("IV", True, 0, 5, 7.71, 9.58, 2.59, 100),
    PublishedRow("IV", True, 0, 4, 6.17, 7.67, 2.59, 100),
    PublishedRow("IV", True, 0, 3, 4.63, 5.75, 2.59, 100),
    PublishedRow("IV", True, 0, 2, 3.07, 3.81, 2.61, 79),
    PublishedRow("IV", True, 0, 1, 1.5, 1.86, 2.67, 56.6),
    PublishedRow("V", False, 5, 5, 17.86, 44.81, 1.12, 100),
    PublishedRow("V", False, 4, 4, 14.28, 35.83, 1.12, 93.4),
    PublishedRow("V", False, 3, 3, 10.71, 26.87, 1.12, 85.4),
    PublishedRow("V", False, 2, 2, 6.98, 17.51, 1.15, 67.3),
    PublishedRow("V", False, 1, 1, 3.26, 8.18, 1.23, 37.3),
    PublishedRow("V", False, 1, 5, 12.12, 30.41, 1.41, 79.8),
    PublishedRow("V", False, 1, 4, 10.04, 25.19, 1.29, 59.2),
    PublishedRow("V", False, 1, 3, 7.75, 19.45, 1.29, 49),
    PublishedRow("V", False, 1, 2, 5.65, 14.18, 1.24, 48.2),
    PublishedRow("V", True, 0, 5, 11.1, 27.85, 1.17, 100),
    PublishedRow("V", True, 0, 4, 9.05, 22.71, 1.17, 100),
    PublishedRow("V", True, 0, 3, 6.73, 16.89, 1.17, 81),
    PublishedRow("V", True, 0, 2, 4.64, 11.64, 1.17, 78.1),
    PublishedRow("V", True, 0, 1, 2.29, 5.75, 1.22, 48.9),
    PublishedRow("VI", False, 5, 5, 7.68, 16.54, 1.3, 100),
    PublishedRow("VI", False, 4, 4, 6.14, 13.22, 1.3, 100),
    PublishedRow("VI", False, 3, 3, 4.61, 9.93, 1.3, 100),
    PublishedRow("VI", False, 2, 2, 3.07, 6.61, 1.3, 89.5),
    PublishedRow("VI", False, 1, 1, 1.54, 3.32, 1.3, 69.7),
    PublishedRow("VI", False, 1, 5, 3.67, 7.9, 1.63, 68.5),
    PublishedRow("VI", False, 1, 4, 3.14, 6.76, 1.59, 66.4),
    PublishedRow("VI", False, 1, 3, 2.61, 5.62, 1.53, 67.4),
    PublishedRow("VI", False, 1, 2, 2.07, 4.46, 1.49, 77.2),
    PublishedRow("VI", True, 0, 5, 2.68, 5.77, 1.87, 100),
    PublishedRow("VI", True, 0, 4, 2.14, 4.61, 1.87, 100),
    PublishedRow("VI", True, 0, 3, 1.67, 3.6, 1.87, 100),
    PublishedRow("VI", True, 0, 2, 1.07, 2.3, 1.87, 100),
    PublishedRow("VI", True, 0, 1, 0.54, 1.16, 1.87, 100),
)
