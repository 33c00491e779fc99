"""The numbers behind each figure, as tables; pure."""

from __future__ import annotations

from syncswitch.searcher.report.costs import switch_point_costs
from syncswitch.searcher.report.curves import drawn_curves
from syncswitch.searcher.report.data import ReportData
from syncswitch.searcher.report.happened import eventful_runs
from syncswitch.searcher.report.phases import switch_point_phases
from syncswitch.searcher.report.search_path import kind_of
from syncswitch.searcher.report.table import (
    NONE,
    Table,
    accuracy_text,
    conditions_words,
    percent_text,
    run_name,
    seconds_text,
    table_of,
    value_text,
)

_VERDICTS = {
    "target": "target",
    "accepted": "keeps the accuracy",
    "rejected": "loses too much",
    "open": "open",
    "in advance": "made in advance",
}


def accuracy_table(data: ReportData) -> Table:
    """Accuracy of each switch point."""
    rows = []
    for one in data.switch_points:
        rows.append(
            (
                percent_text(one.candidate_percent),
                str(one.runs),
                str(one.diverged_runs),
                accuracy_text(one.mean_accuracy),
                accuracy_text(one.lower_accuracy),
                accuracy_text(one.upper_accuracy),
            )
        )
    columns = ("switch at", "runs", "diverged", "accuracy", "from (95 %)", "to (95 %)")
    return table_of("Accuracy of the switch points", columns, rows)


def time_table(data: ReportData) -> Table:
    """Training time of each switch point."""
    rows = []
    baseline = data.baseline_seconds
    for one in data.switch_points:
        seconds = data.whole_seconds(one.candidate_percent)
        rows.append(
            (
                percent_text(one.candidate_percent),
                seconds_text(seconds.value if seconds else None),
                seconds_text(seconds.half if seconds else None),
                NONE if seconds is None or not baseline else f"{seconds.value / baseline:.2f}",
            )
        )
    columns = ("switch at", "seconds", "± (95 %)", f"time / {data.first}")
    return table_of("Training time of the switch points", columns, rows)


def path_table(data: ReportData) -> Table:
    """The runs of the search in its order."""
    return table_of(
        "Runs of the search, in its order",
        ("run", "trial", "switch at", "accuracy", "the switch point", "bracket after it"),
        [
            (
                str(number),
                str(step.trial_number),
                percent_text(step.switch_percent),
                "diverged" if step.diverged else f"{step.accuracy:.4f}",
                _VERDICTS[kind_of(step)],
                f"{step.lower_percent:g} to {step.upper_percent:g} %",
            )
            for number, step in enumerate(data.path, start=1)
        ],
    )


def curve_table(data: ReportData) -> Table:
    """The curves that are drawn: where they switch and end."""
    return table_of(
        "Curves",
        (
            "run",
            "switch at",
            "tests",
            "switch after",
            "end after",
            "last accuracy",
            "best accuracy",
        ),
        [
            (
                curve.name,
                percent_text(curve.candidate_percent),
                str(len(curve.seconds)),
                seconds_text(curve.switch[0] if curve.switch else None),
                seconds_text(curve.seconds[-1]),
                accuracy_text(curve.accuracies[-1]),
                accuracy_text(max(curve.accuracies)),
            )
            for curve in drawn_curves(data)
        ],
    )


def cost_table(data: ReportData) -> Table:
    """What the search cost, by switch point."""
    columns = (
        "switch at",
        "runs",
        "needed s",
        "in vain s",
        "shared s",
        "stopped s",
        "interrupted, lost or failed",
    )
    return table_of(
        "Training time of the search",
        columns,
        [
            (
                percent_text(one.candidate_percent),
                str(one.runs),
                seconds_text(one.needed_seconds),
                seconds_text(one.vain_seconds),
                seconds_text(one.shared_seconds),
                seconds_text(one.stopped_seconds),
                str(one.lost_runs),
            )
            for one in switch_point_costs(data)
        ],
    )


def payback_table(data: ReportData) -> Table:
    """Training time with and without the search after so many trainings."""
    rows = []
    if data.cost is not None and data.policy_seconds and data.speed_up:
        for trainings in (1, 2, 5, 10, 20, 50, 100):
            usual = trainings * data.policy_seconds * data.speed_up
            ours = data.cost.paid_seconds + trainings * data.policy_seconds
            times = map(seconds_text, (usual, ours, usual - ours))
            rows.append((str(trainings), *times))
    columns = ("trainings", f"{data.first} alone, s", "search and policy, s", "saved, s")
    return table_of("Training time in all", columns, rows)


def phase_table(data: ReportData) -> Table:
    """Throughput and staleness."""
    columns = ("switch at", "protocol", "runs", "worker-steps/s", "staleness", "largest")
    return table_of(
        "Phases",
        columns,
        [
            (
                percent_text(one.candidate_percent),
                one.protocol.upper(),
                str(one.runs),
                value_text(one.worker_steps_per_second, ",.1f"),
                value_text(one.mean_staleness, ".2f"),
                NONE if one.max_staleness is None else str(one.max_staleness),
            )
            for one in switch_point_phases(data)
        ],
    )


def event_table(data: ReportData) -> Table:
    """What happened, run by run."""
    columns = ("line", "run", "under", "event", "worker", "worker-step", "after s", "why")
    return table_of(
        "Events",
        columns,
        [
            (
                str(number),
                run_name(run),
                conditions_words(run.trial.conditions) if event is run.events[0] else "",
                event.kind,
                NONE if event.worker is None else str(event.worker),
                f"{event.worker_step:,}",
                seconds_text(event.elapsed_seconds),
                event.reason,
            )
            for number, run in enumerate(eventful_runs(data), start=1)
            for event in run.events
        ],
    )
