"""Policies, suggestions and differences, for people and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from syncswitch.searcher.text.sentences import (
    counted,
    kept_words,
    policy_sentence,
    promise_sentence,
    workers_text,
)
from syncswitch.storage.policies.diff import EvidenceDiff, PolicyDiff
from syncswitch.storage.policies.nearest import Suggestion
from syncswitch.storage.policies.rows import EvidenceTrial, PolicyEntry
from syncswitch.storage.records.policy import Evidence, TimingPolicy
from syncswitch.trainers.cli.console import echo, print_table, print_text

_Named = tuple[str, "TimingPolicy"]


def print_policy(entry: PolicyEntry) -> None:
    """One policy: what it says, and where it comes from."""
    policy = entry.policy
    _print_sentences(policy)
    echo()
    names = ", ".join(entry.aliases) or "-"
    evidence = counted(len(policy.evidence), "run")
    rows = [
        ("workload", policy.workload),
        ("fingerprint", policy.fingerprint),
        ("version", f"{policy.version} (aliases: {names})"),
        ("workers", workers_text(policy.workers, entry.identity.simulated_cluster)),
        ("protocols", f"{policy.first_protocol},{policy.second_protocol}"),
        ("switch at", f"{policy.switch_percent:g} %"),
        ("found by", f"{policy.strategy}, {evidence}, study {policy.study}"),
        ("criterion", policy.criterion),
        ("kept", _kept(policy)),
        ("confidence", None if policy.confidence is None else f"{100 * policy.confidence:.3g} %"),
        ("created", policy.created_at),
        ("imported", entry.imported_at),
        ("software", ", ".join(f"{name} {v}" for name, v in sorted(policy.software.items()))),
    ]
    for name, value in rows:
        if value is not None:
            echo(f"{name:<12} {value}")


def _print_sentences(policy: TimingPolicy) -> None:
    print_text(policy_sentence(policy))
    promise = promise_sentence(policy)
    if promise:
        print_text(promise)


def _kept(policy: TimingPolicy) -> str | None:
    if policy.kept_share is None:
        return None
    return kept_words(policy.kept_share, policy.baseline_kept_share, policy.first_protocol)


def print_evidence(policy: TimingPolicy, trials: Sequence[EvidenceTrial]) -> None:
    """The runs that a policy rests on, with the trials of the database that they are."""
    echo()
    print_table(
        ["trial", "switch at", "replicate", "accuracy", "diverged", "seconds", "trial_id"],
        [
            [
                str(run.trial_number),
                f"{run.switch_percent:g} %",
                str(run.replicate),
                f"{run.converged_accuracy:.4f}",
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


def evidence_as_json(policy: TimingPolicy, trials: Sequence[EvidenceTrial]) -> list[dict[str, Any]]:
    """Each run with its trial: `trial_id` is null where it is not in the database."""
    return [
        {**asdict(run), **asdict(trial)} for run, trial in zip(policy.evidence, trials, strict=True)
    ]


def print_suggestion(suggestion: Suggestion, wanted: Sequence[str]) -> None:
    """A policy that was found for something else, so that nobody takes it for the one wanted.

    Args:
        suggestion: The policy and what differs.
        wanted: What was asked for, as words of a command line.
    """
    policy, cluster = suggestion.policy, suggestion.identity.cluster
    echo(f"SUGGESTION, found for something else: {policy.workload}, {cluster}")
    echo()
    _print_sentences(policy)
    echo()
    echo(f"How its job differs from {shlex.join(wanted)}:")
    for words in suggestion.differences or ("nothing that is known",):
        print_text(f"- {words}")
    echo()
    echo("Verify it with a search of its own:")
    echo(f"  {shlex.join(['syncswitch-search', 'run', *wanted])}")
    echo("See what it rests on:")
    echo(f"  syncswitch-search policy show {policy.fingerprint[:12]} --version {policy.version}")


def print_diff(found: PolicyDiff, first: _Named, second: _Named) -> None:
    """What differs, in rows; what is equal is left out."""
    (name, a), (other, _) = first, second
    if found.is_equal:
        echo(f"{name} and {other} are equal ({a.workload}, {a.cluster})")
    if found.workload:
        echo(f"The workload of {other} differs from that of {name}:")
        for difference in found.workload:
            print_text(f"- {difference.text}")
    if found.unknown:
        print_text(f"Not known of both workloads, so not compared: {', '.join(found.unknown)}")
    rows = [
        [fact.name.replace("_", " "), *_two(fact.name, fact.first, fact.second)]
        for fact in found.facts
    ] + _evidence_rows(found.evidence)
    if rows:
        if found.workload or found.unknown:
            echo()
        print_table(["", name, other], rows)


def diff_as_json(found: PolicyDiff, first: _Named, second: _Named) -> dict[str, Any]:
    """The same for programs, with every run by study and number."""
    (name, a), (other, b) = first, second
    return {
        "a": _side_as_json(name, a),
        "b": _side_as_json(other, b),
        "is_equal": found.is_equal,
        "workload": [difference.text for difference in found.workload],
        "not_compared": list(found.unknown),
        "facts": [{"fact": fact.name, "a": fact.first, "b": fact.second} for fact in found.facts],
        "evidence": {
            "only_a": _runs(found.evidence.only_first),
            "only_b": _runs(found.evidence.only_second),
            "both": _runs(found.evidence.both),
            "changed": _runs(found.evidence.changed),
        },
    }


def _place(trial: EvidenceTrial) -> str:
    if trial.trial_id is None:
        return "-"
    return f"{trial.trial_id}" if trial.agrees else f"{trial.trial_id} differs"


def _side_as_json(name: str, policy: TimingPolicy) -> dict[str, Any]:
    return {
        "name": name,
        "workload": policy.workload,
        "fingerprint": policy.fingerprint,
        "version": policy.version,
        "created_at": policy.created_at,
    }


def _runs(evidence: Sequence[Evidence]) -> list[dict[str, Any]]:
    return [{"study": run.study, "trial_number": run.trial_number} for run in evidence]


def _evidence_rows(found: EvidenceDiff) -> list[list[str]]:
    if found.is_equal:
        return []
    rows = [
        ["runs only in this one", str(len(found.only_first)), str(len(found.only_second))],
        ["runs in both", *[str(len(found.both))] * 2],
    ]
    if found.changed:
        rows.append(["of them changed", *[str(len(found.changed))] * 2])
    return rows


def _two(name: str, first: Any, second: Any) -> tuple[str, str]:
    """Two values that differ, so that the difference shows."""
    if name == "fingerprint":
        return first[:12], second[:12]
    unit = " %" if name.endswith("_percent") else ""
    for digits in (5, 17):
        shown = tuple(_shown(value, digits, unit) for value in (first, second))
        if shown[0] != shown[1]:
            break
    return shown[0], shown[1]


def _shown(value: Any, digits: int, unit: str) -> str:
    if value is None:
        return "-"
    return (f"{value:.{digits}g}" if isinstance(value, float) else str(value)) + unit
