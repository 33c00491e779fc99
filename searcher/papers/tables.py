"""The tables behind the papers' figures, each from the runs of a job; pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from syncswitch.searcher.papers.comparison import Compared, compare, half_width, paper_answer
from syncswitch.searcher.papers.runs import FigureRun, bsp_percent
from syncswitch.storage.metrics import mean_of

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
    """The same for both orders of the two protocols."""
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
    """What becomes of a job with another momentum after the switch, beside the job as it is."""
    return _variants(runs, "momentum_after_switch")


def batch(runs: Sequence[FigureRun]) -> list[Row]:
    """The same with another batch after the switch."""
    return _variants(runs, "batch_after_switch")


def _variants(runs: Sequence[FigureRun], field: str) -> list[Row]:
    known = _undisturbed(runs)
    varied = [run for run in known if run.variant.startswith(f"{field}=")]
    wanted = {_place(run) for run in varied}
    wanted |= {(workers, cluster, "BSP") for workers, cluster, _ in wanted}
    beside = [run for run in known if not run.variant and _place(run) in wanted]
    return plain(_ordered(compare([*beside, *varied]))) if varied else []


def stragglers(runs: Sequence[FigureRun]) -> list[Row]:
    """Runs under injected stragglers with each online policy, beside those without any."""
    switched = [run for run in runs if "straggler:" in run.under]
    wanted = {_place(run) for run in switched}
    wanted |= {(workers, cluster, "BSP") for workers, cluster, _ in wanted}
    beside = [run for run in _undisturbed(runs) if _place(run) in wanted]
    return plain(_ordered(compare([*beside, *switched]))) if switched else []


def generality(runs: Sequence[FigureRun]) -> list[Row]:
    """What becomes of each cluster's switch point on every other cluster."""
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
