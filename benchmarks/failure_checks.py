"""Checks of the runs of a failure campaign; pure except for reading the files of a run."""

from __future__ import annotations

import math
import statistics
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from scipy import stats

from benchmarks.failure_cases import CHECKPOINT_PERCENTS, TOTAL_WORKER_STEPS, Case
from syncswitch.storage.records.trial import RunEvent, TrialRecord

_CHANCE_OF_FALSE_ALARM = 0.01  # in a whole campaign
# What happens so close to the end may come too late to be noticed.
_LATE_WORKER_STEPS = TOTAL_WORKER_STEPS * 0.97


@dataclass(frozen=True)
class Noise:
    """The spread of the accuracies of undisturbed runs.

    The spread within the pairs of protocols is taken to be the same for all, so that it is known
    from many runs. A run is outside of the noise where it is farther from the mean of its pair than
    one of `runs` more undisturbed ones would be with a chance of 1 % (Student's t).

    Attributes:
        means: Mean accuracy by pair.
        spread: Standard deviation within a pair.
        allowed: Difference from the mean that is noise.
    """

    means: Mapping[tuple[str, str], float]
    spread: float
    allowed: float

    @classmethod
    def of(cls, accuracies: Mapping[tuple[str, str], Sequence[float]], runs: int) -> Noise:
        """From the undisturbed runs, by pair; 2 or more of each."""
        means = {pair: statistics.mean(found) for pair, found in accuracies.items()}
        squares = [(one - means[pair]) ** 2 for pair, found in accuracies.items() for one in found]
        freedom = len(squares) - len(means)
        spread = math.sqrt(sum(squares) / freedom)
        least = min(map(len, accuracies.values()))
        t = float(stats.t.ppf(1 - _CHANCE_OF_FALSE_ALARM / 2 / max(1, runs), freedom))
        return cls(means, spread, t * spread * math.sqrt(1 + 1 / least))

    def difference(self, case: Case, record: TrialRecord) -> float:
        """Accuracy of a run less that of undisturbed ones of its pair."""
        return record.converged_accuracy - self.means[case.pair]


def record_problems(case: Case, record: TrialRecord) -> list[str]:
    return [
        *_step_problems(record),
        *_evaluation_problems(record),
        *_event_problems(case, record.events),
    ]


def unsaved_problems(case: Case, record: TrialRecord, percents: Sequence[float]) -> list[str]:
    """Whether checkpoints that could not be written are named.

    Args:
        case: The run.
        record: Of the run.
        percents: When the disk was seen to get full, and to be so no longer.
    """
    if len(percents) != 2 or case.is_often_killed:
        return []
    # When the limit comes, some worker-steps more are done.
    full_from, full_to = percents[0] + 15, percents[1] - 1
    if not any(full_from < percent < full_to for percent in CHECKPOINT_PERCENTS):
        return []
    is_named = any(event.kind == "unsaved" for event in record.events)
    return [] if is_named else ["the disk was full, and no event says so"]


def file_problems(case: Case, folder: Path) -> list[str]:
    """Problems of the files that a run left."""
    # A damaged checkpoint is passed over, and only a disk that is not full has another one then.
    may_be_damaged = case.truncated_percent is not None and case.disk_full_percents is not None
    problems = []
    for path in sorted(folder.iterdir()):
        if not (path.name.startswith("seed-") and path.suffix == ".npz"):
            problems.append(f"left {path.name}")
        elif not (may_be_damaged or _is_whole(path)):
            problems.append(f"{path.name} is not whole")
    return problems


def seconds_to_continue(record: TrialRecord) -> list[float]:
    """From each loss that was found until the run had the worker or its state back."""
    return [
        event.seconds
        for event in record.events
        if event.kind in ("returned", "rebuilt") and event.seconds is not None
    ]


def _step_problems(record: TrialRecord) -> Iterator[str]:
    if record.worker_steps != TOTAL_WORKER_STEPS:
        yield f"{record.worker_steps} worker-steps"
    done = sum(phase.end_worker_step - phase.start_worker_step for phase in record.phases)
    if done != TOTAL_WORKER_STEPS:
        yield f"phases have {done} worker-steps"
    if any(a.end_worker_step != b.start_worker_step for a, b in pairwise(record.phases)):
        yield "phases do not join"
    if any(phase.seconds < 0 for phase in record.phases):
        yield "a phase of negative length"
    seconds = sum(phase.seconds for phase in record.phases)
    if seconds > record.training_seconds + 1e-6:
        yield f"phases take {seconds:.3f} s of {record.training_seconds:.3f} s"
    if record.diverged or record.stopped_early:
        yield f"diverged {record.diverged}, stopped early {record.stopped_early}"


def _evaluation_problems(record: TrialRecord) -> Iterator[str]:
    found = record.evaluations
    if not found or found[-1].worker_step != TOTAL_WORKER_STEPS:
        yield "no test at the end"
    for before, after in pairwise(found):
        if before.worker_step >= after.worker_step:
            yield f"test at {after.worker_step} follows that at {before.worker_step}"
        if before.elapsed_seconds > after.elapsed_seconds:
            yield f"test at {after.worker_step} is before that at {before.worker_step}"
    if found and found[-1].elapsed_seconds > record.training_seconds + 1e-6:
        yield "the last test is after the end"


def _event_problems(case: Case, events: Sequence[RunEvent]) -> Iterator[str]:
    kinds = [event.kind for event in events]
    if not case.kinds:
        if set(kinds) - {"switched"}:
            yield f"events of an undisturbed run: {kinds}"
        return
    if "resumed" not in kinds and _has_to_resume(case):
        yield "the chief was killed, and no event says so"
    for text in case.injections:
        injected = [event for event in events if event.reason == text]
        is_late = _begins_at_percent(text) / 100 * TOTAL_WORKER_STEPS > _LATE_WORKER_STEPS
        # What was noted after the last checkpoint died with the chief.
        if not injected and not is_late and not case.is_often_killed:
            yield f"no event for {text}"
        for event in injected:
            yield from _loss_problems(event, events)


def _has_to_resume(case: Case) -> bool:
    """Whether the chief was certainly killed after a checkpoint had been completed."""
    moments = [
        _begins_at_percent(text) for text in case.injections if text.startswith("kill:chief")
    ]
    if case.truncated_percent is not None:
        moments.append(case.truncated_percent)
    is_saved = case.disk_full_percents is None
    return is_saved and bool(moments) and all(35 < moment < 85 for moment in moments)


def _begins_at_percent(injection: str) -> float:
    return float(injection.partition("at=")[2].partition("%")[0])


def _loss_problems(injected: RunEvent, events: Sequence[RunEvent]) -> Iterator[str]:
    """A loss is found, and what was lost comes back."""
    if not injected.reason.startswith(("kill", "hang")):
        return
    if injected.worker_step > _LATE_WORKER_STEPS:
        return
    position = events.index(injected)
    later = events[position + 1 :]
    found = [event for event in later if event.kind == "lost"]
    back = [event for event in later if event.kind in ("returned", "rebuilt", "resumed")]
    if injected.worker is not None:
        # What else happens at the same time may hide it: all servers are new then.
        found = [one for one in found if one.worker in (injected.worker, None)]
    if not found and injected.worker in _resting(events[:position]):
        return
    if not found and "resumed" not in [event.kind for event in later]:
        yield f"{injected.reason} was not found"
    elif not back and found and found[0].worker_step < _LATE_WORKER_STEPS:
        yield f"{injected.reason}: nothing came back"


def _resting(events: Sequence[RunEvent]) -> set[int | None]:
    """Workers that an online policy lets rest: one without a process dies with its next step."""
    resting: set[int | None] = set()
    for event in events:
        if event.kind == "removed":
            resting.add(event.worker)
        elif event.kind == "restored":
            resting.discard(event.worker)
    return resting


def _is_whole(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False
