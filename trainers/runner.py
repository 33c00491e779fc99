"""`syncswitch-run`: trains a workload with a timing policy that was found before.

Thin on purpose: it needs no Optuna, and with a policy file no database.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from syncswitch.storage.errors import FatalError
from syncswitch.storage.records import LARGEST_SEED
from syncswitch.trainers import console
from syncswitch.trainers.local import (
    DEFAULT_LAUNCHER,
    LAUNCHERS,
    load_local_workload,
    open_local_trainer,
)

if TYPE_CHECKING:
    from syncswitch.storage.records import (
        Evaluation,
        TimingPolicy,
        TrialRecord,
        TrialSpec,
        WorkloadIdentity,
    )
    from syncswitch.trainers.trainer import Observer, Verdict
    from syncswitch.trainers.workload import Workload

__all__ = ["main"]

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


@click.command(
    name="syncswitch-run",
    cls=console.ProgramCommand,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("reference", metavar="WORKLOAD")
@click.option(
    "--policy",
    "choice",
    metavar="FILE|VERSION|ALIAS",
    default="current",
    show_default=True,
    help="A policy file, or a version or alias in the database.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Workers in the cluster. Default: as in the policy.",
)
@console.protocols_option(None)
@click.option(
    "--launcher",
    type=click.Choice(LAUNCHERS),
    default=DEFAULT_LAUNCHER,
    show_default=True,
    help="Where the cluster's servers and workers run.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, LARGEST_SEED),
    default=0,
    show_default=True,
    help="Seed of this run.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    help="Where to save the model.  [default: NAME.keras]",
)
@console.common_options
@click.version_option(package_name="syncswitch", prog_name="syncswitch-run")
def main(
    reference: str,
    choice: str,
    workers: int | None,
    protocols: str | None,
    launcher: str,
    seed: int,
    output: Path | None,
    storage_url: str,
    as_json: bool,
) -> int:
    """Trains WORKLOAD with its timing policy and saves the model.

    WORKLOAD is a built-in name (digits), file.py:attribute or package.module:attribute.
    """
    from syncswitch.trainers.export import check_model_path
    from syncswitch.trainers.protocols import parse_pair
    from syncswitch.trainers.run_policy import fitting_policy, real_policies

    if output is not None:
        check_model_path(output)
    pair = None if protocols is None else parse_pair(protocols)
    candidates = real_policies(reference, choice, workers, pair, storage_url)
    workload = load_local_workload(reference, max(policy.workers for policy in candidates))
    policy, identity = fitting_policy(candidates, workload, reference, choice, storage_url)
    output = output or Path(f"{workload.name}.keras")
    check_model_path(output)
    try:
        report = _train(workload, reference, policy, identity, launcher, seed, output)
    except KeyboardInterrupt:
        console.print_error("interrupted; nothing was saved, and the same command starts afresh")
        return console.EXIT_INTERRUPTED
    if as_json:
        console.print_json(_as_json(report))
    else:
        _print(report)
    return console.EXIT_OK


def _train(
    workload: Workload,
    reference: str,
    policy: TimingPolicy,
    identity: WorkloadIdentity,
    launcher: str,
    seed: int,
    output: Path,
) -> RunReport:
    from syncswitch.storage.metrics import time_to_accuracy_seconds
    from syncswitch.storage.records import TrialSpec
    from syncswitch.trainers.export import load_model, save_model

    with tempfile.TemporaryDirectory(prefix="syncswitch-run-") as folder:
        spec = TrialSpec(
            identity,
            policy.switch_percent,
            seed,
            checkpoint_percents=(100.0,),
            checkpoint_directory=Path(folder),
        )
        with (
            open_local_trainer(workload, reference, policy.workers, launcher) as trainer,
            _watching(policy) as observer,
        ):
            record = trainer.train(spec, observer)
        if record.diverged:
            raise FatalError(
                f"the training diverged after {record.worker_steps:,} worker-steps, so no model "
                f"was saved; try another --seed, or search again: syncswitch-search run {reference}"
            )
        save_model(load_model(workload, record.checkpoints[100.0]), output)
    seconds, source = _baseline(policy, record, spec)
    return RunReport(
        policy,
        record,
        seconds,
        source,
        time_to_accuracy_seconds(record.evaluations, policy.target_accuracy),
        output,
    )


def _baseline(
    policy: TimingPolicy, record: TrialRecord, spec: TrialSpec
) -> tuple[float | None, str]:
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
        seconds = spec.identity.total_worker_steps / first.worker_steps_per_second
        return seconds, f"{name} alone at the pace of this run's {name} phase"
    return None, "unknown"


@contextmanager
def _watching(policy: TimingPolicy) -> Iterator[Observer]:
    """An observer that shows the progress on a terminal, and nothing elsewhere."""
    from syncswitch.trainers.trainer import SilentObserver

    if not console.stderr_is_terminal():
        yield SilentObserver()
        return
    with console.progress_bars(console.stderr_console()) as bars:
        task = bars.add_task(f"training {policy.workload}", total=policy.total_worker_steps)

        class Bar:
            def on_progress(self, worker_step: int) -> None:
                bars.update(task, completed=worker_step)

            def on_evaluation(self, evaluation: Evaluation) -> Verdict:
                from syncswitch.trainers.trainer import Verdict

                bars.update(
                    task,
                    description=f"training {policy.workload}, accuracy {evaluation.accuracy:.4f}",
                )
                return Verdict.CONTINUE

        yield Bar()


def _as_json(report: RunReport) -> dict[str, Any]:
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
        "model": str(report.model_path),
        "seed": record.spec.seed,
    }


def _reaches_target(report: RunReport) -> bool:
    policy = report.policy
    return report.record.converged_accuracy >= policy.target_accuracy - policy.threshold


def _print(report: RunReport) -> None:
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
    click.echo(f"Model saved as {report.model_path}")


def _time_text(report: RunReport) -> str:
    if report.time_to_accuracy_seconds is None:
        return "no test reached the target itself"
    return f"first test at the target after {report.time_to_accuracy_seconds:.1f} s"
