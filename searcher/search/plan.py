"""The plan of a search, and the names and seeds that follow from it."""

from __future__ import annotations

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.observation import SHARES
from syncswitch.storage.errors import OptionHint, UserError
from syncswitch.storage.records.digest import digest_of
from syncswitch.storage.records.job import LARGEST_SEED, JobKey, RunConditions, ScheduledJob
from syncswitch.storage.records.metric import AccuracyRange, possible_accuracy
from syncswitch.trainers.job.schedule import percent_to_worker_steps, round_worker_steps

# Options that depend on what the database holds when a study begins are not part of its name.
_FIRST_WRITERS = {"recorded", "wanted"}

# Options that count something, and the most that they may be: more than any search needs.
_MOST = {
    "halvings": 30,
    "runs": 10_000,
    "baseline_runs": 10_000,
    "least_runs": 10_000,
    "target_runs": 10_000,
    "expected_runs": 1_000_000,
}


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The plan of a search; the same plan for the same job is the same study.

    Only runs of one kind of `trainer` are comparable, and the seeds of all runs follow from
    `base_seed`. `pairs` are the pairs of protocols that are searched together, if there are
    several.
    """

    strategy: Strategy = field(default_factory=AdaptiveStrategy)
    trainer: str = "local"
    base_seed: int = 0
    conditions: RunConditions = field(default_factory=RunConditions)
    pairs: tuple[str, ...] = ()

    def check(self) -> None:
        """Raises UserError if a value is out of range, or two do not go together."""
        strategy, options = self.strategy, self.strategy.given_options
        for name, most in _MOST.items():
            count = getattr(strategy, name, None)
            fits = count is None or 1 <= count <= most
            _require(fits, name, count, f"a whole number, 1 to {most}")
        least = options.get("least_runs", 1)
        _require(least <= strategy.runs, "least_runs", least, f"at most the {strategy.runs} runs")
        budget = options.get("budget", math.inf)
        fits = budget > 0 and ("budget" not in options or math.isfinite(budget))
        allowed = "above 0, in trainings with the first protocol alone, such as 5"
        _require(fits, "budget", budget, allowed)
        allowed = f"a whole number, 0 to {LARGEST_SEED}"
        _require(0 <= self.base_seed <= LARGEST_SEED, "seed", self.base_seed, allowed)
        allowed_loss = strategy.allowed
        if not allowed_loss.is_from_runs:
            check_threshold(allowed_loss.threshold, strategy.accuracy_range)
        elif budget < allowed_loss.runs:
            raise UserError(
                "the threshold is not given, so the search begins with"
                f" {allowed_loss.runs} trainings to measure one",
                parameter="budget",
                value=budget,
                remedy=("give as many", OptionHint("threshold")),
                code="parameters-conflict",
            )
        if "min_kept_share" in options:
            share = options["min_kept_share"]
            allowed = "a share above 0.5 and below 1, such as 0.95"
            _require(0.5 < share < 1, "min_kept_share", share, allowed)
            if options.get("guarded", True):
                raise UserError(
                    "says how many trainings must keep the accuracy without a guard",
                    parameter="min_kept_share",
                    remedy=(OptionHint("guarded", False, "add"), "leave it out"),
                    code="parameters-conflict",
                )
        if strategy.target_accuracy is not None:
            _check_target(strategy.target_accuracy, strategy.accuracy_range)
            if "baseline_runs" in options:
                raise UserError(
                    (
                        "says how often to measure what is given by ",
                        OptionHint("target_accuracy", verb=""),
                    ),
                    parameter="baseline_runs",
                    remedy="leave one of them out",
                    code="parameters-conflict",
                )
        elif "target_runs" in options:
            raise UserError(
                ("says how many runs stand behind ", OptionHint("target_accuracy", verb="")),
                parameter="target_runs",
                remedy="give both or neither",
                code="parameters-conflict",
            )


def steps_of(job: ScheduledJob | JobKey, first_protocol: str) -> Callable[[float], int]:
    """Returns what converts switch points of a job into worker-steps."""
    size = round_worker_steps(first_protocol, job.workers)
    return lambda percent: percent_to_worker_steps(percent, job.total_worker_steps, size)


def too_short(identity: ScheduledJob, strategy: Strategy) -> str | None:
    """Returns a warning if the job is too short to tell switch points apart."""
    size = round_worker_steps(identity.first_protocol, identity.workers)
    step_of = steps_of(identity, identity.first_protocol)
    percents: dict[int, list[float]] = defaultdict(list)
    for percent in strategy.grid():
        percents[step_of(percent)].append(percent)
    same = next(((step, alike) for step, alike in percents.items() if len(alike) > 1), None)
    if same is None:
        return None
    step, alike = same
    of_round = "" if size == 1 else f", as a round has {size:,}"
    listed = " and ".join(f"{percent:g}" for percent in sorted(alike))
    return (
        f"{listed} % of this job's {identity.length} are the same switch, after {step:,}{of_round},"
        " so a search cannot tell them apart; give fewer halvings, or a longer job"
    )


def study_name(identity: ScheduledJob, plan: SearchPlan) -> str:
    """The name of the study, which is the same for the same command: workload, job and plan."""
    strategy, target = plan.strategy, plan.strategy.target_accuracy
    options = strategy.given_options.items()
    content: dict[str, Any] = {
        "strategy": strategy.name,
        "halvings": strategy.halvings,
        "runs": strategy.runs,
        "threshold": float(strategy.threshold),
        "target_accuracy": None if target is None else float(target),
        "options": {name: value for name, value in options if name not in _FIRST_WRITERS},
        "trainer": plan.trainer,
        "base_seed": plan.base_seed,
        "pairs": plan.pairs,
        "protocols": asdict(identity.protocols),
        "conditions": asdict(plan.conditions),
    }
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", identity.name) or "workload"
    return f"{name[:100]}-{identity.fingerprint[:12]}-{digest_of(content)[:8]}"


def replicate_seed(base_seed: int, replicate: int) -> int:
    """Returns the seed of a replicate, which is the same at all switch points."""
    digest = hashlib.sha256(f"syncswitch replicate {base_seed} {replicate}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % (LARGEST_SEED + 1)


def check_threshold(threshold: float, limits: AccuracyRange) -> None:
    """Raises UserError if no run of a job with these limits could lose this much."""
    least, largest = limits
    is_possible = math.isfinite(threshold) and threshold > 0
    allowed = "above 0, in the unit of the metric"
    if least is not None and largest is not None:
        is_possible = is_possible and threshold < largest - least
        allowed = f"above 0 and below {largest - least:g}"
    _require(is_possible, "threshold", threshold, allowed)


def _check_target(target: float, limits: AccuracyRange) -> None:
    if limits == SHARES:
        _require(0 < target <= 1, "target_accuracy", target, "above 0 and at most 1, such as 0.92")
    is_possible = math.isfinite(target) and possible_accuracy(target, limits) == target
    _require(is_possible, "target_accuracy", abs(target), "a value that the metric can have")


def _require(fits: bool, parameter: str, value: object, allowed: str) -> None:
    if not fits:
        raise UserError(parameter=parameter, value=value, allowed=allowed)
