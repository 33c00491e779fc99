"""A test tool: the real command line with a trainer that generates its accuracies."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from generated_trainer import GeneratedTrainer, identity

from syncswitch.searcher.cli import main
from syncswitch.searcher.cli.trainers.base import Job, JobRequest, TrainerChoice
from syncswitch.searcher.cli.trainers.local import LocalTrainer


def generated_job(choice: TrainerChoice, request: JobRequest) -> Job:
    """Stands for `LocalTrainer.job`; the environment says how long a run takes."""
    delay_seconds = float(os.environ.get("GENERATED_DELAY_SECONDS", "0"))
    failures = int(os.environ.get("GENERATED_FAILURES", "0"))
    diverges_below_percent = float(os.environ.get("GENERATED_DIVERGES_BELOW_PERCENT", "0"))
    trainer = GeneratedTrainer(
        delay_seconds=delay_seconds,
        failures=failures,
        diverges_below_percent=diverges_below_percent,
    )
    first, second = request.protocols
    job = identity(workers=request.size, first_protocol=first, second_protocol=second)
    return Job(job, lambda: trainer)


if __name__ == "__main__":
    LocalTrainer.job = generated_job  # type: ignore[assignment,method-assign]
    main(prog_name="syncswitch-search")
