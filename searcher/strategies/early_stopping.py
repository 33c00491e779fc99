"""When a run may end early because its converged accuracy is known; pure.

After a decay of the learning rate the test accuracy jumps, and then hardly moves. What is measured
there is close to what the whole run would measure, but not the same. The difference is estimated
from runs of the search that were made to their end; until there is one, no candidate is stopped.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.observation import SHARES, Observation
from syncswitch.storage.metrics import converged_accuracy
from syncswitch.storage.records.metric import AccuracyRange, possible_accuracy
from syncswitch.storage.records.trial import CONVERGENCE_EVALUATIONS, Evaluation

# How many times calmer than before the decay the accuracy has to be.
_CONTRAST = 3.0
_EVALUATIONS_BEFORE = 8


@dataclass(frozen=True, slots=True)
class StopRule:
    """Decides when the accuracy of a run is known.

    That is when the last 5 evaluations span at most the wanted precision, lie above everything
    before them, and move a third as much as those before them. The last two conditions keep a calm
    stretch before the decay from being taken for the end.

    Attributes:
        precision: The largest span of the last evaluations.
        not_before_worker_step: Evaluations up to here do not count: the last known decay of the
            learning rate, as each decay may lift the accuracy; 0 if none is known.
        trusts_rest: Whether a run that came to rest stays there.
    """

    precision: float
    not_before_worker_step: int = 0
    trusts_rest: bool = True

    @classmethod
    def of(cls, strategy: Strategy, boundaries: Sequence[tuple[int, float]] | None) -> StopRule:
        decays = [step for step, _ in boundaries or ()]
        return cls(
            # Half of the threshold: the decision still has to see a difference of that size.
            precision=strategy.threshold / 2,
            not_before_worker_step=max(decays, default=0),
            # Some runs fail late. Without a known decay behind it, a run at rest may still fail.
            trusts_rest=bool(decays) or not strategy.judges_single_runs,
        )

    def is_settled(self, evaluations: Sequence[Evaluation], switch_worker_step: float = 0) -> bool:
        """Returns whether the accuracy is known with the last evaluation.

        The second protocol began at `switch_worker_step`; 0 if the run has only one.
        """
        n = CONVERGENCE_EVALUATIONS
        if not self.trusts_rest or len(evaluations) < n + 3:
            return False
        if evaluations[-n].worker_step <= max(switch_worker_step, self.not_before_worker_step):
            return False
        accuracies = [evaluation.accuracy for evaluation in evaluations]
        window, before = accuracies[-n:], accuracies[:-n]
        if max(window) - min(window) > self.precision or min(window) < max(before):
            return False
        restless = statistics.median(_changes(before[-_EVALUATIONS_BEFORE:]))
        return _CONTRAST * statistics.fmean(_changes(window)) <= restless

    def settled_after(
        self, evaluations: Sequence[Evaluation], switch_worker_step: float = 0
    ) -> int | None:
        """After how many evaluations the accuracy is known; None if it never is."""
        for number in range(CONVERGENCE_EVALUATIONS, len(evaluations)):
            if self.is_settled(evaluations[:number], switch_worker_step):
                return number
        return None

    def plateau_accuracy(
        self, evaluations: Sequence[Evaluation], switch_worker_step: float = 0
    ) -> float | None:
        """The accuracy of a run had it been stopped; None if it would not have been."""
        number = self.settled_after(evaluations, switch_worker_step)
        return None if number is None else converged_accuracy(evaluations[:number])


def may_stop(strategy: Strategy, percent: float, observations: Iterable[Observation]) -> bool:
    """Returns whether a new run may be stopped.

    A run of the first protocol alone may be once there is a threshold, a candidate once another run
    showed what stopping changes.
    """
    if not strategy.early_stop or not strategy.threshold:
        return False
    return percent == strategy.highest_percent or correction(observations) is not None


def correction(observations: Iterable[Observation]) -> float | None:
    """Returns what to add to the accuracy of a stopped run; None while that is unknown.

    It is the mean over the runs that were made to their end although they might have been stopped.
    """
    differences = [
        run.accuracy - run.plateau_accuracy
        for run in observations
        if run.plateau_accuracy is not None and not run.diverged and not run.stopped_early
    ]
    return statistics.fmean(differences) if differences else None


def corrected(
    observations: Iterable[Observation], limits: AccuracyRange = SHARES
) -> list[Observation]:
    """Returns the observations as if every run had been made to its end, within the limits."""
    runs = list(observations)
    difference = correction(runs)
    if not difference:
        return runs
    return [
        replace(run, accuracy=possible_accuracy(run.accuracy + difference, limits))
        if run.stopped_early and not run.diverged
        else run
        for run in runs
    ]


def _changes(accuracies: Sequence[float]) -> list[float]:
    return [abs(b - a) for a, b in itertools.pairwise(accuracies)]
