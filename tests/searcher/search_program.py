"""A test tool: the real command line with a trainer that generates its accuracies."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from generated_trainer import GeneratedTrainer, identity

from syncswitch.searcher.cli import compose, main
from syncswitch.searcher.cli.compose import Job


def generated_job(reference: str, workers: int, protocols: tuple[str, str], launcher: str) -> Job:
    """Stands for `compose_local`; the environment says how long a run takes."""
    delay_seconds = float(os.environ.get("GENERATED_DELAY_SECONDS", "0"))
    failures = int(os.environ.get("GENERATED_FAILURES", "0"))
    diverges_below_percent = float(os.environ.get("GENERATED_DIVERGES_BELOW_PERCENT", "0"))
    trainer = GeneratedTrainer(
        delay_seconds=delay_seconds,
        failures=failures,
        diverges_below_percent=diverges_below_percent,
    )
    first, second = protocols
    job = identity(workers=workers, first_protocol=first, second_protocol=second)
    return Job(job, lambda: trainer)


if __name__ == "__main__":
    compose.TRAINERS["local"] = generated_job
    main(prog_name="syncswitch-search")
