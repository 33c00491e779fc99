"""What is experimental among the parameters of searches, sweeps and trainings.

`docs/formats.md` says why, and the help of the options that they are experimental.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from syncswitch.storage.errors import UserError


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
    given = protocols if isinstance(protocols, Sequence) else ()
    pairs = [given] if isinstance(given, str) else [one for one in given if isinstance(one, str)]
    return any("growing" in _options_of(protocol) for pair in pairs for protocol in pair.split(","))


def _options_of(protocol: str) -> Collection[str]:
    """The options of a protocol, as they are written; none if it is to be refused."""
    from syncswitch.trainers.protocols.choice import (
        choose_protocol,
    )  # which a look-up does not need

    try:
        return choose_protocol(protocol).text.split(":")[1:]
    except UserError:
        return ()


def _is_above_zero(value: Any) -> bool:
    return isinstance(value, (int, float)) and value > 0


FEATURES = (
    Feature("online", "greedy and elastic", "0.2", lambda value: value in ("greedy", "elastic")),
    Feature("protocols", "with growing", "0.2", _is_growing),
    Feature("mlflow", "", "0.2", lambda value: isinstance(value, str)),
    Feature("launcher", "tf-config", "0.2", lambda value: value == "tf-config"),
    Feature("trainer", "ray", "0.2", lambda value: value == "ray"),
    Feature("gpus_per_worker", "above 0", "0.2", _is_above_zero),
)


def used_features(given: Mapping[str, Any]) -> Iterator[tuple[Feature, Any]]:
    """The experimental features among the arguments of a call, each with its value.

    A value that the call will refuse is none of them.
    """
    values = {**given, **(given.get("trainer_options") or {})}
    for feature in FEATURES:
        if feature.parameter in values and feature.has(values[feature.parameter]):
            yield feature, values[feature.parameter]
