"""What `syncswitch-run` says of a run at its end."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syncswitch.storage.records import RunConditions
from syncswitch.trainers import console
from syncswitch.trainers.event_text import is_remarkable

if TYPE_CHECKING:
    from syncswitch.storage.records import TimingPolicy, TrialRecord

__all__ = ["RunReport", "make_report", "print_report", "report_as_json"]

_LONG_PHASE_PERCENT = 10.0
_LONG_PHASE_SECONDS = 20.0


@dataclass(frozen=True)
class RunReport:
    """What the user learns of a run.

    Attributes:
        policy: The policy that was used.
        record: What the run measured.
        baseline_seconds: What the first protocol alone would have taken; None where unknown.
        baseline_source: Where that figure comes from.
        time_to_accuracy_seconds: Until the target accuracy; None for never.
        model_path: The saved model.
    """

    policy: TimingPolicy
    record: TrialRecord
    baseline_seconds: float | None
    baseline_source: str
    time_to_accuracy_seconds: float | None
    model_path: Path

    @property
    def speed_up(self) -> float | None:
        """Time of the first protocol alone over the time of this run."""
        if self.baseline_seconds is None or self.record.training_seconds <= 0:
            return None
        return self.baseline_seconds / self.record.training_seconds


def make_report(policy: TimingPolicy, record: TrialRecord, model_path: Path) -> RunReport:
    """Compares a run with its policy and with the first protocol alone.

    Args:
        policy: That the run used.
        record: What it measured.
        model_path: The saved model.
    """
    from syncswitch.storage.metrics import time_to_accuracy_seconds

    seconds, source = _baseline(policy, record)
    reached = time_to_accuracy_seconds(record.evaluations, policy.target_accuracy)
    return RunReport(policy, record, seconds, source, reached, model_path)


def _baseline(policy: TimingPolicy, record: TrialRecord) -> tuple[float | None, str]:
    """What the first protocol alone would have taken.

    Best from this very run, on this very machine; but a short first phase is mostly warming up.
    """
    name = policy.first_protocol.upper()
    first = record.phases[0]
    is_there = first.protocol == policy.first_protocol and first.worker_steps_per_second > 0
    is_long = policy.switch_percent >= _LONG_PHASE_PERCENT or first.seconds >= _LONG_PHASE_SECONDS
    if policy.baseline_seconds is not None and not (is_there and is_long):
        return policy.baseline_seconds, f"{name} alone was in the search"
    if is_there:
        seconds = record.spec.identity.total_worker_steps / first.worker_steps_per_second
        return seconds, f"{name} alone at the pace of this run's {name} phase"
    return None, "unknown"


def report_as_json(report: RunReport) -> dict[str, Any]:
    """For programs."""
    from syncswitch.storage.policy_file import policy_to_dict

    record = report.record
    return {
        "policy": policy_to_dict(report.policy),
        "accuracy": record.converged_accuracy,
        "final_accuracy": record.final_accuracy,
        "converged": record.converged,
        "reaches_target": _reaches_target(report),
        "training_seconds": record.training_seconds,
        "baseline_seconds": report.baseline_seconds,
        "baseline_source": report.baseline_source,
        "speed_up": report.speed_up,
        "time_to_accuracy_seconds": report.time_to_accuracy_seconds,
        "switch_overhead_seconds": record.switch_overhead_seconds,
        "worker_steps": record.worker_steps,
        "phases": [
            {**asdict(phase), "worker_steps_per_second": phase.worker_steps_per_second}
            for phase in record.phases
        ],
        "conditions": asdict(record.spec.conditions),
        "events": [asdict(event) for event in record.events],
        "model": str(report.model_path),
        "seed": record.spec.seed,
    }


def _reaches_target(report: RunReport) -> bool:
    policy = report.policy
    return report.record.converged_accuracy >= policy.target_accuracy - policy.threshold


def print_report(report: RunReport) -> None:
    """For people."""
    policy, record = report.policy, report.record
    console.print_table(
        ["phase", "worker-steps", "seconds", "worker-steps/s", "staleness mean (max)"],
        [
            [
                phase.protocol.upper(),
                f"{phase.end_worker_step - phase.start_worker_step:,}",
                f"{phase.seconds:.2f}",
                f"{phase.worker_steps_per_second:,.0f}",
                # Replicas have none: nobody else writes to them.
                "-"
                if phase.mean_staleness is None
                else f"{phase.mean_staleness:.2f} ({phase.max_staleness})",
            ]
            for phase in record.phases
        ],
    )
    _print_events(record)
    click.echo()
    verdict = "within" if _reaches_target(report) else "NOT within"
    console.print_text(
        f"{policy.workload} with policy {policy.version} and {policy.workers} workers: accuracy "
        f"{record.converged_accuracy:.4f}, {verdict} {policy.threshold:g} of the target "
        f"{policy.target_accuracy:.4f}; {_time_text(report)}."
    )
    sentence = f"Training took {record.training_seconds:.1f} s"
    if report.speed_up is not None:
        sentence += (
            f", {report.speed_up:.2f} times as fast as {report.baseline_source} "
            f"({report.baseline_seconds:.1f} s); the switch took "
            f"{record.switch_overhead_seconds * 1000:.1f} ms"
        )
    console.print_text(f"{sentence}.")
    if not _reaches_target(report) and policy.kept_share is not None:
        console.print_text(_expected(policy, policy.kept_share))
    click.echo(f"Model saved as {report.model_path}")


def _expected(policy: TimingPolicy, kept_share: float) -> str:
    """How often a run loses more than it may."""
    own = ""
    if policy.baseline_kept_share is not None and policy.switch_percent < 100:
        first = policy.first_protocol.upper()
        own = f", with {first} alone in about {100 * (1 - policy.baseline_kept_share):.0f}"
    lost = 100 * (1 - kept_share)
    return f"That much is lost in about {lost:.0f} of 100 runs with this policy{own}."


def _print_events(record: TrialRecord) -> None:
    """What was injected, what went wrong and what was decided; nothing where nothing was."""
    conditions, usual = record.spec.conditions, RunConditions()
    words = list(conditions.injections)
    if conditions.switch_mechanism != usual.switch_mechanism:
        words.insert(0, f"switch {conditions.switch_mechanism}")
    if conditions.online != usual.online:
        words.insert(0, f"online {conditions.online}")
    if words:
        click.echo()
        console.print_text("; ".join(words))
    if not any(map(is_remarkable, record.events)):
        return
    click.echo()
    total = record.spec.identity.total_worker_steps
    console.print_table(
        ["event", "at", "second", "worker", "took s", "reason"],
        [
            [
                event.kind,
                f"{100 * event.worker_step / total:.1f} %",
                f"{event.elapsed_seconds:.2f}",
                "-" if event.worker is None else str(event.worker),
                "-" if event.seconds is None else f"{event.seconds:.2f}",
                event.reason,
            ]
            for event in record.events
        ],
        prose="reason",
    )


def _time_text(report: RunReport) -> str:
    if report.time_to_accuracy_seconds is None:
        return "no test reached the target itself"
    return f"first test at the target after {report.time_to_accuracy_seconds:.1f} s"
