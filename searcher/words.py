"""Single values as people read them; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

from syncswitch.storage.policies.unmeasured import recorded_jobs_text
from syncswitch.storage.records.goal import AllowedLoss
from syncswitch.storage.records.job import (
    OWN_MOMENTUM,
    OWN_OPTIMIZER,
    SEMI_SYNC,
    RunConditions,
    protocol_label,
    protocol_text,
)
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import BASELINE_PERCENT
from syncswitch.storage.trials.values import condition_values

_ACCURACY = Metric()

NONE = "-"
"""The cell of an unknown value."""

UNJUDGED = "It is unknown whether later runs kept the accuracy, as no target is measured."
"""For uses of a job that has never run with the first protocol alone."""


def value_text(value: float | None, form: str) -> str:
    """A number in a format; `-` for None."""
    return NONE if value is None else format(value, form)


def accuracy_text(accuracy: float | None, metric: Metric = _ACCURACY) -> str:
    """The metric's own value with its unit, for example `0.9832`, `12.5000 km`."""
    return NONE if accuracy is None else metric.text(accuracy)


def seconds_text(seconds: float | None) -> str:
    """For example `1,234.5`."""
    return value_text(seconds, ",.1f")


def duration_text(seconds: float) -> str:
    """A duration, such as `45 s`, `12 min` or `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def percent_text(percent: float) -> str:
    """A switch point, for example `12.5 %`."""
    return f"{percent:.6g} %"


def switch_text(percent: float, first_protocol: str) -> str:
    """A switch point in tables, for example `25 %`, or `100 % (BSP)`."""
    alone = f" ({protocol_label(first_protocol)})" if percent >= BASELINE_PERCENT else ""
    return f"{percent:g} %{alone}"


def momentum_text(rule: str | None) -> str | None:
    """Describes the momentum of the second protocol; None if it is not known."""
    if rule in (None, OWN_MOMENTUM):
        return rule and "each worker keeps its own momentum"
    if rule == OWN_OPTIMIZER:
        return "each worker has an optimizer of its own"
    if rule == SEMI_SYNC:
        return "the momenta of all workers are averaged"
    return "all workers share one momentum" + ("" if rule == "same" else f", {rule}")


def workers_text(workers: int, simulated_cluster: str | None) -> str:
    """The size of a cluster, for example `4 simulated`."""
    return f"{workers}" if simulated_cluster is None else f"{workers} simulated"


def counted(number: int, what: str) -> str:
    """A count with its noun, for example `1 run`, `1,200 runs`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def other_jobs_text(own_jobs: int, rule: str | None, names: Iterable[str] = ()) -> str:
    """The jobs that a first belief rests on, for example `7 recorded jobs and 1 job of this ...`.

    `rule` is that of the second phase.

    The recorded ones may have names.
    """
    named = f" ({'; '.join(names)})" if names else ""
    own = f" and {counted(own_jobs, 'job')} of this database" if own_jobs else ""
    return f"{recorded_jobs_text(rule)}{named}{own}"


def accuracy_interval(
    mean: float | None, low: float | None, high: float | None, metric: Metric = _ACCURACY
) -> str:
    """A mean with its interval, as the metric's own value, for example `0.9100 ± 0.0021`.

    An interval that is cut off at the limits of the metric, as that of a few very different runs,
    is written by its ends, `0.5000 (0 to 1)`. A single run has none.
    """
    if mean is None or low is None or high is None:
        return accuracy_text(mean, metric)
    value = metric.number(metric.value(mean))
    if math.isclose(mean - low, high - mean, rel_tol=1e-6, abs_tol=1e-9):
        return metric.with_unit(f"{value} ± {metric.number(high - mean)}")
    least, largest = sorted(map(metric.value, (low, high)))
    return metric.with_unit(f"{value} ({least:.4g} to {largest:.4g})")


def accuracy_around(mean: float | None, half: float | None, metric: Metric) -> str:
    """A mean with its interval, given half the width of the interval."""
    if mean is None or half is None:
        return accuracy_text(mean, metric)
    return accuracy_interval(mean, metric.limited(mean - half), metric.limited(mean + half), metric)


def capitalized(text: str) -> str:
    """A text with a capital letter; the others stay as they are."""
    return f"{text[:1].upper()}{text[1:]}"


def sentence(clause: str) -> str:
    """A clause as a sentence, with a capital letter and a full stop."""
    return f"{capitalized(clause)}."


def trainings_text(number: float, first_protocol: str) -> str:
    """A cost, for example `1.6 trainings with BSP alone`."""
    return f"{number:.1f} trainings with {protocol_text(first_protocol)} alone"


def measured_threshold_text(allowed: AllowedLoss, metric: Metric, first: str) -> str:
    """The origin of a threshold that was not given; a sentence without its full stop."""
    amount = metric.with_unit(f"{allowed.threshold:g}")
    return (
        f"no threshold was given for {metric.name}, so up to {amount} worse is accepted: judging by"
        f" the first {allowed.runs} runs with {first} alone, 1 in 20 is worse than that by"
        " chance; give a threshold to use another one"
    )


def metric_title(metrics: Iterable[Metric]) -> str:
    """The title of a column of metrics: their name, or `metric` where they differ."""
    names = {metric.name for metric in metrics}
    return names.pop() if len(names) == 1 else "metric"


def named_text(text: str, metric: Metric, title: str) -> str:
    """A value in a column with this title, with its metric's name unless that is the title."""
    return text if title == metric.name or text == NONE else f"{metric.name} {text}"


def conditions_text(
    online: str | None, switch_mechanism: str | None, injections: str | None
) -> str:
    """The unusual conditions of a run, for example `elastic, restart`."""
    usual = {"none", "hot"}
    return ", ".join(
        text for text in (online, switch_mechanism, injections) if text and text not in usual
    )


def run_conditions_text(conditions: RunConditions) -> str:
    """The unusual conditions of a run, in words."""
    return conditions_text(**condition_values(conditions))
