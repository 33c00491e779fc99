"""A workload with other hyper-parameters: `digits,momentum_after_switch=zero`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from syncswitch.storage.errors import WorkloadError

if TYPE_CHECKING:
    from syncswitch.trainers.job.workload import Workload

_FIELDS = (
    "total_worker_steps",
    "batch_size",
    "learning_rate",
    "momentum",
    "batch_after_switch",
    "momentum_after_switch",
    "momentum_stage_worker_steps",
    "largest_scaling",
    "evaluation_interval_worker_steps",
)
# A path may have commas, too.
_BEFORE_FIELD = re.compile(r",(?=\w+=)")


def split_variant(reference: str) -> tuple[str, dict[str, Any]]:
    """The workload itself, and the fields that are to be others.

    Raises WorkloadError where no workload has such a field.
    """
    plain, *parts = _BEFORE_FIELD.split(reference)
    values: dict[str, Any] = {}
    for part in parts:
        field, _, text = part.partition("=")
        if field not in _FIELDS or field in values:
            raise WorkloadError(
                f"workload {reference!r}: {part!r} sets no field of a workload once; give one of"
                f" {', '.join(_FIELDS)}, such as momentum_after_switch=zero"
            )
        try:
            values[field] = json.loads(text)
        except ValueError:
            values[field] = text
    return plain, values


def varied(workload: Workload, values: dict[str, Any]) -> Workload:
    """The workload with these fields. Raises WorkloadError where a value is impossible."""
    for field in ("learning_rate", "momentum"):
        value = values.get(field, 0.0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise WorkloadError(f"workload {workload.name!r}: {field} is {value!r}; give a number")
    return replace(workload, **values) if values else workload
