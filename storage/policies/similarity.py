"""How near one training job is to another, as far as a timing policy goes. Pure.

The choices here, and why:

- The size of the cluster decides before everything else. In the Sync-Switch paper (Fig. 14) a
  policy found for one model kept the accuracy of another one on a cluster of the same size,
  whereas twice the workers needed a much later switch: gradients are as stale as there are workers.
- A cluster more than 4 times larger or smaller says nothing, for the same reason.
- Another pair of protocols asks another question, so it is never compared.
- The rest is a sum, so that several small differences weigh as much as a large one. Its weights
  are a judgement, in the order of what reaches the switch point most directly: the length of the
  job, of which it is a percent; what is trained on what; how large the steps are; how accuracy is
  measured. Sizes and rates count by ratio: the weight is that of a factor of 2.
- A policy is a first guess for a search only where the job is much the same (`is_related`): other
  jobs are suggested to people, who see what differs.
- A simulated cluster trains with real gradients, as stale as there are workers, but its speeds are
  a model's. So a policy found there says something of a real cluster of the same size, and less
  than one found on a real cluster: as much less as one for a job of twice the length.
- What one side does not know is not compared. But of two candidates that one is preferred of which
  more is known, so half the weight of what a candidate leaves open speaks against it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, NamedTuple

from syncswitch.storage.records.job import WorkloadIdentity

LARGEST_SIZE_RATIO = 4
"""Of two clusters that may say anything about each other."""

REAL = "real"
"""In place of the digest of a simulated cluster; None is unknown."""

LARGEST_RELATED_REST = 8.0
"""Of two jobs of which one gives the other a start: that of a job four times as long, or of one
with half the length at twice the batch size and twice the learning rate."""

_LONGEST_VALUE = 40
_SMALLEST = 1e-9  # of two numbers that differ, however close


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What is known of a job; None is unknown. The fields are those of a WorkloadIdentity.

    The name is left out: it is for people, and says nothing of what is trained. A real cluster is
    `REAL`, since None is unknown.
    """

    workers: int
    first_protocol: str | None = None
    second_protocol: str | None = None
    total_worker_steps: int | None = None
    model: str | None = None
    data_set: str | None = None
    loss: str | None = None
    optimizer: str | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    momentum: float | None = None
    learning_rate_boundaries: tuple[tuple[int, float], ...] | None = None
    metric: str | None = None
    evaluation_interval_worker_steps: int | None = None
    simulated_cluster: str | None = None

    @classmethod
    def of(cls, job: WorkloadIdentity) -> JobFacts:
        """What is known of a registered job."""
        known: dict[str, Any] = {field.name: getattr(job, field.name) for field in fields(cls)}
        return cls(**{**known, "simulated_cluster": job.simulated_cluster or REAL})


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy that may be suggested.

    Attributes:
        created_at: Of equally near ones the newest is preferred.
    """

    facts: JobFacts
    fingerprint: str
    version: int
    created_at: datetime


class Distance(NamedTuple):
    """How far apart two jobs are; compared in this order.

    Attributes:
        size: Of the clusters, in doublings.
        rest: Weighted sum over everything else.
    """

    size: float
    rest: float


@dataclass(frozen=True, slots=True)
class _Trait:
    """A fact that is compared: what people call it, what it weighs, and how it is put in words."""

    field: str
    label: str
    weight: float
    by_ratio: bool
    words: Callable[[Any, Any], str]


def _values(label: str) -> Callable[[Any, Any], str]:
    def words(wanted: Any, known: Any) -> str:
        shown = [
            _short(f"{value:g}" if isinstance(value, float) else str(value))
            for value in (wanted, known)
        ]
        if shown[0] == shown[1]:
            return f"another {label}"
        return f"{label} {shown[1]} instead of {shown[0]}"

    return words


def _boundaries(wanted: Any, known: Any) -> str:
    def shown(value: tuple[tuple[int, float], ...]) -> str:
        return ", ".join(f"x {factor:g} at {step:,}" for step, factor in value) or "no change"

    if shown(wanted) == shown(known):
        return "another learning-rate schedule"
    return f"learning-rate schedule {_short(shown(known))} instead of {_short(shown(wanted))}"


def _kind_of_cluster(wanted: str, known: str) -> str:
    if known == REAL:
        return "a real cluster instead of a simulated one"
    if wanted == REAL:
        return "a simulated cluster instead of a real one: its speeds are a model's"
    return "another simulated cluster"


_TRAITS = (
    _Trait("simulated_cluster", "kind of cluster", 4.0, False, _kind_of_cluster),
    _Trait(
        "total_worker_steps",
        "worker-steps",
        4.0,
        True,
        lambda wanted, known: f"{known:,} worker-steps instead of {wanted:,}",
    ),
    # A digest: its digits say nothing to people.
    _Trait("model", "model", 3.0, False, lambda *_: "another model"),
    _Trait("data_set", "data set", 2.5, False, _values("data set")),
    _Trait("batch_size", "batch size", 2.0, True, _values("batch size")),
    _Trait("learning_rate", "learning rate", 1.5, True, _values("learning rate")),
    _Trait("momentum", "momentum", 1.0, False, _values("momentum")),
    _Trait("optimizer", "optimizer", 0.8, False, _values("optimizer")),
    _Trait("learning_rate_boundaries", "learning-rate schedule", 0.6, False, _boundaries),
    _Trait("loss", "loss", 0.4, False, _values("loss")),
    _Trait("metric", "metric", 0.4, False, _values("metric")),
    _Trait(
        "evaluation_interval_worker_steps",
        "evaluation interval",
        0.1,
        False,
        lambda wanted, known: f"tested every {known:,} worker-steps instead of {wanted:,}",
    ),
)


def is_comparable(wanted: JobFacts, known: JobFacts) -> bool:
    """Whether a policy for one job may say anything about the other; symmetric."""
    small, large = sorted((wanted.workers, known.workers))
    return large <= LARGEST_SIZE_RATIO * small and not any(
        _differ(getattr(wanted, name), getattr(known, name))
        for name in ("first_protocol", "second_protocol")
    )


def distance(wanted: JobFacts, known: JobFacts) -> Distance:
    """Symmetric; zero if and only if everything that both know is equal, protocols aside."""
    rest = 0.0
    for trait in _TRAITS:
        one, other = getattr(wanted, trait.field), getattr(known, trait.field)
        if _differ(one, other):
            rest += trait.weight * (_doublings(one, other) if trait.by_ratio else 1.0)
    return Distance(_doublings(wanted.workers, known.workers), rest)


def nearest(wanted: JobFacts, candidates: Iterable[Candidate]) -> Candidate | None:
    """The comparable candidate at the smallest distance; of several the newest."""
    return next(iter(ranked(wanted, candidates)), None)


def ranked(wanted: JobFacts, candidates: Iterable[Candidate]) -> list[Candidate]:
    """The comparable candidates, that at the smallest distance first; of equal ones the newest."""
    comparable = [item for item in candidates if is_comparable(wanted, item.facts)]
    comparable.sort(key=lambda item: (item.fingerprint, item.version))
    comparable.sort(key=lambda item: item.created_at, reverse=True)

    def rank(item: Candidate) -> tuple[float, float]:
        size, rest = distance(wanted, item.facts)
        return size, rest + _left_open(wanted, item.facts)

    return sorted(comparable, key=rank)


def is_related(wanted: WorkloadIdentity, known: WorkloadIdentity) -> bool:
    """Whether two jobs train much the same: where one switches, the other may, too; symmetric.

    They are comparable, train the same model or go by the same name, know of no other data set,
    and all that differs besides the size of the cluster adds up to `LARGEST_RELATED_REST` at most.
    """
    wanted_facts, known_facts = JobFacts.of(wanted), JobFacts.of(known)
    is_same_model = wanted.model is not None and wanted.model == known.model
    return (
        is_comparable(wanted_facts, known_facts)
        and (is_same_model or wanted.name == known.name)
        and not _differ(wanted.data_set, known.data_set)
        and distance(wanted_facts, known_facts).rest <= LARGEST_RELATED_REST
    )


def differences(wanted: JobFacts, known: JobFacts) -> list[str]:
    """In what two jobs differ, in words, most important first; without what one does not know."""
    found = []
    if wanted.workers != known.workers:
        found.append(_size_words(wanted.workers, known.workers))
    for name in ("first_protocol", "second_protocol"):
        one, other = getattr(wanted, name), getattr(known, name)
        if _differ(one, other):
            label = name.replace("_", " ")
            found.append(f"{label} {other} instead of {one}")
    for trait in _TRAITS:
        one, other = getattr(wanted, trait.field), getattr(known, trait.field)
        if _differ(one, other):
            found.append(trait.words(one, other))
    return found


def not_compared(wanted: JobFacts, known: JobFacts) -> list[str]:
    """What people call the facts that one side does not know."""
    return [
        trait.label
        for trait in _TRAITS
        if getattr(wanted, trait.field) is None or getattr(known, trait.field) is None
    ]


def _size_words(wanted: int, known: int) -> str:
    reason = (
        "a larger cluster needs a later switch"
        if wanted > known
        else "a smaller cluster may switch earlier"
    )
    unit = "worker" if known == 1 else "workers"
    return f"{known} {unit} instead of {wanted}: {reason}"


def _left_open(wanted: JobFacts, known: JobFacts) -> float:
    return sum(
        trait.weight / 2
        for trait in _TRAITS
        if getattr(wanted, trait.field) is not None and getattr(known, trait.field) is None
    )


def _differ(one: object, other: object) -> bool:
    return one is not None and other is not None and one != other


def _doublings(one: float, other: float) -> float:
    if one == other:
        return 0.0
    if one <= 0 or other <= 0:
        return 1.0
    # Not the logarithm of the ratio: that of its inverse may differ in the last digit.
    return max(abs(math.log2(one) - math.log2(other)), _SMALLEST)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."
