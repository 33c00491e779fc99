"""The papers' tables: runs side by side, and which of them each figure shows; pure.

Accuracy, time, and time to the accuracy of BSP.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from reproduction.runs import FigureRun, bsp_percent
from syncswitch.searcher import speed_up
from syncswitch.searcher.speed_up import SpeedUp, measured_speed_up
from syncswitch.storage.metrics import mean_of, time_to_accuracy_seconds

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
        seconds_to_target: Mean time of these runs to the target.
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
        runs: Runs of one job.
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
        gain = measured_speed_up(seconds, kind, _USUAL) or SpeedUp(0.0)
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
                times_as_fast=gain.value or None,
                low=gain.low,
                high=gain.high,
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
    """Half of Student's 95 % interval of the mean; None for fewer than two values."""
    return None if len(values) < 2 else speed_up.half_width(values)


Row = dict[str, Any]


def plain(rows: Sequence[Compared]) -> list[Row]:
    """As plain rows."""
    return [dataclasses.asdict(row) for row in rows]


def _ordered(rows: Sequence[Compared]) -> list[Compared]:
    """By cluster, and by how much of the job is in BSP, most first."""

    def place(row: Compared) -> tuple[object, ...]:
        in_bsp = bsp_percent(row.protocols.split(",")[0], row.percent)
        return row.workers, row.cluster, -in_bsp, row.run

    return sorted(rows, key=place)


def summary(runs: Sequence[FigureRun]) -> list[Row]:
    """Table I: BSP, the paper's switch point, and ASP, on each cluster."""
    found: list[Row] = []
    rows = _ordered(compare(_switching(runs)))
    for cluster in dict.fromkeys((row.workers, row.cluster) for row in rows):
        of_cluster = [row for row in rows if (row.workers, row.cluster) == cluster]
        asp = next((row for row in of_cluster if row.run == "ASP"), None)
        bsp = next((row for row in of_cluster if row.run == "BSP"), None)
        for row in filter(None, (bsp, paper_answer(of_cluster), asp)):
            found.append({**dataclasses.asdict(row), **_against(row, asp)})
    return found


def _against(row: Compared, asp: Compared | None) -> Row:
    """More accurate than ASP, in points, and so many times its time."""
    points = time = None
    if asp is not None and row.accuracy is not None and asp.accuracy is not None:
        points = 100 * (row.accuracy - asp.accuracy)
    if asp is not None and row.seconds and asp.seconds:
        time = row.seconds / asp.seconds
    return {"points_above_asp": points, "times_the_time_of_asp": time}


def timing(runs: Sequence[FigureRun]) -> list[Row]:
    """Accuracy, time and time to accuracy of each switch point from BSP to ASP."""
    return plain(_ordered(compare(_of_pair(_switching(runs), {("bsp", "asp")}))))


def order(runs: Sequence[FigureRun]) -> list[Row]:
    """Accuracy, time and time to accuracy of both orders of the two protocols."""
    pairs = {("bsp", "asp"), ("asp", "bsp")}
    found = _of_pair(_switching(runs), pairs)
    both = {_cluster(run) for run in found if run.protocols[0] == "asp" and run.alone is None}
    return plain(_ordered(compare([run for run in found if _cluster(run) in both] or found)))


def protocols(runs: Sequence[FigureRun], about: str) -> list[Row]:
    """Each protocol alone, on the clusters that have had the protocol of this name."""
    alone = [(run.alone, run) for run in _undisturbed(runs) if run.alone is not None]
    clusters = {_cluster(run) for protocol, run in alone if protocol.split(":")[0] == about}
    found = compare([run for _, run in alone if _cluster(run) in clusters])
    return plain(sorted(found, key=lambda row: (row.workers, row.cluster)))


def momentum(runs: Sequence[FigureRun]) -> list[Row]:
    """A job with another momentum after the switch, beside the job as it is."""
    return _variants(runs, "momentum_after_switch")


def batch(runs: Sequence[FigureRun]) -> list[Row]:
    """A job with another batch after the switch, beside the job as it is."""
    return _variants(runs, "batch_after_switch")


def _variants(runs: Sequence[FigureRun], field: str) -> list[Row]:
    known = _undisturbed(runs)
    varied = [run for run in known if run.variant.startswith(f"{field}=")]
    return _beside([run for run in known if not run.variant], varied)


def stragglers(runs: Sequence[FigureRun]) -> list[Row]:
    """Runs under injected stragglers with each online policy, beside those without any."""
    return _beside(_undisturbed(runs), [run for run in runs if "straggler:" in run.under])


def _beside(usual: Sequence[FigureRun], others: Sequence[FigureRun]) -> list[Row]:
    """Runs beside the usual ones of the same kind, and those of BSP; empty without any."""
    wanted = {_place(run) for run in others}
    wanted |= {(workers, cluster, "BSP") for workers, cluster, _ in wanted}
    alike = [run for run in usual if _place(run) in wanted]
    return plain(_ordered(compare([*alike, *others])))


def generality(runs: Sequence[FigureRun]) -> list[Row]:
    """The results of each cluster's switch point on every other cluster."""
    rows = compare(_of_pair(_switching(runs), {("bsp", "asp")}))
    clusters = sorted({(row.workers, row.cluster) for row in rows})
    has_several = len({cluster for _, cluster in clusters}) > 1
    by_cluster = {
        one: [row for row in rows if (row.workers, row.cluster) == one] for one in clusters
    }
    found: list[Row] = []
    for origin in clusters:
        answer = paper_answer(by_cluster[origin])
        percent = 100.0 if answer is None else answer.percent
        for target in clusters:
            row = next((one for one in by_cluster[target] if one.percent == percent), None)
            if row is not None:
                name = f"{origin[0]} workers" + (f" {origin[1]}" if has_several else "")
                found.append({"policy_of": name, **dataclasses.asdict(row)})
    return found


def curves(runs: Sequence[FigureRun]) -> list[Row]:
    """Accuracy over training time of the run of median accuracy of each kind."""
    kinds: dict[tuple[object, ...], list[FigureRun]] = {}

    def place(run: FigureRun) -> tuple[object, ...]:
        return run.workers, run.cluster, -bsp_percent(run.protocols[0], run.percent), run.name

    for run in sorted(_switching(runs), key=place):
        if run.curve and run.accuracy is not None:
            kinds.setdefault(_place(run), []).append(run)
    found: list[Row] = []
    for alike in kinds.values():
        median = sorted(alike, key=lambda run: run.accuracy or 0.0)[len(alike) // 2]
        found += [
            {
                "workers": median.workers,
                "cluster": median.cluster,
                "run": median.name,
                "worker_step": test.worker_step,
                "seconds": test.elapsed_seconds,
                "accuracy": test.accuracy,
            }
            for test in median.curve
        ]
    return found


def overhead(runs: Sequence[FigureRun]) -> list[Row]:
    """Table III: what switches take on real clusters, hot or by a restart of the cluster."""
    kinds: dict[tuple[int, str], list[tuple[float, FigureRun]]] = {}
    for run in runs:
        if run.alone is None and run.switch_seconds is not None and not run.cluster:
            how = "restart" if "restart" in run.under else "hot"
            kinds.setdefault((run.workers, how), []).append((run.switch_seconds, run))
    return [
        {
            "workers": workers,
            "switch": how,
            "runs": len(alike),
            "switch_seconds": mean_of([seconds for seconds, _ in alike]),
            "switch_seconds_half_width": half_width([seconds for seconds, _ in alike]),
            "switch_percent_of_training": mean_of(
                [100 * seconds / run.seconds for seconds, run in alike if run.seconds]
            ),
        }
        for (workers, how), alike in sorted(kinds.items())
    ]


def short_conditions(text: str) -> str:
    """A scenario's stragglers in one word."""
    return re.sub(r"straggler:\S+( straggler:\S+)*", "stragglers", text)


def _place(run: FigureRun) -> tuple[int, str, str]:
    return run.workers, run.cluster, run.name


def _undisturbed(runs: Sequence[FigureRun]) -> list[FigureRun]:
    return [run for run in runs if not run.under]


def _cluster(run: FigureRun) -> tuple[int, str]:
    return run.workers, run.cluster


def _switching(runs: Sequence[FigureRun]) -> list[FigureRun]:
    """The undisturbed runs of clusters with BSP alone and a switch; without such, all of them."""
    known = _undisturbed(runs)
    clusters = {_cluster(run) for run in known if run.alone is None}
    clusters &= {_cluster(run) for run in known if run.name == "BSP"}
    return [run for run in known if _cluster(run) in clusters] or known


def _of_pair(runs: Sequence[FigureRun], pairs: set[tuple[str, str]]) -> list[FigureRun]:
    """Runs of these protocols; one protocol alone may have been recorded with any other."""
    names = {name for pair in pairs for name in pair}
    return [run for run in runs if run.protocols in pairs or run.alone in names]
