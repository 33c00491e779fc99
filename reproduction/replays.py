"""Many searches on one recording, each with its own draws."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import signal
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace

from reproduction.simulator import PlayedRun, SimulatedSearch, played_run, search_with
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.early_stopping import StopRule
from syncswitch.storage.metrics import whole_run_seconds
from syncswitch.storage.records.job import ScheduledJob
from syncswitch.trainers.replay import RecordedRun, Recording

# Searches that are reported together.
_CHUNK = 25
# With less to do, processes take longer to start than they save.
_WORTH_PROCESSES_SECONDS = 3.0


@dataclass(frozen=True)
class PlayedRecording:
    """Recorded runs as simulations need them.

    Attributes:
        recording: The runs, at least one, without their learning curves.
        played: The runs as simulations need them, by name.
        means: By switch point, the mean of its runs; diverged if one of them did.
    """

    recording: Recording
    played: Mapping[str, PlayedRun]
    means: Mapping[float, PlayedRun]

    @classmethod
    def of(cls, recording: Recording, stop: StopRule) -> PlayedRecording:
        """Looks at each learning curve once, to find where its run may be stopped."""
        played = {run.name: _played(run, recording.identity, stop) for run in recording.runs}
        means = {
            percent: _mean_run([played[run.name] for run in recording.at(percent)])
            for percent in recording.switch_points
        }
        # This is sent to other processes, which need no curves.
        bare = tuple(replace(run, evaluations=(), phases=()) for run in recording.runs)
        return cls(replace(recording, runs=bare), played, means)

    def run_at(self, percent: float, replicate: int, *, deck_seed: int) -> PlayedRun | None:
        """Returns the run that stands for a replicate; see `Recording.draw`."""
        run = self.recording.draw(percent, replicate, deck_seed)
        return None if run is None else self.played[run.name]


def _played(run: RecordedRun, identity: ScheduledJob, stop: StopRule) -> PlayedRun:
    if run.diverged or not run.stopped_early:
        return played_run(run, stop)
    # It may be stopped where its record ends; the rest of its time is estimated.
    seconds = whole_run_seconds(
        run.training_seconds, run.phases, run.worker_steps, identity.total_worker_steps
    )
    rest_seconds = 0.0 if seconds is None else seconds - run.training_seconds
    is_first = bool(run.phases) and run.phases[-1].protocol == identity.first_protocol
    return PlayedRun(
        accuracy=run.accuracy,
        diverged=False,
        seconds=run.training_seconds + rest_seconds,
        first_seconds=run.first_seconds + (rest_seconds if is_first else 0.0),
        plateau_accuracy=run.accuracy,
        stopped_seconds=run.training_seconds,
    )


def _mean_run(runs: Sequence[PlayedRun]) -> PlayedRun:
    return PlayedRun(
        statistics.fmean(run.accuracy for run in runs),
        any(run.diverged for run in runs),
        statistics.fmean(run.seconds for run in runs),
        statistics.fmean(run.first_seconds for run in runs),
    )


def simulate(
    strategy: Strategy,
    runs: PlayedRecording,
    simulations: int,
    seed: int = 0,
    *,
    processes: int = 1,
    on_done: Callable[[int], None] | None = None,
) -> list[SimulatedSearch]:
    """Replays a search many times.

    Each simulation draws among the runs of a switch point without replacement, and starts over once
    all are drawn. Its draws depend only on the seed, 0 or more, and its number. Processes, so many
    at most, are started if that saves time. `on_done` is told how many searches have been made
    since it was told last.
    """
    part = functools.partial(_searches, strategy.among(runs.means), runs, seed)
    chunks = [range(i, min(i + _CHUNK, simulations)) for i in range(0, simulations, _CHUNK)]
    searches: list[SimulatedSearch] = []
    for found in _parts(part, chunks, processes):
        searches += found
        if on_done is not None:
            on_done(len(found))
    return searches


def _searches(
    strategy: Strategy, runs: PlayedRecording, seed: int, numbers: Iterable[int]
) -> list[SimulatedSearch]:
    # No two seeds share a deck, and the decks of seed 0 are the plain numbers.
    decks = ((seed << 32) + number for number in numbers)
    return [search_with(strategy, functools.partial(runs.run_at, deck_seed=deck)) for deck in decks]


_Part = Callable[[Iterable[int]], list[SimulatedSearch]]


def _parts(
    part: _Part, chunks: Sequence[Iterable[int]], processes: int
) -> Iterator[list[SimulatedSearch]]:
    """Yields the searches of each chunk, in order."""
    left = deque(chunks)
    yield part(left.popleft())  # not timed, as it also imports what is needed
    chunk_seconds = 0.0
    while left:
        if processes > 1 and len(left) * chunk_seconds > _WORTH_PROCESSES_SECONDS:
            # If the machine has no room for them, this process goes on alone.
            with contextlib.suppress(BrokenProcessPool), _pool(processes) as pool:
                for found in pool.map(part, tuple(left)):
                    left.popleft()
                    yield found
            processes = 1
        else:
            began = time.thread_time()  # waiting for a busy machine is no work to share
            found = part(left.popleft())
            chunk_seconds = time.thread_time() - began
            yield found


@contextlib.contextmanager
def _pool(processes: int) -> Iterator[ProcessPoolExecutor]:
    pool = ProcessPoolExecutor(
        processes,
        mp_context=multiprocessing.get_context("spawn"),
        # Ctrl-C reaches all processes of a terminal, and this one ends the others.
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),
    )
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
