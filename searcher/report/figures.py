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

from syncswitch.searcher.report.data import ReportData, ReportRun
from syncswitch.searcher.report.drawing import (
    BAND,
    FIRST,
    POLICY,
    QUIET,
    SECOND,
    Drawing,
    SwitchAxis,
    axis_title,
    drawn,
    literal,
)
from syncswitch.searcher.speed_up import Estimate
from syncswitch.searcher.words import UNJUDGED, capitalized, counted, percent_text
from syncswitch.storage.errors import UserError
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.trainers.replay import RecordedRun

__all__ = ["accuracy_by_switch", "accuracy_over_time", "later_uses", "search_path", "training_time"]

_SPREAD = 0.22  # of the runs of a switch point, in halvings
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
    """Converged accuracy of every run against its switch point.

    Dots are runs (crosses at the bottom diverged), squares later runs with the policy, diamonds the
    means of the switch points with their 95 % intervals (Student's), the band the accepted
    accuracies, the star the policy.

    Raises:
        UserError: No run is complete and sound, or matplotlib is missing.
    """
    runs, metric = data.compared, data.identity.decided_by
    _check_compared(data)
    sound = [run for run in runs if run.is_sound]
    if not sound:
        raise UserError(f"every run of {data.identity.name} diverged, so there is no accuracy")
    axis = SwitchAxis([run.trial.candidate_percent or 0.0 for run in runs])
    places = _side_by_side(runs, axis)
    drawing = Drawing(
        f"{_named(metric)} against switch point",
        "Dots are runs, squares later runs, diamonds the means of switch points with 95 %"
        " intervals, crosses runs that diverged; the band holds the accepted values, the star is"
        " the policy.",
    )
    with drawn(drawing, 3.6) as (axes,):
        _draw_acceptance(axes, data)
        for label, marker, filling in (
            ("one run", "o", "full"),
            ("one run, stopped early", "o", "none"),
            ("one later run", "s", "full"),
        ):
            alike = [run for run in sound if _label(run) == label]
            x = [places[run.trial.trial_id] for run in alike]
            y = [metric.value(run.trial.result.converged_accuracy or 0.0) for run in alike]
            if alike:
                style = {"color": "#333", "ms": 5, "alpha": 0.7, "fillstyle": filling}
                axes.plot(x, y, marker, **style, label=label)
        _draw_diverged(
            axes, [places[run.trial.trial_id] for run in runs if run.trial.result.diverged]
        )
        axes.margins(y=0.2)
        axes.set_ylim(axes.get_ylim())  # the interval of two runs may be wider, and is cut
        by_percent = {one.percent: mean for one in data.switch_points if (mean := one.accuracy)}
        means, halves = _means_and_halves(list(by_percent.values()), metric)
        x = [axis.at(percent) for percent in by_percent]
        label = "mean, 95 % interval"
        axes.errorbar(x, means, halves, color=FIRST, fmt="D:", ms=9, fillstyle="none", label=label)
        answer = data.answer
        if answer is not None and answer.measured.mean_accuracy is not None:
            label = f"the policy: {percent_text(answer.switch_percent)}"
            place, value = axis.at(answer.switch_percent), answer.measured.mean_accuracy
            style = {"color": POLICY, "ms": 15, "mec": "white", "label": label}
            axes.plot(place, metric.value(value), "*", **style)
        axis.label(axes.xaxis, axes.set_xlim, data.first)
        axes.set_ylabel(axis_title(f"converged {metric.axis_title}"))
    return drawing


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


def training_time(data: ReportData) -> Drawing:
    """Mean training time of each switch point, relative to the first protocol alone.

    As in Fig. 10 of the Sync-Switch paper. Whiskers are 95 % intervals of the mean (Student's); a
    single run has none. A run that was stopped early counts with what the whole would have taken.
    Where nothing is known of the first protocol alone, the bars are in seconds.

    Raises:
        UserError: No training time is known, or matplotlib is missing.
    """
    timed = [(one, mean) for one in data.switch_points if (mean := one.seconds)]
    if not timed:
        _check_compared(data)
        raise UserError(f"no training time of {data.identity.name} is known yet")
    baseline = data.baseline_seconds
    unit = baseline / 100 if baseline else 1.0
    answer = None if data.answer is None else data.answer.switch_percent
    drawing = Drawing(
        "Training time", "A bar for each switch point; whiskers are 95 % intervals of the mean."
    )
    with drawn(drawing, 3.0) as (axes,):
        for place, (one, mean) in enumerate(timed):
            colour, edge = ("#8FD0BB", POLICY) if one.percent == answer else ("#C3D2DE", QUIET)
            whisker = (mean.high - mean.value) / unit if len(one.runs) > 1 else None
            axes.bar(place, mean.value / unit, 0.8, yerr=whisker, color=colour, ec=edge, capsize=3)
            text = f"{mean.value / unit:.0f} %" if baseline else f"{mean.value:,.0f} s"
            axes.annotate(text, (place, 0), (0, 3), textcoords="offset points", ha="center")
        first = literal(data.first)
        if baseline:
            axes.axhline(100, color=QUIET, linestyle="--")
        axes.set_xticks(range(len(timed)), [f"{one.percent:.4g}" for one, _ in timed])
        axes.set_xlabel(f"switch point (% of the job in {first})")
        axes.set_ylabel(
            f"% of the time with {first} alone" if baseline else "training time, seconds"
        )
    return drawing


def search_path(data: ReportData) -> Drawing:
    """The runs of the search in their order, and where the answer could lie after each of them.

    A mark is a run at its switch point; its shape is the strategy's verdict on the switch point
    after it. The band is the bracket: from the highest switch point known to switch too early to
    the lowest known to be acceptable.

    Raises:
        UserError: There is no search, no run of it is complete, or matplotlib is missing.
    """
    steps, metric = data.path, data.identity.decided_by
    if data.search is None:
        raise UserError(f"no search of {data.identity.name} is recorded here, only runs")
    if not steps:
        raise UserError("no run of the search is complete yet")
    ends = [end for step in steps for end in (step.lower_percent, step.upper_percent)]
    axis = SwitchAxis([*(step.run.switch_percent for step in steps), *ends])
    drawing = Drawing(
        "The course of the search",
        "A mark for each run at its switch point; the band is where the answer could lie then.",
    )
    with drawn(drawing, 3.6) as (axes,):
        numbers = [number + 0.5 for number in range(len(steps) + 1)]
        low, high = ([axis.at(one) for one in (*ends[side::2], ends[side - 2])] for side in (0, 1))
        axes.fill_between(numbers, low, high, step="post", color=BAND, label="could be the answer")
        if data.answer is not None and data.is_found_here:
            place = axis.at(data.answer.switch_percent)
            axes.axhline(place, color=POLICY, linestyle="--", label="the answer")
        for kind, (label, marker, colour) in _KINDS.items():
            filling = "none" if kind in ("open", "speculative") else "full"
            mine = [number for number, step in enumerate(steps) if step.kind == kind]
            if mine:
                y = [axis.at(steps[number].run.switch_percent) for number in mine]
                x = [number + 1 for number in mine]
                style = {"color": colour, "ms": 7, "fillstyle": filling, "label": label}
                axes.plot(x, y, marker, **style)
        if len(steps) <= _MOST_WORDS:
            for number, step in enumerate(steps, 1):
                run = step.run
                words = "diverged" if run.diverged else f"{metric.value(run.accuracy):.3g}"
                at = (number, axis.at(run.switch_percent))
                axes.annotate(
                    words, at, (0, 6), textcoords="offset points", ha="center", fontsize=7.5
                )
        axes.set_xlim(0.4, len(steps) + 0.6)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlabel("run of the search")
        axis.label(axes.yaxis, axes.set_ylim, data.first)
    return drawing


def accuracy_over_time(data: ReportData) -> Drawing:
    """Test accuracy over training time: the first protocol alone, the policy, an early switch.

    As in Fig. 11 of the Sync-Switch paper. A thick line is the run of median accuracy of its
    switch point, with a mark at its switch; thin lines are others.

    Raises:
        UserError: No curve is recorded, or matplotlib is missing.
    """
    metric = data.identity.decided_by
    by_switch_point: dict[float, list[RecordedRun]] = {}
    for run in data.compared:
        whole = None if run.trial.failed else run.whole
        if whole is not None and len(whole.evaluations) > 1:
            by_switch_point.setdefault(run.trial.candidate_percent or 0.0, []).append(whole)
    if not by_switch_point:
        _check_compared(data)
        raise UserError("no run has a recorded curve of accuracy")
    drawing = Drawing(
        f"{_named(metric)} over time",
        "A line for each run; thick is the one of median accuracy of its switch point, and the mark"
        " on it is its switch.",
    )
    with drawn(drawing, 3.4) as (axes,):
        if data.acceptance is not None:
            target = metric.value(data.acceptance.target_accuracy)
            axes.axhline(target, color=QUIET, linestyle=":", label="target")
        for percent, colour, style, label in _roles(data, sorted(by_switch_point)):
            alike = sorted(by_switch_point[percent], key=lambda run: run.accuracy)
            median = alike[len(alike) // 2]
            for other in [one for one in alike if one is not median][-_MOST_CURVES:]:
                axes.plot(*_curve(other, metric), color=colour, ls=style, lw=0.8, alpha=0.4)
            gone = ", diverged" if median.diverged else ""
            x, y = _curve(median, metric)
            axes.plot(x, y, color=colour, ls=style, lw=2.2, label=literal(label + gone))
            if len(median.phases) > 1 and x:
                at = median.clock().seconds_at(median.switch_worker_step)
                axes.plot(at, np.interp(at, x, y), "D", color=colour, ms=8, mec="white")
        sound = [one for runs in by_switch_point.values() for one in runs if not one.diverged]
        shown = [value for one in sound for value in _curve(one, metric)[1]]
        if shown and len(sound) < sum(map(len, by_switch_point.values())):
            # A run that diverged leaves the figure.
            room = 0.08 * max(max(shown) - min(shown), 0.01)
            axes.set_ylim(min(shown) - room, max(shown) + room)
        axes.set_xlim(0, None)
        axes.set_xlabel("training time in seconds")
        axes.set_ylabel(axis_title(f"test {metric.axis_title}"))
    return drawing


def _roles(data: ReportData, percents: Sequence[float]) -> Iterator[tuple[float, str, str, str]]:
    """The switch points to compare, of those that have curves: colour, line style and label."""
    answer = data.answer.switch_percent if data.answer is not None else None
    if answer is None and data.acceptance is not None:
        least = data.acceptance.least_accuracy
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
        raise UserError("no later run with the policy is recorded yet")
    metric = data.identity.decided_by
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
    with drawn(drawing, 2.8, 1.9) as (axes, below):
        _draw_acceptance(axes, data)
        for label, is_kept, marker, colour in (
            ("kept", True, "o", POLICY),
            ("not kept", False, "X", SECOND),
            ("no target measured", None, "o", QUIET),
        ):
            values = {
                number: metric.value(use.result.accuracy)
                for number, use in uses
                if use.result.kept is is_kept and not use.result.diverged
            }
            if values:
                x, y = list(values), list(values.values())
                axes.plot(x, y, marker, color=colour, ms=6, label=label)
        _draw_diverged(axes, [number for number, use in uses if use.result.diverged])
        axis = SwitchAxis(
            [*(use.guard.held_percent for _, use in uses), *(one for _, one in failed)]
        )
        held = [axis.at(use.guard.held_percent) for _, use in uses]
        below.plot([n for n, _ in uses], held, "o", color=POLICY, ms=5, label="switch that held")
        if failed:
            x, y = [n for n, _ in failed], [axis.at(percent) for _, percent in failed]
            below.plot(x, y, "X", color=SECOND, ms=6, label="switch that failed")
        for (number, before), (_, use) in itertools.pairwise(uses):
            if use.policy_version != before.policy_version:
                axes.axvline(number + 0.5, color=QUIET, linestyle=":", label="another version")
        axes.margins(y=0.2)
        for one in (axes, below):
            one.set_xlim(0.4, len(uses) + 0.6)
            one.xaxis.get_major_locator().set_params(integer=True)
        below.set_xlabel("later run")
        axes.set_ylabel(axis_title(f"converged {metric.axis_title}", 24))
        axis.label(below.yaxis, below.set_ylim, data.first, "switched at %")
    return drawing


def _check_compared(data: ReportData) -> None:
    """Raises UserError with the reason where no run can be compared."""
    if data.compared:
        return
    name, unplaced = data.identity.name, data.unplaced_runs
    if not unplaced:
        raise UserError(f"no run of {name} is complete yet")
    raise UserError(
        f"{counted(unplaced, 'complete run')} of {name} cannot be compared: imported without the"
        " switch point to count for (candidate_percent)"
    )


def _side_by_side(runs: Sequence[ReportRun], axis: SwitchAxis) -> dict[int, float]:
    """A place on the axis for each run, so that equal runs do not hide each other."""
    places: dict[int, float] = {}
    for percent in axis.percents:
        same = [run.trial.trial_id for run in runs if (run.trial.candidate_percent or 0) == percent]
        for number, trial_id in enumerate(same):
            aside = (number + 0.5) / len(same) - 0.5
            places[trial_id] = axis.at(percent) + _SPREAD * 2 * aside
    return places


def _draw_acceptance(axes: Any, data: ReportData) -> None:
    if data.acceptance is None:
        return
    metric, acceptance = data.identity.decided_by, data.acceptance
    target = metric.value(acceptance.target_accuracy)
    if not acceptance.threshold:  # not measured yet
        axes.axhline(target, color=POLICY, label="target")
        return
    least = metric.value(acceptance.least_accuracy)
    axes.axhspan(least, target, color=BAND)
    label = literal(f"target {metric.text(acceptance.target_accuracy)}")
    axes.axhline(target, color=POLICY, label=label)
    label = literal(f"{metric.words.worst} accepted {metric.text(acceptance.least_accuracy)}")
    axes.axhline(least, color=POLICY, linestyle="--", label=label)


def _draw_diverged(axes: Any, places: Sequence[float]) -> None:
    if places:
        style = {"color": SECOND, "ms": 7, "transform": axes.get_xaxis_transform()}
        axes.plot(places, [0.04] * len(places), "x", **style, label="diverged", scaley=False)


def _named(metric: Metric) -> str:
    return capitalized(metric.name)
