"""The published runs as problems: what all recorded runs of a setting are on average is its truth.

The runs of a setting are drawn without replacement, and anew once all are drawn. A run that shares
its start with another keeps its own accuracy. How long the runs took that diverged was not
recorded, so they cost nothing.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from syncswitch.searcher.simulation import PlayedRun, played_run
from syncswitch.searcher.stopping import StopRule
from syncswitch.storage.engine import open_database
from syncswitch.storage.importing.manifest import read_manifest
from syncswitch.storage.importing.run_import import import_manifest
from syncswitch.trainers.recording import Recording, read_recording
from tests.benchmarks.problems import BASELINE_PERCENT, BETA, earliest_acceptable, halvings

SETUPS = {"resnet32-cifar10-8": 5, "resnet32-cifar10-16": 2}
"""The published setups, and how often their range was halved."""


@dataclass(frozen=True)
class RecordedJob:
    """The runs of one setup.

    Attributes:
        recording: As it was read.
        played: What a simulation needs of each run, by its name.
        means: By setting, what its runs are on average.
        settings: M.
    """

    recording: Recording
    played: Mapping[str, PlayedRun]
    means: Mapping[float, PlayedRun]
    settings: int

    def problem(self, number: int) -> RecordedProblem:
        """The draws of a number; the same at every call."""
        return RecordedProblem(number, self)


@dataclass(frozen=True)
class RecordedProblem:
    """One way to draw the recorded runs; see `Problem` for what is not here."""

    number: int
    job: RecordedJob
    threshold: float = BETA

    @property
    def settings(self) -> int:
        """As deep as runs were recorded."""
        return self.job.settings

    @property
    def target_accuracy(self) -> float:
        """The mean of all recorded runs of the first protocol alone."""
        return self.job.means[BASELINE_PERCENT].accuracy

    @property
    def known_accuracy(self) -> float:
        """The same: what a recurring job knows."""
        return self.target_accuracy

    @property
    def known_runs(self) -> int:
        """How many those runs are."""
        return len(self.job.recording.at(BASELINE_PERCENT))

    @property
    def first_seconds(self) -> float:
        """Their mean time."""
        return self.job.means[BASELINE_PERCENT].seconds

    @property
    def grid(self) -> tuple[float, ...]:
        """The recorded ends of repeated halving."""
        return tuple(percent for percent in halvings(self.settings) if percent in self.job.means)

    @property
    def best_percent(self) -> float:
        """The answer of the search that knows all runs: nothing between was recorded."""
        return earliest_acceptable(self)

    def run_at(self, percent: float, replicate: int) -> PlayedRun | None:
        """See `Problem`."""
        run = self.job.recording.draw(percent, replicate, deck_seed=self.number)
        return self.job.played[run.name] if run else None

    def true_run_at(self, percent: float) -> PlayedRun | None:
        """See `Problem`."""
        return self.job.means.get(percent)

    def policy_seconds(self, percent: float) -> float:
        """See `Problem`."""
        return self.job.means[percent].seconds


def recorded_jobs(folder: Path) -> dict[str, RecordedJob]:
    """Reads the published logs as users do: by an import into a database."""
    with (
        tempfile.TemporaryDirectory() as name,
        open_database(f"sqlite:///{name}/published.db", create=True) as database,
    ):
        import_manifest(database, read_manifest(folder / "manifest.csv"), folder / "logs")
        return {
            setup: recorded_job(
                read_recording(database, setup, workers=None, protocols=("bsp", "asp")), settings
            )
            for setup, settings in SETUPS.items()
        }


def recorded_job(recording: Recording, settings: int) -> RecordedJob:
    """What simulations need of a recording."""
    stop = StopRule(precision=BETA / 2)
    played = {run.name: played_run(run, stop) for run in recording.runs}
    means = {
        percent: _mean_run([played[run.name] for run in recording.at(percent)])
        for percent in recording.settings
    }
    return RecordedJob(recording, played, means, settings)


def _mean_run(runs: Sequence[PlayedRun]) -> PlayedRun:
    return PlayedRun(
        statistics.fmean(run.accuracy for run in runs),
        any(run.diverged for run in runs),
        statistics.fmean(run.seconds for run in runs),
        statistics.fmean(run.first_seconds for run in runs),
    )
