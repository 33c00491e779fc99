"""The published runs as problems: the mean of a switch point's recorded runs is its truth.

The runs of a switch point are drawn without replacement, and anew once all are drawn. A run that
shares its start with another keeps its own accuracy. How long the runs took that diverged was not
recorded, so they cost nothing.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.problems import BASELINE_PERCENT, BETA, earliest_acceptable, halvings
from reproduction.logs import write_table
from syncswitch.searcher.simulation.replays import PlayedRecording
from syncswitch.searcher.simulation.simulator import PlayedRun
from syncswitch.searcher.strategies.early_stopping import StopRule
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.importing import import_runs, read_table
from syncswitch.trainers.replay.recording import read_recording

SETUPS = {"resnet32-cifar10-8": 5, "resnet32-cifar10-16": 2}
"""The published setups, and how often their range was halved."""


@dataclass(frozen=True)
class RecordedJob:
    """The runs of one setup.

    Attributes:
        runs: What was recorded.
        settings: M.
    """

    runs: PlayedRecording
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
        return self.job.runs.means[BASELINE_PERCENT].accuracy

    @property
    def known_accuracy(self) -> float:
        """The same: what a recurring job knows."""
        return self.target_accuracy

    @property
    def known_runs(self) -> int:
        """How many those runs are."""
        return len(self.job.runs.recording.at(BASELINE_PERCENT))

    @property
    def first_seconds(self) -> float:
        """Their mean time."""
        return self.job.runs.means[BASELINE_PERCENT].seconds

    @property
    def grid(self) -> tuple[float, ...]:
        """The recorded ends of repeated halving."""
        return tuple(
            percent for percent in halvings(self.settings) if percent in self.job.runs.means
        )

    @property
    def best_percent(self) -> float:
        """The answer of the search that knows all runs: nothing between was recorded."""
        return earliest_acceptable(self)

    def run_at(self, percent: float, replicate: int) -> PlayedRun | None:
        """See `Problem`."""
        return self.job.runs.run_at(percent, replicate, deck_seed=self.number)

    def true_run_at(self, percent: float) -> PlayedRun | None:
        """See `Problem`."""
        return self.job.runs.means.get(percent)

    def policy_seconds(self, percent: float) -> float:
        """See `Problem`."""
        return self.job.runs.means[percent].seconds


def recorded_jobs(folder: Path) -> dict[str, RecordedJob]:
    """Reads the published logs as users do: by an import into a database.

    Args:
        folder: A checkout of their authors' repository, or its folder `data`.
    """
    stop = StopRule(precision=BETA / 2)
    with (
        tempfile.TemporaryDirectory() as name,
        open_database(f"sqlite:///{name}/published.db", create=True) as database,
    ):
        table = Path(name) / "runs.csv"
        write_table(folder, table)
        import_runs(database, read_table(table))
        return {
            setup: RecordedJob(
                PlayedRecording.of(
                    read_recording(database, setup, workers=None, protocols=("bsp", "asp")), stop
                ),
                settings,
            )
            for setup, settings in SETUPS.items()
        }
