"""What a search was asked to do, and the names and seeds that follow from it."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field

from syncswitch.searcher.rules.paper import PaperRule
from syncswitch.storage.errors import UserError
from syncswitch.storage.records import LARGEST_SEED, WorkloadIdentity

__all__ = ["SearchPlan", "replicate_seed", "rule_from_name", "study_name"]


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The settings of a search; the same plan on the same workload is the same study.

    Attributes:
        rule: Which runs to make and when the answer is known.
        trainer: Kind of trainer: runs of different kinds are not to be compared.
        base_seed: The seeds of all runs derive from it.
    """

    rule: PaperRule = field(default_factory=PaperRule)
    trainer: str = "local"
    base_seed: int = 0

    def check(self) -> None:
        """Refuses what no search can do.

        Raises:
            UserError: A value is out of range.
        """
        rule = self.rule
        _require(1 <= rule.settings <= 30, "--settings", rule.settings, "a whole number, 1 to 30")
        _require(rule.runs >= 1, "--runs", rule.runs, "a whole number of 1 or more")
        _require(0 < rule.threshold < 1, "--threshold", rule.threshold, "above 0 and below 1")
        target = rule.target_accuracy
        if target is not None:
            _require(
                0 < target <= 1, "--target-accuracy", target, "above 0 and at most 1, such as 0.92"
            )
        _require(
            0 <= self.base_seed <= LARGEST_SEED,
            "--seed",
            self.base_seed,
            f"a whole number, 0 to {LARGEST_SEED}",
        )


def study_name(identity: WorkloadIdentity, plan: SearchPlan) -> str:
    """Name of the study, so that the same command goes on where it was.

    Workload name, start of the fingerprint, and a digest of the plan.
    """
    rule = plan.rule
    content = {
        "strategy": rule.name,
        "settings": rule.settings,
        "runs": rule.runs,
        "threshold": float(rule.threshold),
        "target_accuracy": None if rule.target_accuracy is None else float(rule.target_accuracy),
        "trainer": plan.trainer,
        "base_seed": plan.base_seed,
    }
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    digest = hashlib.sha256(canonical.encode()).hexdigest()[:8]
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", identity.name) or "workload"
    return f"{name[:100]}-{identity.fingerprint[:12]}-{digest}"


def replicate_seed(base_seed: int, replicate: int) -> int:
    """Seed of a replicate, the same at all settings, so that settings differ in nothing else."""
    digest = hashlib.sha256(f"syncswitch replicate {base_seed} {replicate}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % (LARGEST_SEED + 1)


def rule_from_name(
    name: str, settings: int, runs: int, threshold: float, target_accuracy: float | None
) -> PaperRule:
    """The rule that a stored search was made with."""
    two_sided = PaperRule(two_sided=True).name == name
    return PaperRule(settings, runs, threshold, target_accuracy, two_sided=two_sided)


def _require(fits: bool, option: str, value: object, allowed: str) -> None:
    if not fits:
        raise UserError(f"{option} is {value}: give {allowed}")
