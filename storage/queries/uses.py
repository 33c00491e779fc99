"""The later runs with policies, one row each, with what their policy asks of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from sqlalchemy import RowMapping, select

from syncswitch.storage.database.engine import Database
from syncswitch.storage.queries.columns import MeasuredJobColumns
from syncswitch.storage.queries.trial_filter import TrialChoice, conditions
from syncswitch.storage.tables.base import own_value
from syncswitch.storage.tables.policies import POLICIES
from syncswitch.storage.tables.trial_facts import TRIAL_FACTS
from syncswitch.storage.tables.trials import FAILED_SWITCHES
from syncswitch.storage.uses.summary import is_kept

_FACTS = TRIAL_FACTS.c


@dataclass(frozen=True)
class PolicyUseFacts(MeasuredJobColumns):
    """The columns of `uses`."""

    use_id: Annotated[str, "the same in every database"]
    policy_version: Annotated[int, "that it trained with"]
    switch_percent: Annotated[float, "percent of W in the first protocol"]
    seed: Annotated[int, "of parameters and order of data"]
    accuracy: Annotated[float, "converged accuracy, 0 to 1"]
    value: Annotated[float, "the metric's own value of it, in its unit"]
    target_accuracy: Annotated[float, "of the policy"]
    target_value: Annotated[float, "the metric's own value of it, in its unit"]
    threshold: Annotated[float, "beta, the accuracy that may be lost; in the metric's unit"]
    diverged: Annotated[bool, "whether it diverged"]
    kept: Annotated[bool, "it lost at most beta, and did not diverge"]
    guard: Annotated[str, "off, quiet, or alarmed: it sent the run back to its switch"]
    failed_percents: Annotated[str | None, "switches that failed, joined by ', '; null for none"]
    held_percent: Annotated[float, "switch with which it came to its end; 100 for none"]
    guard_alarm: Annotated[str | None, "where each failed and why, joined by '; '; null for none"]
    guard_lost_seconds: Annotated[
        float | None, "training time from failed switches to their alarms, in vain; null for none"
    ]
    training_seconds: Annotated[float, "training time, what alarms cost included"]
    baseline_seconds: Annotated[
        float | None, "of the first protocol alone, as the policy has it; null where unknown"
    ]
    speed_up: Annotated[float | None, "baseline seconds over training seconds"]
    online: Annotated[str, "online policy: none, greedy or elastic"]
    switch_mechanism: Annotated[str, "how it switched: hot or restart"]
    injections: Annotated[
        str | None, "disturbances on purpose, joined by '; '; such a use is not counted"
    ]
    started_at: Annotated[datetime, "UTC"]
    ended_at: Annotated[datetime, "UTC"]
    host: Annotated[str, "of the chief"]


def use_facts(
    database: Database,
    *,
    workload: str | None = None,
    fingerprint: str | None = None,
) -> list[PolicyUseFacts]:
    """The uses in the order in which they were recorded; chosen as by `frames`."""
    choice: TrialChoice = {
        "workload": workload,
        "fingerprint": fingerprint,
        "kinds": ("use",),
    }
    own = [name for name in PolicyUseFacts.__dataclass_fields__ if name in _FACTS]
    query = (
        select(
            _FACTS.trial_id,
            *(_FACTS[name] for name in own if not name.startswith("target_")),
            _FACTS.converged_accuracy.label("accuracy"),
            _FACTS.converged_value.label("value"),
            POLICIES.c.target_accuracy,
            own_value(POLICIES.c.target_accuracy, POLICIES.c.metric_goal).label("target_value"),
            POLICIES.c.threshold,
            POLICIES.c.baseline_seconds,
        )
        .join(
            POLICIES,
            (POLICIES.c.fingerprint == _FACTS.fingerprint)
            & (POLICIES.c.version == _FACTS.policy_version),
        )
        .where(*conditions(choice))
        .order_by(_FACTS.trial_id)
    )
    of_failed = (
        select(
            FAILED_SWITCHES.c.trial_id, FAILED_SWITCHES.c.switch_percent, FAILED_SWITCHES.c.alarm
        )
        .join(TRIAL_FACTS, _FACTS.trial_id == FAILED_SWITCHES.c.trial_id)
        .where(*conditions(choice))
        .order_by(FAILED_SWITCHES.c.trial_id, FAILED_SWITCHES.c.position)
    )
    failed: dict[int, list[tuple[float, str]]] = defaultdict(list)
    with database.transaction(read_only=True) as connection:
        for trial_id, percent, alarm in connection.execute(of_failed):
            failed[trial_id].append((percent, alarm))
        return [
            _facts(row, failed.get(row["trial_id"], []))
            for row in connection.execute(query).mappings()
        ]


def _facts(row: RowMapping, failed: Sequence[tuple[float, str]]) -> PolicyUseFacts:
    values: dict[str, Any] = {name: row[name] for name in row if name != "trial_id"}
    baseline, seconds = values["baseline_seconds"], values["training_seconds"]
    return PolicyUseFacts(
        kept=is_kept(
            values["accuracy"], values["diverged"], values["target_accuracy"], values["threshold"]
        ),
        speed_up=baseline / seconds if baseline and seconds else None,
        failed_percents=", ".join(f"{percent:g}" for percent, _ in failed) or None,
        guard_alarm="; ".join(f"{percent:g} %: {alarm}" for percent, alarm in failed) or None,
        **values,
    )
