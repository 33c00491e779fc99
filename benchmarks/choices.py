"""The ways of training that somebody may pick, with and without a search."""

from __future__ import annotations

from benchmarks.trainings import Choice
from syncswitch.trainers.job.hyperparameters import highest_rate
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.protocols import Exchange, alone, choose_protocol

WORKERS = 8
GRID = (100.0, 50.0, 25.0, 12.5, 6.25, 3.125, 1.5625, 0.0)
"""The switch points from BSP to ASP with a momentum for each worker, descending."""
_DELTAS = (0.25, 0.3, 0.5)
SWITCHED = tuple(Choice(("bsp", "asp"), percent) for percent in GRID)
"""One choice for each switch point of the grid."""


def fixed_choices(workload: Workload) -> dict[str, Choice]:
    """Returns what somebody may pick without a search, by the names of the rows.

    The quadratic rule's alpha is the highest rate of a worker: its periods are eight steps long
    until the rate has fallen to a third of that. Post-local SGD switches at the first decay.
    """
    texts = {
        "ASP": "asp",
        "SSP, lead 3": "ssp:3",
        "DSSP, lead 3 to 15": "dssp:3-15",
        "DS-Sync, groups of 2": "ds-sync:2",
        "GBA, 3 updates late": "gba:3",
        "local SGD, every 8": "local-sgd:8:zeroed",
        **{f"SelSync, delta {delta}": f"selsync:{delta}" for delta in _DELTAS},
    }
    found = {"BSP": SWITCHED[0]} | {name: Choice(alone(text)) for name, text in texts.items()}
    boundaries, alpha = workload.learning_rate_boundaries, highest_rate(workload, WORKERS)
    found["QSR, from every 8"] = Choice(alone(f"qsr:8:{alpha:g}:zeroed"))
    if boundaries and boundaries[0][0] < workload.total_worker_steps:
        percent = 100 * boundaries[0][0] / workload.total_worker_steps
        found["post-local SGD, every 8 from the first decay"] = Choice(
            ("bsp", "local-sgd:8:zeroed"), percent
        )
    if workload.name == "clicks":  # the rows of its tables are trained on the parameter server
        found = {name: one for name, one in found.items() if not _has_replicas(one)}
    return found


def _has_replicas(choice: Choice) -> bool:
    used = choice.pair[: 1 if choice.percent == 100 else 2]
    return any(choose_protocol(text).exchange is Exchange.REPLICA for text in used)
