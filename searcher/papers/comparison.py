"""Runs side by side: accuracy, time, and time to the accuracy of BSP; pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from syncswitch.searcher.papers.runs import FigureRun
from syncswitch.searcher.results.speed_up import SpeedUp, measured_speed_up
from syncswitch.storage.metrics import mean_of, student_half_width, time_to_accuracy_seconds

REFERENCE = "BSP"


class Cluster(NamedTuple):
    """Runs on one cluster of one job are compared."""

    workers: int
    cluster: str
    total_worker_steps: int


@dataclass(frozen=True, slots=True)
class Compared:
    """The runs of one kind on one cluster; means are over those that did not diverge.

    A half width is that of Student's 95 % interval, and None for fewer than two values. What is
    compared is compared with BSP alone on the same cluster under no conditions, and None without
    such a run; `low` and `high` are a 90 % interval.

    Attributes:
        under: As in `FigureRun`, and `variant`.
        points: Accuracy above that of BSP, in percentage points.
        reached: Runs that tested at the mean accuracy of BSP, the target, or above.
        seconds_to_target: Of those runs.
        sooner: Times as soon at the target as BSP, by the means of those runs.
    """

    workers: int
    cluster: str
    run: str
    percent: float
    protocols: str
    under: str
    variant: str
    runs: int
    diverged: int
    accuracy: float | None
    accuracy_half_width: float | None
    points: float | None
    seconds: float | None
    seconds_half_width: float | None
    times_as_fast: float | None
    low: float | None
    high: float | None
    target: float | None
    reached: int
    seconds_to_target: float | None
    seconds_to_target_half_width: float | None
    sooner: float | None


class _Kind(NamedTuple):
    run: str
    under: str = ""
    variant: str = ""


_USUAL = _Kind(REFERENCE)


def compare(runs: Sequence[FigureRun], target_accuracy: float | None = None) -> list[Compared]:
    """One row for each kind of run, by cluster, in the order in which they came.

    Args:
        runs: Of one job.
        target_accuracy: To time the runs to; None for the mean of BSP alone on their cluster.
    """
    clusters: dict[Cluster, dict[_Kind, list[FigureRun]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        cluster = Cluster(run.workers, run.cluster, run.total_worker_steps)
        clusters[cluster][_Kind(run.name, run.under, run.variant)].append(run)
    return [row for kinds in clusters.values() for row in _rows(kinds, target_accuracy)]


def _rows(kinds: Mapping[_Kind, list[FigureRun]], target: float | None) -> list[Compared]:
    bsp = kinds.get(_USUAL, [])
    usual = mean_of([run.accuracy for run in bsp])
    if target is None:
        target = usual
    seconds = {kind: [run.seconds for run in found if run.seconds] for kind, found in kinds.items()}
    usual_wait = mean_of(_waits(bsp, target))
    rows = []
    for kind, found in kinds.items():
        accuracies = [run.accuracy for run in found if run.accuracy is not None]
        accuracy, waits = mean_of(accuracies), _waits(found, target)
        wait = mean_of(waits)
        speed_up = measured_speed_up(seconds, kind, _USUAL) or SpeedUp(0.0)
        rows.append(
            Compared(
                workers=found[0].workers,
                cluster=found[0].cluster,
                run=kind.run,
                percent=found[0].percent,
                protocols=",".join(found[0].protocols),
                under=kind.under,
                variant=kind.variant,
                runs=len(found),
                diverged=len(found) - len(accuracies),
                accuracy=accuracy,
                accuracy_half_width=half_width(accuracies),
                points=None if accuracy is None or usual is None else 100 * (accuracy - usual),
                seconds=mean_of(seconds[kind]),
                seconds_half_width=half_width(seconds[kind]),
                times_as_fast=speed_up.value or None,
                low=speed_up.low,
                high=speed_up.high,
                target=target,
                reached=len(waits),
                seconds_to_target=wait,
                seconds_to_target_half_width=half_width(waits),
                sooner=usual_wait / wait if usual_wait and wait else None,
            )
        )
    return rows


def paper_answer(rows: Sequence[Compared], threshold: float = 0.01) -> Compared | None:
    """The switch point that the paper's search would choose of these rows of one cluster.

    It halves the switch point while the mean accuracy stays within the threshold of BSP's and no
    run diverges. None where no halving keeps it.
    """
    answer = None
    switched = (row for row in rows if row.protocols.startswith("bsp,") and not row.under)
    for row in sorted(switched, key=lambda row: -row.percent):
        if not 0 < row.percent < 100 or row.percent == 75:
            continue
        if row.diverged or row.points is None or row.points < -100 * threshold:
            break
        answer = row
    return answer


def _waits(runs: Sequence[FigureRun], target: float | None) -> list[float]:
    if target is None:
        return []
    waits = [
        time_to_accuracy_seconds(run.curve, target) for run in runs if run.accuracy is not None
    ]
    return [wait for wait in waits if wait is not None]


def half_width(values: Sequence[float]) -> float | None:
    """Of Student's 95 % interval of the mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    error = statistics.stdev(values) / len(values) ** 0.5
    return student_half_width(error, len(values) - 1, 0.95)
