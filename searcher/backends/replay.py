"""`--trainer replay`: replay recorded runs, without training."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from syncswitch.searcher.backends.base import JobRequest, TrainableJob, TrainerChoice, option
from syncswitch.storage.errors import OptionHint, UserError
from syncswitch.trainers.replay import REPLAY


@dataclass(frozen=True)
class RecordedRuns(TrainerChoice):
    """Recorded runs in the database `recordings`."""

    name = REPLAY
    summary = "replay recorded runs, without training"

    recordings: str | None = option("Database of the recorded runs.", metavar="URL")

    def __post_init__(self) -> None:
        if self.recordings is None:
            raise UserError(
                "the trainer replay needs the database of the recorded runs",
                remedy=OptionHint("recordings", verb="add"),
                code="parameter-missing",
            )

    @override
    def job(self, request: JobRequest) -> TrainableJob:
        """The recorded job, by its name, a reference or the start of a fingerprint."""
        from syncswitch.storage.database.engine import open_database
        from syncswitch.storage.database.inspection import is_same_database, shown
        from syncswitch.trainers.replay import ReplayTrainer, read_recording

        assert self.recordings is not None
        reference, why = request.named, "the trainer replay trains nothing, its runs are recorded"
        request.chosen.check_nothing_chosen(why)
        if is_same_database(self.recordings, request.storage_url):
            raise UserError(
                f"are both {shown(request.storage_url)}, so replayed runs would count as measured"
                " ones",
                parameter=("recordings", "storage"),
                remedy=OptionHint("storage", verb="give the search a database of its own with"),
            )
        with open_database(self.recordings, create=False) as database:
            recording = read_recording(
                database, reference, workers=request.workers, protocols=request.protocols
            )
        return TrainableJob(
            identity=recording.identity,
            open_trainer=lambda: ReplayTrainer(recording, deck_seed=request.seed),
            reference=recording.reference,
            switch_points=tuple(recording.switch_points),
            recordings_url=self.recordings,
        )
