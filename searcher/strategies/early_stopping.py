"""When a run may end before its end because its converged accuracy is known; pure.

After a decay of the learning rate the test accuracy jumps, and then hardly moves. What is measured
there is close to what the whole run would have measured, but not the same: the difference is
estimated from runs of the search that were made to their end. Until there is such a run no
candidate is stopped.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.observation import (
    SHARES,
    AccuracyRange,
    Observation,
    possible_accuracy,
)
from syncswitch.storage.metrics import converged_accuracy
from syncswitch.storage.records.trial import CONVERGENCE_EVALUATIONS, Evaluation

# How much calmer than before the decay the accuracy has to be.
_CONTRAST = 3.0
_EVALUATIONS_BEFORE = 8


@dataclass(frozen=True, slots=True)
class StopRule:
    """Says when the accuracy of a run is known.

    It is where the last 5 evaluations span at most the wanted precision, lie above everything
    before them, and move a third as much as those before them did. The last two keep a calm
    stretch before the decay from being taken for the end.

    Attributes:
        not_before_worker_step: Evaluations up to here say nothing: the last known decay of the
            learning rate, as each may lift the accuracy; 0 where nobody knows.
        hopeless_below: An accuracy that need not be told from worse ones; None where there is none.
        trusts_rest: Whether a run that came to rest stays there.
    """

    precision: float
    not_before_worker_step: int = 0
    hopeless_below: float | None = None
    trusts_rest: bool = True

    @classmethod
    def of(
        cls,
        strategy: Strategy,
        boundaries: Sequence[tuple[int, float]] | None,
        target: float | None = None,
    ) -> StopRule:
        """The rule for the runs of a search; the target as far as it is known."""
        decays = [step for step, _ in boundaries or ()]
        return cls(
            # Half of the threshold: the decision still has to see a difference of that size.
            precision=strategy.threshold / 2,
            not_before_worker_step=max(decays, default=0),
            hopeless_below=None if target is None else target - strategy.threshold,
            # Some runs fail late. Where nobody knows a decay that is behind them, a rest of theirs
            # promises nothing to whoever counts failures.
            trusts_rest=bool(decays) or not strategy.judges_single_runs,
        )

    def knows(self, evaluations: Sequence[Evaluation], switch_worker_step: float = 0) -> bool:
        """Whether the last evaluation settles the accuracy.

        The second protocol began at `switch_worker_step`; 0 where none follows the first.
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

    def is_hopeless(self, evaluations: Sequence[Evaluation]) -> bool:
        """Whether a run is so far below the target that its exact accuracy does not matter.

        After the last decay, with more to go than twice the span of the last 5 evaluations.
        """
        window = evaluations[-CONVERGENCE_EVALUATIONS:]
        if self.hopeless_below is None or not self.not_before_worker_step:
            return False
        if len(window) < CONVERGENCE_EVALUATIONS:
            return False
        if window[0].worker_step <= self.not_before_worker_step:
            return False
        accuracies = [evaluation.accuracy for evaluation in window]
        span = max(accuracies) - min(accuracies)
        return max(accuracies) + 2 * max(span, self.precision) < self.hopeless_below

    def known_at(
        self, evaluations: Sequence[Evaluation], switch_worker_step: float = 0
    ) -> int | None:
        """The number of evaluations that settle a run's accuracy; None where none does."""
        for number in range(CONVERGENCE_EVALUATIONS, len(evaluations)):
            if self.knows(evaluations[:number], switch_worker_step):
                return number
        return None

    def plateau_accuracy(
        self, evaluations: Sequence[Evaluation], switch_worker_step: float = 0
    ) -> float | None:
        """The accuracy of a run had it been stopped early; None where it would not have been."""
        number = self.known_at(evaluations, switch_worker_step)
        return None if number is None else converged_accuracy(evaluations[:number])


def may_stop(strategy: Strategy, percent: float, observations: Iterable[Observation]) -> bool:
    """Whether a new run may be stopped.

    One of the first protocol alone once there is a threshold; a candidate once a run showed what
    stopping changes.
    """
    if not strategy.early_stop or not strategy.threshold:
        return False
    return percent == strategy.highest_percent or correction(observations) is not None


def correction(observations: Iterable[Observation]) -> float | None:
    """The correction to add to the accuracy of a stopped run; None while it is unknown.

    The mean over the runs that were made to their end, though they might have been stopped.
    """
    known = [
        run.accuracy - run.plateau_accuracy
        for run in observations
        if run.plateau_accuracy is not None and not run.diverged and not run.stopped_early
    ]
    return statistics.fmean(known) if known else None


def corrected(
    observations: Iterable[Observation], limits: AccuracyRange = SHARES
) -> list[Observation]:
    """The observations as if every run had been made to its end, with accuracies within limits."""
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
