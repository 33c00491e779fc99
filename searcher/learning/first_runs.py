"""What is expected of the first training of a job, for those who train without the searcher.

python -m syncswitch.searcher.learning.first_runs > storage/policies/first_runs.json
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from typing import Any

from syncswitch.searcher.learning.job import JobHistory, blank_policy
from syncswitch.storage.policies.unmeasured import RULES
from syncswitch.storage.records.job import ScheduledJob
from syncswitch.storage.records.metric import Metric

_LONG = 10**6  # worker-steps, so that each switch point is a step of its own
_METRICS = (Metric(), Metric("loss", "min", lowest=None, highest=None))
_DIGITS = 4


def first_runs() -> list[dict[str, Any]]:
    """Returns where the only training of a job switches, and what is expected of it.

    There is a row for each rule of the second phase that matters, with and without a usual
    threshold.
    """
    return [_first_run(rule, metric) for rule in RULES for metric in _METRICS]


def _first_run(rule: str | None, metric: Metric) -> dict[str, Any]:
    loop = ScheduledJob.undescribed("loop", _LONG, 1, ("first", "second"), metric)
    protocols = replace(loop.protocols, momentum_after_switch=rule)
    job = JobHistory(blank_policy(replace(loop, protocols=protocols)), ())
    percent = job.next_percent(1)
    expected = job.expected(percent)
    assert expected is not None
    promise = asdict(replace(expected.promise, reason=None))
    return {
        "momentum_after_switch": rule,
        "has_threshold": metric.has_usual_threshold,
        "switch_percent": percent,
        "promise": {
            name: None if value is None else round(value, _DIGITS)
            for name, value in promise.items()
        },
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(first_runs(), indent=1) + "\n")
