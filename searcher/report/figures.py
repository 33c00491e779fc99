"""The figures of a report, each a pure function of `ReportData`.

They need the extra `report`. A figure without any measurements raises a `UserError` that says which
are missing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from syncswitch.searcher.report.data import ReportData, ReportRun, SwitchPoint
from syncswitch.searcher.report.drawing import (
    BAND,
    FIRST,
    POLICY,
    QUIET,
    SECOND,
    Drawing,
    axis_title,
    drawn,
    label_runs,
    label_switches,
    literal,
    zoom,
)
from syncswitch.searcher.report.scales import SwitchScale
from syncswitch.searcher.speed_up import Estimate
from syncswitch.searcher.words import UNJUDGED, capitalized, counted, percent_text
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.trainers.replay import RecordedRun

__all__ = ["accuracy_by_switch", "accuracy_over_time", "later_uses", "search_path"]

_SPREAD = 0.2  # of the runs of a switch point, in halvings
_BAR = 0.34  # width; 75 and 100 % are .415 apart
_MOST_WORDS = 16  # runs of a search whose accuracies are written
_MOST_POINTS = 300  # of a curve
_MOST_CURVES = 5  # of a switch point
_KINDS = {
    "target": ("measures the target", "D", FIRST),
    "accepted": ("keeps the accuracy", "o", POLICY),
    "rejected": ("loses too much", "X", SECOND),
    "open": ("still open", "o", QUIET),
    "speculative": ("speculative", "^", QUIET),
}


def accuracy_by_switch(data: ReportData) -> Drawing:
    """Converged accuracy of every run against its switch point, above the mean training times.

    Above: dots are runs, squares later runs with the policy, diamonds the means of the switch
    points with their 95 % intervals (Student's), the band the accepted accuracies, the star the
    policy. Triangles at the edge are runs far outside, with their accuracies.

    Below, as in Fig. 10 of the Sync-Switch paper: the mean training time of each switch point,
    relative to the first protocol alone, with its 95 % interval; in seconds where nothing is known
    of the first protocol alone. A run that was stopped early counts with what the whole would have
    taken.

    Raises:
        UserError: No run is complete and sound, or matplotlib is missing.
    """
    runs = data.compared
    _check_compared(data)
    if not any(run.is_sound for run in runs):
        raise UserError(
            f"every run of {data.identity.name} diverged, so there is no accuracy",
            code="nothing-recorded",
        )
    scale = SwitchScale([run.trial.candidate_percent or 0.0 for run in runs])
    drawing = Drawing(
        f"{_named(data.identity.metric)} and training time by switch point",
        "Above: dots are runs, squares later runs, diamonds the means of switch points with 95 %"
        " intervals, triangles at the edge runs far outside; the band holds the accepted values,"
        " the star is the policy. Below: a bar for the mean training time of each switch point.",
    )
    timed = [(point, mean) for point in data.switch_points if (mean := point.seconds)]
    heights = (3.2, 1.7) if timed else (3.2,)
    with drawn(drawing, *heights, sharex=True) as axes:
        _draw_accuracies(axes[0], data, scale)
        if timed:
            _draw_times(axes[1], data, scale, timed)
        title = f"switch point (% of the job in {data.first})"
        label_switches(axes[-1].xaxis, scale, title)
    return drawing


def _draw_accuracies(axes: Any, data: ReportData, scale: SwitchScale) -> None:
    runs, metric = data.compared, data.identity.metric
    places = _side_by_side(runs, scale)
    values = {run.trial.trial_id: _value_of(run, metric) for run in runs}
    axes.set_xlim(scale.limits)
    zoom(
        axes,
        [(places[number], value) for number, value in values.items()],
        _band(data),
        (metric.lowest, metric.highest),
    )
    _draw_acceptance(axes, data)
    for label, marker, filling in (
        ("one run", "o", "full"),
        ("one run, stopped early", "o", "none"),
        ("one later run", "s", "full"),
    ):
        alike = [run.trial.trial_id for run in runs if run.is_sound and _label(run) == label]
        x, y = [places[number] for number in alike], [values[number] for number in alike]
        if alike:
            style = {"color": "#333", "ms": 5, "alpha": 0.7, "fillstyle": filling}
            axes.plot(x, y, marker, **style, label=label)
    by_percent = {point.percent: mean for point in data.switch_points if (mean := point.accuracy)}
    means, halves = _means_and_halves(list(by_percent.values()), metric)
    x = [scale.at(percent) for percent in by_percent]
    label = "mean, 95 % interval"
    axes.errorbar(x, means, halves, color=FIRST, fmt="D", ms=9, fillstyle="none", label=label)
    answer = data.answer
    if answer is not None and answer.measured.mean_accuracy is not None:
        label = f"the policy: {percent_text(answer.switch_percent)}"
        place, value = scale.at(answer.switch_percent), answer.measured.mean_accuracy
        style = {"color": POLICY, "ms": 15, "mec": "white", "label": label}
        axes.plot(place, metric.value(value), "*", **style)
    axes.set_ylabel(axis_title(f"converged {metric.axis_title}", 30))


def _draw_times(
    axes: Any, data: ReportData, scale: SwitchScale, timed: Sequence[tuple[SwitchPoint, Estimate]]
) -> None:
    baseline = data.baseline_seconds
    unit = baseline / 100 if baseline else 1.0
    answer = None if data.answer is None else data.answer.switch_percent
    for point, mean in timed:
        colour, edge = ("#8FD0BB", POLICY) if point.percent == answer else ("#C3D2DE", QUIET)
        whisker = (mean.high - mean.value) / unit if len(point.runs) > 1 else None
        place, height = scale.at(point.percent), mean.value / unit
        axes.bar(place, height, _BAR, yerr=whisker, color=colour, ec=edge, capsize=3)
        if point.percent in (answer, BASELINE_PERCENT):
            text = f"{height:.0f} %" if baseline else f"{height:,.0f} s"
            axes.annotate(text, (place, height), (0, 5), textcoords="offset points", ha="center")
    axes.margins(y=0.2)
    axes.set_ylim(0, None)
    axes.set_ylabel(axis_title(f"time, % of {data.first} alone", 18) if baseline else "seconds")


def _value_of(run: ReportRun, metric: Metric) -> float:
    """The metric's own value, as bad as can be where the run diverged."""
    accuracy = run.trial.result.converged_accuracy
    return metric.value(accuracy if run.is_sound and accuracy is not None else -math.inf)


def _band(data: ReportData) -> tuple[float, float] | None:
    """The accepted values from the least to the largest; None without a target."""
    if data.acceptance is None:
        return None
    metric, goal = data.identity.metric, data.acceptance.goal
    ends = goal.least_accuracy, goal.accuracy
    low, high = sorted(map(metric.value, ends))
    return low, high


def _label(run: ReportRun) -> str:
    if run.trial.origin.use_id is not None:
        return "one later run"
    return "one run, stopped early" if run.trial.result.stopped_early else "one run"


def _means_and_halves(
    estimates: Sequence[Estimate], metric: Metric
) -> tuple[list[float], list[list[float]]]:
    """The metric's own values of means, and how far their intervals reach below and above them."""
    means, below, above = [], [], []
    for estimate in estimates:
        ends = (metric.limited(estimate.low), estimate.value, metric.limited(estimate.high))
        low, mean, high = sorted(map(metric.value, ends))  # less may be better
        means.append(mean)
        below.append(mean - low)
        above.append(high - mean)
    return means, [below, above]


def search_path(data: ReportData) -> Drawing:
    """The runs of the search in their order, and where the answer could lie after each of them.

    A mark is a run at its switch point; its shape is the strategy's verdict on the switch point
    after it. The band is the bracket: from the highest switch point known to switch too early to
    the lowest known to be acceptable.

    Raises:
        UserError: There is no search, no run of it is complete, or matplotlib is missing.
    """
    steps, metric = data.path, data.identity.metric
    if data.search is None:
        raise UserError(
            f"no search of {data.identity.name} is recorded here, only runs",
            code="nothing-recorded",
        )
    if not steps:
        raise UserError("no run of the search is complete yet", code="nothing-recorded")
    ends = [end for step in steps for end in (step.lower_percent, step.upper_percent)]
    scale = SwitchScale([*(step.run.switch_percent for step in steps), *ends])
    drawing = Drawing(
        "The course of the search",
        "A mark for each run at its switch point; the band is where the answer could lie then.",
    )
    with drawn(drawing, 3.6) as (axes,):
        numbers = [number + 0.5 for number in range(len(steps) + 1)]
        low, high = ([scale.at(one) for one in (*ends[side::2], ends[side - 2])] for side in (0, 1))
        axes.fill_between(numbers, low, high, step="post", color=BAND, label="could be the answer")
        if data.answer is not None and data.is_found_here:
            place = scale.at(data.answer.switch_percent)
            axes.axhline(place, color=POLICY, linestyle="--", label="the answer")
        for kind, (label, marker, colour) in _KINDS.items():
            filling = "none" if kind in ("open", "speculative") else "full"
            mine = [number for number, step in enumerate(steps) if step.kind == kind]
            if mine:
                y = [scale.at(steps[number].run.switch_percent) for number in mine]
                x = [number + 1 for number in mine]
                style = {"color": colour, "ms": 7, "fillstyle": filling, "label": label}
                axes.plot(x, y, marker, **style)
        if len(steps) <= _MOST_WORDS:
            for number, step in enumerate(steps, 1):
                run = step.run
                words = "diverged" if run.diverged else f"{metric.value(run.accuracy):.3g}"
                at = (number, scale.at(run.switch_percent))
                axes.annotate(
                    words, at, (0, 6), textcoords="offset points", ha="center", fontsize=7.5
                )
        label_runs(axes, len(steps))
        axes.set_xlabel("run of the search")
        label_switches(axes.yaxis, scale, f"switch point (% of the job in {data.first})")
        axes.set_ylim(top=scale.limits[1] + 0.5)  # for the words above the marks
    return drawing


def accuracy_over_time(data: ReportData) -> Drawing:
    """Test accuracy over training time: the first protocol alone, the policy, an early switch.

    As in Fig. 11 of the Sync-Switch paper. A thick line is the run of median accuracy of its
    switch point, with a mark at its switch; thin lines are others.

    Raises:
        UserError: No curve is recorded, or matplotlib is missing.
    """
    metric = data.identity.metric
    by_switch_point: dict[float, list[RecordedRun]] = {}
    for run in data.compared:
        whole = None if run.trial.failed else run.whole
        if whole is not None and len(whole.evaluations) > 1:
            by_switch_point.setdefault(run.trial.candidate_percent or 0.0, []).append(whole)
    if not by_switch_point:
        _check_compared(data)
        raise UserError("no run has a recorded curve of accuracy", code="nothing-recorded")
    drawing = Drawing(
        f"{_named(metric)} over time",
        "A line for each run; thick is the one of median accuracy of its switch point, and the mark"
        " on it is its switch.",
    )
    band, late = _band(data), list[tuple[float, float]]()
    ends: list[tuple[float, float]] = []
    with drawn(drawing, 3.4) as (axes,):
        if data.acceptance is not None:
            target = metric.value(data.acceptance.goal.accuracy)
            axes.axhline(target, color=QUIET, linestyle=":", label="target")
        for percent, colour, style, label in _roles(data, sorted(by_switch_point)):
            alike = sorted(by_switch_point[percent], key=lambda run: run.accuracy)
            median = alike[len(alike) // 2]
            others = [one for one in alike if one is not median][-_MOST_CURVES:]
            for one in (*others, median):
                x, y = _curve(one, metric)
                if not x:
                    continue
                looks: dict[str, Any] = {"lw": 0.8, "alpha": 0.4}
                if one is median:
                    gone = ", diverged" if one.diverged else ""
                    looks = {"lw": 2.2, "label": literal(label + gone)}
                axes.plot(x, y, color=colour, ls=style, **looks)
                ends.append((x[-1], y[-1]))
                if not one.diverged:
                    points = list(zip(x, y, strict=True))
                    best = max(points, key=lambda point: metric.accuracy(point[1]))
                    late += [best, *points[len(points) // 2 if band else 0 :]]
                if one is median and len(one.phases) > 1:
                    at = one.clock().seconds_at(one.switch_worker_step)
                    axes.plot(at, np.interp(at, x, y), "D", color=colour, ms=8, mec="white")
        axes.set_xlim(0, 1.03 * max((x for x, _ in ends), default=1.0))
        zoom(axes, late or ends, band, (metric.lowest, metric.highest), ends)
        axes.set_xlabel("training time in seconds")
        axes.set_ylabel(axis_title(f"test {metric.axis_title}"))
    return drawing


def _roles(data: ReportData, percents: Sequence[float]) -> Iterator[tuple[float, str, str, str]]:
    """The switch points to compare, of those that have curves: colour, line style and label."""
    answer = data.answer.switch_percent if data.answer is not None else None
    if answer is None and data.acceptance is not None:
        least = data.acceptance.goal.least_accuracy
        good = [
            one.percent
            for one in data.switch_points
            if all(run.is_sound for run in one.runs)
            and one.accuracy
            and one.accuracy.value >= least
        ]
        answer = min(good, default=None)
    looks = {percents[0]: (SECOND, ":"), answer: (POLICY, "--"), BASELINE_PERCENT: (FIRST, "-")}
    for percent in dict.fromkeys((BASELINE_PERCENT, answer, percents[0])):
        if percent is None or percent not in percents:
            continue
        alone = data.first if percent >= 100 else data.second if percent <= 0 else None
        label = f"switch at {percent_text(percent)}" if alone is None else f"{alone} alone"
        is_policy = data.answer is not None and percent == data.answer.switch_percent
        yield percent, *looks[percent], label + " (the policy)" * is_policy


def _curve(run: RecordedRun, metric: Metric) -> tuple[list[float], list[float]]:
    finite = [one for one in run.evaluations if math.isfinite(one.accuracy)]
    every = math.ceil(len(finite) / _MOST_POINTS) or 1
    shown = [*finite[:-1:every], *finite[-1:]]
    return [one.elapsed_seconds for one in shown], [metric.value(one.accuracy) for one in shown]


def later_uses(data: ReportData) -> Drawing:
    """The later runs with the policy in their order: accuracy above, switches below.

    A filled mark below is the switch that held, a cross one that failed, after which the run went
    back to it and tried a later one.

    Raises:
        UserError: There is none, or matplotlib is missing.
    """
    if not data.uses:
        raise UserError("no later run with the policy is recorded yet", code="nothing-recorded")
    metric = data.identity.metric
    uses = list(enumerate(sorted(data.uses, key=lambda use: use.ended_at), 1))
    failed = [
        (number, float(percent))
        for number, use in uses
        for percent in (use.guard.failed_percents.split(", ") if use.guard.failed_percents else ())
    ]
    kept = sum(bool(use.result.kept) for use in data.uses)
    judged = any(use.result.kept is not None for use in data.uses)
    how = f"{kept} of {counted(len(uses), 'later run')} kept the {metric.name}; crosses did not."
    drawing = Drawing(
        "Later runs with the policy",
        (how if judged else UNJUDGED)
        + " Below are the switches of each run: crosses failed, dots held.",
    )
    with drawn(drawing, 2.8, 1.9, sharex=True) as (axes, below):
        label_runs(axes, len(uses))
        values = {
            number: metric.value(-math.inf if use.result.diverged else use.result.accuracy)
            for number, use in uses
        }
        zoom(axes, list(values.items()), _band(data), (metric.lowest, metric.highest))
        _draw_acceptance(axes, data)
        for label, is_kept, marker, colour in (
            ("kept", True, "o", POLICY),
            ("not kept", False, "X", SECOND),
            ("no target measured", None, "o", QUIET),
        ):
            x = [number for number, use in uses if use.result.kept is is_kept]
            if x:
                axes.plot(x, [values[n] for n in x], marker, color=colour, ms=6, label=label)
        scale = SwitchScale(
            [*(use.guard.held_percent for _, use in uses), *(one for _, one in failed)]
        )
        held = [scale.at(use.guard.held_percent) for _, use in uses]
        below.plot([n for n, _ in uses], held, "o", color=POLICY, ms=5, label="switch that held")
        if failed:
            x, y = [n for n, _ in failed], [scale.at(percent) for _, percent in failed]
            below.plot(x, y, "X", color=SECOND, ms=6, label="switch that failed")
        for (number, before), (_, use) in itertools.pairwise(uses):
            if use.policy_version != before.policy_version:
                below.axvline(number + 0.5, color=QUIET, linestyle=":", label="another version")
        below.set_xlabel("later run")
        axes.set_ylabel(axis_title(f"converged {metric.axis_title}", 24))
        label_switches(below.yaxis, scale, "switched at %")
    return drawing


def _check_compared(data: ReportData) -> None:
    """Raises UserError with the reason where no run can be compared."""
    if data.compared:
        return
    name, unplaced = data.identity.name, data.unplaced_runs
    if not unplaced:
        raise UserError(f"no run of {name} is complete yet", code="nothing-recorded")
    raise UserError(
        f"{counted(unplaced, 'complete run')} of {name} cannot be compared: imported without the"
        " switch point to count for (candidate_percent)",
        code="nothing-recorded",
    )


def _side_by_side(runs: Sequence[ReportRun], scale: SwitchScale) -> dict[int, float]:
    """A place on the axis for each run, so that equal runs do not hide each other."""
    places: dict[int, float] = {}
    for percent in {run.trial.candidate_percent or 0.0 for run in runs}:
        same = [run.trial.trial_id for run in runs if (run.trial.candidate_percent or 0) == percent]
        for number, trial_id in enumerate(same):
            aside = (number + 0.5) / len(same) - 0.5
            places[trial_id] = scale.at(percent) + _SPREAD * 2 * aside
    return places


def _draw_acceptance(axes: Any, data: ReportData) -> None:
    if data.acceptance is None:
        return
    metric, goal = data.identity.metric, data.acceptance.goal
    target = metric.value(goal.accuracy)
    if not goal.threshold:  # not measured yet
        axes.axhline(target, color=POLICY, label="target")
        return
    least = metric.value(goal.least_accuracy)
    axes.axhspan(least, target, color=BAND)
    label = literal(f"target {metric.text(goal.accuracy)}")
    axes.axhline(target, color=POLICY, label=label)
    label = literal(f"{metric.words.worst} accepted {metric.text(goal.least_accuracy)}")
    axes.axhline(least, color=POLICY, linestyle="--", label=label)


def _named(metric: Metric) -> str:
    return capitalized(metric.name)
