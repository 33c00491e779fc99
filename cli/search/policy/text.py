"""Policies and differences, for people and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from syncswitch.cli.console import echo, print_table, print_text
from syncswitch.searcher.learning.words import uses_sentence
from syncswitch.searcher.search.policy_words import (
    expected_time_text,
    guard_text,
    kept_text,
    policy_text,
    times_text,
)
from syncswitch.searcher.speed_up import speed_up_of
from syncswitch.searcher.words import counted, workers_text
from syncswitch.storage.policies.diff import FieldDifference
from syncswitch.storage.policies.registry import EvidenceTrial, PolicyEntry
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.uses.summary import UseSummary

if TYPE_CHECKING:
    from syncswitch.searcher.search.explanation import Explanation

NamedPolicy = tuple[str, TimingPolicy]
"""What the user called a policy, and the policy."""


def print_policy(entry: PolicyEntry, uses: UseSummary) -> None:
    """One policy: what it says, how it has done, and where it comes from."""
    policy = entry.policy
    print_text(policy_text(policy))
    if uses.uses:
        print_text(uses_sentence(uses))
    echo()
    names = ", ".join(entry.aliases) or "-"
    evidence, gain = counted(len(policy.evidence), "run"), speed_up_of(policy)
    rows = [
        ("workload", policy.workload),
        ("fingerprint", policy.fingerprint),
        ("version", f"{policy.version} (aliases: {names})"),
        ("workers", workers_text(policy.workers, entry.identity.simulated_cluster)),
        ("protocols", f"{policy.first_protocol},{policy.second_protocol}"),
        ("switch at", f"{policy.switch_percent:g} %"),
        ("found by", f"{policy.strategy}, {evidence}, study {policy.study}"),
        ("speed-up", None if gain is None else times_text(gain)),
        ("found for", guard_text(policy)),
        ("kept", kept_text(policy)),
        ("expected", expected_time_text(policy)),
        ("confidence", None if policy.confidence is None else f"{100 * policy.confidence:.3g} %"),
        ("created", policy.created_at),
        ("imported", entry.imported_at),
        ("software", ", ".join(f"{name} {v}" for name, v in sorted(policy.software.items()))),
    ]
    for name, value in rows:
        if value is not None:
            echo(f"{name:<12} {value}")


def print_evidence(policy: TimingPolicy, trials: Sequence[EvidenceTrial]) -> None:
    """The runs that a policy rests on, with the trials of the database that they are."""
    echo()
    if not policy.evidence:
        echo("It rests on runs that used its versions: see syncswitch-search uses list")
        return
    print_table(
        ["trial", "switch at", "replicate", policy.metric, "diverged", "seconds", "trial_id"],
        [
            [
                str(run.trial_number),
                f"{run.switch_percent:g} %",
                str(run.replicate),
                policy.decided_by.text(run.converged_accuracy),
                "yes" if run.diverged else "no",
                f"{run.training_seconds:.1f}",
                _place(trial),
            ]
            for run, trial in zip(policy.evidence, trials, strict=True)
        ],
    )
    there = sum(trial.trial_id is not None for trial in trials)
    changed = there - sum(trial.agrees for trial in trials)
    but = f", {changed} of them with other results" if changed else ""
    runs, are = counted(len(trials), "run"), "is" if there == 1 else "are"
    echo(f"{there} of {runs} {are} in this database{but}.")


def print_why(why: Explanation, policy: TimingPolicy) -> None:
    """What was believed after each run, what was never tried, and what would change the answer."""
    # Only `show --why` needs the strategies.
    from syncswitch.searcher.search.explanation import (
        belief_cells,
        belief_columns,
        belief_sentence,
        why_sentences,
    )

    metric = policy.decided_by
    echo()
    if why.beliefs:
        print_text(belief_sentence(why))
        rows = [belief_cells(why, number, metric) for number in range(len(why.runs))]
        print_table(list(belief_columns(why, metric)), rows)
        echo()
    for sentence in why_sentences(why, policy.first_protocol.upper(), metric):
        print_text(f"- {sentence}")


def evidence_as_json(policy: TimingPolicy, trials: Sequence[EvidenceTrial]) -> list[dict[str, Any]]:
    """Each run with its trial: `trial_id` is null where it is not in the database."""
    metric = policy.decided_by
    return [
        {**metric.with_values(asdict(run)), **asdict(trial)}
        for run, trial in zip(policy.evidence, trials, strict=True)
    ]


def print_diff(found: Sequence[FieldDifference], first: NamedPolicy, second: NamedPolicy) -> None:
    """What differs, in rows; what is equal is left out."""
    (name, a), (other, _) = first, second
    if found:
        rows = [[one.field.replace("_", " "), *_before_and_after(one)] for one in found]
        print_table(["field", name, other], rows)
    else:
        echo(f"{name} and {other} are equal ({a.workload}, {a.cluster})")


def diff_as_json(
    found: Sequence[FieldDifference], first: NamedPolicy, second: NamedPolicy
) -> dict[str, Any]:
    """The same for programs."""
    return {
        "before": _named(*first),
        "after": _named(*second),
        "is_equal": not found,
        "differences": [asdict(one) for one in found],
    }


def _place(trial: EvidenceTrial) -> str:
    if trial.trial_id is None:
        return "-"
    return f"{trial.trial_id}" if trial.agrees else f"{trial.trial_id} differs"


def _named(name: str, policy: TimingPolicy) -> dict[str, Any]:
    known = ("workload", "fingerprint", "version", "created_at")
    return {"name": name, **{field: getattr(policy, field) for field in known}}


def _before_and_after(difference: FieldDifference) -> tuple[str, str]:
    """Two values that differ, so that the difference shows."""
    values = (difference.before, difference.after)
    if difference.field == "fingerprint":
        return values[0][:12], values[1][:12]
    if difference.field == "evidence":
        both = sum(run in values[1] for run in values[0])
        before, after = (f"{counted(len(runs), 'run')}, {both} of them in both" for runs in values)
        return before, after
    unit = " %" if difference.field.endswith("_percent") else ""
    for digits in (5, 17):
        before, after = (_shown(value, digits, unit) for value in values)
        if before != after:
            break
    return before, after


def _shown(value: Any, digits: int, unit: str) -> str:
    if value is None:
        return "-"
    return (f"{value:.{digits}g}" if isinstance(value, float) else str(value)) + unit
