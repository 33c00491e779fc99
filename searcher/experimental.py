"""What is experimental among the parameters of searches, sweeps and trainings.

`docs/formats.md` says why, and the help of the options that they are experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Feature:
    """Some values of a parameter that are experimental.

    Attributes:
        parameter: Its name in Python.
        what: The values, in words.
        since: The first version that has them.
        has: Whether a value is one of them.
    """

    parameter: str
    what: str
    since: str
    has: Callable[[Any], bool]


def _is_growing(protocols: Any) -> bool:
    pairs = [protocols] if isinstance(protocols, str) else list(protocols or ())
    return any("growing" in pair for pair in pairs)


FEATURES = (
    Feature("online", "greedy and elastic", "0.2", lambda value: value not in (None, "none")),
    Feature("protocols", "with growing", "0.2", _is_growing),
    Feature("mlflow", "", "0.2", lambda value: value is not None),
    Feature("launcher", "tf-config", "0.2", lambda value: value == "tf-config"),
    Feature("trainer", "ray", "0.2", lambda value: value == "ray"),
    Feature("gpus_per_worker", "above 0", "0.2", bool),
)


def used_features(given: Mapping[str, Any]) -> Iterator[tuple[Feature, Any]]:
    """The experimental features among the arguments of a call, each with its value."""
    values = {**given, **(given.get("trainer_options") or {})}
    for feature in FEATURES:
        if feature.parameter in values and feature.has(values[feature.parameter]):
            yield feature, values[feature.parameter]
