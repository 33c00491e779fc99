"""What `syncswitch-run` shows while it trains."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from syncswitch.cli import console

if TYPE_CHECKING:
    from syncswitch.storage.records.job import WorkloadIdentity
    from syncswitch.storage.records.trial import Evaluation, RunEvent
    from syncswitch.trainers.trainer import Observer, Verdict


@contextmanager
def watching(identity: WorkloadIdentity) -> Iterator[Observer]:
    """An observer that shows the progress on a terminal, and elsewhere only what is remarkable."""
    from syncswitch.trainers.run.record import event_line, is_remarkable
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
