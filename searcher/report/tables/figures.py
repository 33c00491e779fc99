"""The numbers behind each figure of a report; pure."""

from __future__ import annotations

from collections.abc import Callable

from syncswitch.searcher.report.data import MeanSeconds, ReportData
from syncswitch.searcher.report.history import kind_of
from syncswitch.searcher.report.series import (
    drawn_curves,
    eventful_runs,
    switch_point_costs,
    switch_point_phases,
)
from syncswitch.searcher.report.tables.table import Table, table_of
from syncswitch.searcher.report.times import SwitchPointTimes, switch_point_times
from syncswitch.searcher.text.sentences import times_text
from syncswitch.searcher.text.values import (
    NONE,
    accuracy_text,
    counted,
    percent_text,
    run_conditions_text,
    seconds_text,
    value_text,
)
from syncswitch.searcher.text.why import belief_cells, belief_columns
from syncswitch.storage.queries.summaries import SwitchPointStatistics
from syncswitch.storage.records.metric import Metric

_VERDICTS = {
    "target": "target",
    "accepted": "keeps the accuracy",
    "rejected": "loses too much",
    "open": "open",
    "speculative": "speculative",
}


def accuracy_table(data: ReportData) -> Table:
    """Accuracy of each switch point."""
    points, metric = data.switch_points, data.identity.decided_by
    second = next((one.mean_accuracy for one in points if one.candidate_percent <= 0), None)
    columns: dict[str, Callable[[SwitchPointStatistics], str]] = {
        "switch at": lambda one: percent_text(one.candidate_percent),
        "runs": lambda one: str(one.runs),
        "diverged": lambda one: str(one.diverged_runs),
        metric.name: lambda one: accuracy_text(one.mean_accuracy, metric),
        "from (95 %)": lambda one: _value_text(one.lower_value, metric),
        "to (95 %)": lambda one: _value_text(one.upper_value, metric),
    }
    if second is not None:
        columns[f"better than {data.second}"] = lambda one: value_text(
            None if one.mean_accuracy is None else one.mean_accuracy - second,
            "+.4f" if metric.has_usual_threshold else "+.3g",
        )
    name = f"{metric.name[:1].upper()}{metric.name[1:]}"
    return table_of(f"{name} of the switch points", points, columns)


def _value_text(value: float | None, metric: Metric) -> str:
    return NONE if value is None else metric.amount(value)


def time_table(data: ReportData) -> Table:
    """Training time of each switch point, as in Table I of the Sync-Switch paper."""
    times = switch_point_times(data)
    second = next((one.seconds for one in times if one.candidate_percent <= 0), None)
    columns: dict[str, Callable[[SwitchPointTimes], str]] = {
        "switch at": lambda one: percent_text(one.candidate_percent),
        "seconds (95 %)": lambda one: _mean_text(one.seconds),
        f"time / {data.first}": lambda one: _ratio(one.seconds, data.baseline_seconds),
        "times as fast (90 %)": lambda one: times_text(one.speed_up),
        "seconds to the target (95 %)": lambda one: _mean_text(one.to_target),
        "reached by": lambda one: f"{len(one.waits)} of {counted(one.runs, 'run')}",
    }
    if second is not None:
        columns[f"time / {data.second}"] = lambda one: _ratio(one.seconds, second.value)
    return table_of("Training time of the switch points", times, columns)


def _mean_text(seconds: MeanSeconds | None) -> str:
    if seconds is None or seconds.half is None:
        return seconds_text(seconds.value if seconds else None)
    return f"{seconds_text(seconds.value)} ± {seconds_text(seconds.half)}"


def _ratio(seconds: MeanSeconds | None, unit: float | None) -> str:
    return value_text(seconds.value / unit if seconds and unit else None, ".2f")


def path_table(data: ReportData) -> Table:
    """The runs of the search in its order."""
    trial_ids = data.trial_ids
    metric = data.identity.decided_by
    return table_of(
        "Runs of the search, in its order",
        list(enumerate(data.path, start=1)),
        {
            "run": lambda row: str(row[0]),
            "trial": lambda row: str(row[1].trial_number),
            "switch at": lambda row: percent_text(row[1].switch_percent),
            metric.name: lambda row: (
                "diverged" if row[1].diverged else metric.text(row[1].accuracy)
            ),
            "the switch point": lambda row: _VERDICTS[kind_of(row[1])],
            "bracket after it": lambda row: (
                f"{row[1].lower_percent:g} to {row[1].upper_percent:g} %"
            ),
        },
        lambda row: trial_ids.get(row[1].trial_number),
    )


def belief_table(data: ReportData) -> Table:
    """What the search believed of each switch point after each of its runs."""
    why, metric, title = data.why, data.identity.decided_by, "How likely each switch point is good"
    if why is None or not why.beliefs:
        return Table(title, (), ())
    rows = (tuple(belief_cells(why, number, metric)) for number in range(len(why.runs)))
    is_searched = data.policy is None or data.is_found_here  # else its runs are not of the search
    known = data.trial_ids if is_searched else {}
    runs = tuple(known.get(one.run.trial_number) for one in why.runs)
    return Table(title, belief_columns(why, metric), tuple(rows), trial_ids=runs)


def curve_table(data: ReportData) -> Table:
    """The curves that are drawn: where they switch and end."""
    metric = data.identity.decided_by
    return table_of(
        "Curves",
        drawn_curves(data),
        {
            "run": lambda curve: curve.name,
            "switch at": lambda curve: percent_text(curve.candidate_percent),
            "evaluations": lambda curve: str(len(curve.seconds)),
            "switch after": lambda curve: seconds_text(curve.switch and curve.switch[0]),
            "end after": lambda curve: seconds_text(curve.seconds[-1]),
            f"last {metric.name}": lambda curve: metric.text(curve.accuracies[-1]),
            f"best {metric.name}": lambda curve: metric.text(max(curve.accuracies)),
        },
        lambda curve: curve.trial_id,
    )


def cost_table(data: ReportData) -> Table:
    """What the search cost, by switch point."""
    return table_of(
        "Training time of the search",
        switch_point_costs(data),
        {
            "switch at": lambda one: percent_text(one.candidate_percent),
            "runs": lambda one: str(one.runs),
            "needed s": lambda one: seconds_text(one.needed_seconds),
            "not needed s": lambda one: seconds_text(one.unneeded_seconds),
            "shared s": lambda one: seconds_text(one.shared_seconds),
            "stopped s": lambda one: seconds_text(one.stopped_seconds),
            "interrupted, stale or failed": lambda one: str(one.failed_runs),
        },
    )


def payback_table(data: ReportData) -> Table:
    """Training time with and without the search after so many trainings."""
    rows = []
    if data.cost is not None and data.policy_seconds and data.speed_up:
        for trainings in (1, 2, 5, 10, 20, 50, 100):
            usual = trainings * data.policy_seconds * data.speed_up
            rows.append(
                (trainings, usual, data.cost.paid_seconds + trainings * data.policy_seconds)
            )
    return table_of(
        "Total training time",
        rows,
        {
            "trainings": lambda row: str(row[0]),
            f"{data.first} alone, s": lambda row: seconds_text(row[1]),
            "search and policy, s": lambda row: seconds_text(row[2]),
            "saved, s": lambda row: seconds_text(row[1] - row[2]),
        },
    )


def phase_table(data: ReportData) -> Table:
    """Throughput and staleness."""
    return table_of(
        "Phases",
        switch_point_phases(data),
        {
            "switch at": lambda one: percent_text(one.candidate_percent),
            "protocol": lambda one: one.protocol.upper(),
            "runs": lambda one: f"{one.runs} (shared)" if one.is_shared else str(one.runs),
            "worker-steps/s": lambda one: value_text(one.worker_steps_per_second, ",.1f"),
            "staleness": lambda one: value_text(one.mean_staleness, ".2f"),
            "largest": lambda one: value_text(one.max_staleness, "d"),
        },
    )


def event_table(data: ReportData) -> Table:
    """What happened, run by run."""
    return table_of(
        "Events",
        [
            (number, run, event)
            for number, run in enumerate(eventful_runs(data), start=1)
            for event in run.events
        ],
        {
            "line": lambda row: str(row[0]),
            "run": lambda row: row[1].full_name,
            "under": lambda row: (
                (run_conditions_text(row[1].trial.conditions) or NONE)
                if row[2] is row[1].events[0]
                else ""
            ),
            "event": lambda row: row[2].kind,
            "worker": lambda row: value_text(row[2].worker, "d"),
            "worker-step": lambda row: f"{row[2].worker_step:,}",
            "after s": lambda row: seconds_text(row[2].elapsed_seconds),
            "why": lambda row: row[2].reason,
        },
        lambda row: row[1].trial.trial_id,
    )
