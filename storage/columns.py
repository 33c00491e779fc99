"""The columns of the tables for users: name, type and meaning.

The annotated fields of a record describe the columns of its table:
`runs: Annotated[int, "completed runs"]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar

from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import TrialState


@dataclass(frozen=True, slots=True)
class JobColumns:
    """The job of a row."""

    workload: Annotated[str, "name of the workload"]
    fingerprint: Annotated[str, "fingerprint of the job: the workload on its cluster"]
    workers: Annotated[int, "n, size of the cluster"]
    simulated_cluster: Annotated[
        str | None, "digest of the simulated cluster's profile; null for a real one"
    ]
    first_protocol: Annotated[str, "protocol before the switch"]
    second_protocol: Annotated[str, "protocol after the switch"]
    momentum_after_switch: Annotated[
        str | None, "momentum of the second protocol, such as own or same; null if it is not known"
    ]


@dataclass(frozen=True, slots=True)
class MetricColumns:
    """The metric of a row: beside each accuracy, of which more is better, stands its own value."""

    COLUMNS: ClassVar[Mapping[str, str]] = Metric.COLUMNS

    name: Annotated[str, "name of the metric that its runs are compared by"]
    goal: Annotated[
        str, "max if more of the metric is better; if min, every accuracy is its negative"
    ]
    unit: Annotated[str | None, "unit of the metric's values; null for none"]

    @property
    def metric(self) -> Metric:
        """The metric, of which a row does not say the range."""
        return Metric(self.name, self.goal, self.unit)


@dataclass(frozen=True, slots=True)
class ConditionColumns:
    """The conditions of a run, see `RunConditions`."""

    online: Annotated[str, "policy on stragglers: none, greedy or elastic"]
    switch_mechanism: Annotated[str, "way of switching: hot or restart"]
    injections: Annotated[str | None, "disturbances on purpose, joined by '; '; null for none"]


@dataclass(frozen=True, slots=True)
class OriginColumns:
    """Who made a run."""

    kind: Annotated[str, "search, import, or use: a later run with a policy, which no search made"]
    study: Annotated[str | None, "search that it belongs to; null for none"]
    trial_number: Annotated[int | None, "number in its search; null without one"]
    source: Annotated[str | None, "name of an imported run; null for others"]
    use_id: Annotated[
        str | None, "identifier of a use, the same in every database; null for others"
    ]
    policy_version: Annotated[
        int | None, "version of the policy that a use trained with; null for others"
    ]


@dataclass(frozen=True, slots=True)
class ResultColumns:
    """What a run reached; null until it is complete."""

    converged_accuracy: Annotated[
        float | None,
        "mean accuracy of the last evaluations, those in a fork's prefix included; 0 to 1, or in"
        " another metric's own sense, of which more is better",
    ]
    converged_value: Annotated[float | None, "the same as a value of the metric, in its unit"]
    converged_evaluations: Annotated[
        int | None, "number of those evaluations: 5, or all of a shorter run; 1 if imported"
    ]
    final_accuracy: Annotated[float | None, "accuracy of the last evaluation"]
    final_value: Annotated[float | None, "the same as a value of the metric, in its unit"]
    converged: Annotated[bool | None, "whether the last 5 evaluations span at most 0.1 pp"]
    diverged: Annotated[bool | None, "whether it diverged"]
    stopped_early: Annotated[bool | None, "whether it was stopped before W"]
    plateau_accuracy: Annotated[
        float | None,
        "accuracy at which a whole run might have been stopped, in a search that may do so",
    ]


@dataclass(frozen=True, slots=True)
class TimeColumns:
    """How long a run took."""

    training_seconds: Annotated[
        float | None,
        "training time until its end or its stop, a fork's prefix included; null for failed runs"
        " other than those that were no longer needed",
    ]
    inherited_seconds: Annotated[float | None, "the part of it that a fork did not pay for"]
    paid_seconds: Annotated[float | None, "the rest of it"]
    whole_run_seconds: Annotated[
        float | None,
        "training_seconds, or for a stopped run an estimate for the whole; null if unknown, failed"
        " or diverged",
    ]
    switch_overhead_seconds: Annotated[
        float | None, "duration of the switch, which is not training time"
    ]
    first_phase_seconds: Annotated[float | None, "the part of paid_seconds in the first protocol"]
    first_phase_worker_steps_per_second: Annotated[float | None, "throughput in that part"]
    second_phase_seconds: Annotated[float | None, "the part of paid_seconds in the second protocol"]
    second_phase_worker_steps_per_second: Annotated[float | None, "throughput in that part"]


@dataclass(frozen=True, slots=True)
class GuardColumns:
    """What the guard of a run did."""

    COLUMNS: ClassVar[Mapping[str, str]] = {"state": "guard", "lost_seconds": "guard_lost_seconds"}

    state: Annotated[
        str | None, "off, quiet, or alarmed (it sent the run back to its switch); null if unknown"
    ]
    failed_switches: Annotated[
        int, "number of switches that failed, each a row of syncswitch_failed_switches"
    ]
    held_percent: Annotated[
        float | None,
        "switch with which the run came to its end, after those that failed; 100 for the first"
        " protocol alone; null if it ended at an alarm, or is unknown",
    ]
    lost_seconds: Annotated[
        float | None, "training time from failed switches to their alarms; null without any"
    ]


@dataclass(frozen=True, slots=True)
class TargetColumns:
    """The target of a run, and when it was reached."""

    COLUMNS: ClassVar[Mapping[str, str]] = {
        "accuracy": "target_accuracy",
        "value": "target_value",
        "seconds": "time_to_accuracy_seconds",
        "is_censored": "time_to_accuracy_is_censored",
    }

    accuracy: Annotated[float | None, "target of the search or the policy; null while unknown"]
    value: Annotated[float | None, "the same as a value of the metric, in its unit"]
    seconds: Annotated[
        float | None,
        "training time at the first evaluation at the target, in a fork's prefix or after",
    ]
    is_censored: Annotated[
        bool | None, "whether it never reached the target: that takes longer than training_seconds"
    ]


@dataclass(frozen=True, slots=True)
class TrialFacts:
    """All that is known of a trial but its phases and evaluations.

    Side by side, the fields are the columns of the view `syncswitch_trial_facts`, and of `trials`
    in `frames`.
    """

    trial_id: Annotated[int, "number in this database"]
    job: JobColumns
    total_worker_steps: Annotated[int, "W, length of the job"]
    metric: MetricColumns
    origin: OriginColumns
    candidate_percent: Annotated[float | None, "switch point that it counts for; null for none"]
    switch_percent: Annotated[float, "percent of W in the first protocol"]
    replicate: Annotated[int, "index among the repeats of its switch point"]
    seed: Annotated[int | None, "seed of parameters and order of data; null if unknown"]
    parent_trial_id: Annotated[int | None, "trial that it was forked from; null for none"]
    fork_percent: Annotated[float | None, "percent of W at which it was forked"]
    under: ConditionColumns
    speculative: Annotated[bool, "begun in advance, before the search was known to need it"]
    state: Annotated[TrialState, "running, complete or failed"]
    result: ResultColumns
    worker_steps: Annotated[int, "done so far, a fork's prefix included"]
    times: TimeColumns
    guard: GuardColumns
    target: TargetColumns
    started_at: Annotated[datetime | None, "UTC"]
    ended_at: Annotated[datetime | None, "UTC; null while running"]
    host: Annotated[str | None, "machine of the chief; null if unknown"]
    failure: Annotated[str | None, "reason of its failure"]
    software: Annotated[dict[str, str] | None, "version by name of distribution"]
