"""What `syncswitch-run` shows while it trains."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from syncswitch.cli import console
from syncswitch.storage.errors import RetryableError

if TYPE_CHECKING:
    from pathlib import Path

    from syncswitch.cli.run.resume import RunCheckpoints
    from syncswitch.cli.simulated import AnyCluster
    from syncswitch.storage.records.job import WorkloadIdentity
    from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialRecord, TrialSpec
    from syncswitch.trainers.job.workload import Workload
    from syncswitch.trainers.trainer import Observer, Verdict


@contextmanager
def watching(identity: WorkloadIdentity) -> Iterator[Observer]:
    """An observer that shows the progress on a terminal, and elsewhere only what is remarkable."""
    from syncswitch.trainers.run.event_text import event_line, is_remarkable
    from syncswitch.trainers.trainer import SilentObserver, Verdict

    if not sys.stderr.isatty():

        class Lines(SilentObserver):
            def on_event(self, event: RunEvent) -> None:
                if is_remarkable(event):
                    console.print_note(event_line(event))

        yield Lines()
        return
    with console.progress_bars(console.rich_console(stderr=True)) as bars:
        task = bars.add_task(f"training {identity.name}", total=identity.total_worker_steps)
        metric = identity.decided_by

        class Bar:
            def on_progress(self, worker_step: int) -> None:
                bars.update(task, completed=worker_step)

            def on_evaluation(self, evaluation: Evaluation) -> Verdict:
                value = metric.text(evaluation.accuracy)
                bars.update(task, description=f"training {identity.name}, {metric.name} {value}")
                return Verdict.CONTINUE

            def on_event(self, event: RunEvent) -> None:
                if is_remarkable(event):
                    bars.console.print(event_line(event), markup=False)

        yield Bar()


def trained(
    workload: Workload,
    reference: str,
    cluster: AnyCluster,
    checkpoints: RunCheckpoints,
    tensorboard_folder: Path | None,
) -> TrialRecord:
    """Trains, and shows how far it is.

    Raises RetryableError with a word on how to go on where the infrastructure failed.
    """
    from syncswitch.trainers.run.tensorboard import logged

    identity = checkpoints.spec.identity
    try:
        with (
            logged(
                cluster.open(workload, reference, identity.workers),
                tensorboard_folder,
                _name_of_logs(checkpoints.spec),
            ) as trainer,
            watching(identity) as observer,
        ):
            return trainer.train(checkpoints.spec, observer)
    except RetryableError as error:
        raise RetryableError(f"{error}; {checkpoints.how_to_go_on}") from error


def _name_of_logs(spec: TrialSpec) -> str:
    """For TensorBoard, of runs of one job with one switch and one seed."""
    identity = spec.identity
    job = f"{identity.name}-{identity.fingerprint[:12]}"
    return f"{job}-switch-{spec.switch_percent:g}-seed-{spec.seed}"
