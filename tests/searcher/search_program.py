"""A test tool: the real command line with a trainer that generates its accuracies."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

from generated_trainer import GeneratedTrainer, identity

from syncswitch.cli.search.main import main
from syncswitch.searcher.backends.base import JobRequest, TrainableJob
from syncswitch.searcher.backends.local import LocalTrainer
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.trainer import Observer

if TYPE_CHECKING:
    from tests.warm_program import WarmProcess


class SlowTrainer(GeneratedTrainer):
    """Takes the seconds of GENERATED_DELAY_SECONDS: `0 60` for none in the first run, then 60."""

    def _sleep(self, spec: TrialSpec, observer: Observer) -> None:
        delays = os.environ.get("GENERATED_DELAY_SECONDS", "0").split()
        self.delay_seconds = float(delays[min(len(self.runs), len(delays)) - 1])
        super()._sleep(spec, observer)


class MeetingTrainer(SlowTrainer):
    """Its first run goes on once so many processes have each begun one.

    GENERATED_MEETING names the number of processes and a folder: `3:FOLDER`.
    """

    def _sleep(self, spec: TrialSpec, observer: Observer) -> None:
        number, _, folder = os.environ["GENERATED_MEETING"].partition(":")
        (Path(folder) / str(os.getpid())).touch()
        until = time.monotonic() + 120
        while len(os.listdir(folder)) < int(number):
            assert time.monotonic() < until, "nobody came"
            time.sleep(0.05)
        super()._sleep(spec, observer)


def generated_job(choice: LocalTrainer, request: JobRequest) -> TrainableJob:
    """Stands for `LocalTrainer.job`; the environment says what befalls a run."""
    failures = int(os.environ.get("GENERATED_FAILURES", "0"))
    diverges_below_percent = float(os.environ.get("GENERATED_DIVERGES_BELOW_PERCENT", "0"))
    kind = MeetingTrainer if "GENERATED_MEETING" in os.environ else SlowTrainer
    trainer = kind(failures=failures, diverges_below_percent=diverges_below_percent)
    first, second = request.protocols
    job = identity(workers=request.size, first_protocol=first, second_protocol=second)
    chosen = choice.conditions(request.chosen, request.size, request.switch_percent, first)
    return TrainableJob(job, lambda: trainer, request.reference or job.name, chosen)


CODE = "import search_program; search_program.run()"


def start(*arguments: str, **environment: str) -> WarmProcess:
    """The program as a fork, which need not import anything."""
    from tests.warm_program import WarmProcess

    return WarmProcess(CODE, *arguments, folder=Path.cwd(), **environment)


def run() -> None:
    LocalTrainer.job = generated_job  # type: ignore[assignment,method-assign]
    main(prog_name="syncswitch-search")


if __name__ == "__main__":
    run()
