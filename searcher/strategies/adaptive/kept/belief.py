"""What is believed of a job: guesses of its behaviour, weighted by the runs so far.

A pure function of the observations, whatever their order. Where so much was measured that few of
the first guesses are left, others are drawn around them (see `renewal`): a few guesses would be
sure of themselves, whatever they say.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from syncswitch.searcher.strategies.adaptive.evidence import Datum, Floats, KnownTarget, Prior
from syncswitch.searcher.strategies.adaptive.kept.guesses import Guesses, first_guesses, guesses_at
from syncswitch.searcher.strategies.adaptive.kept.renewal import effective_size, renewed

# With fewer effective guesses than this, new ones are drawn.
_LEAST_EFFECTIVE = 100.0
# Of runs that fail, half diverge; the others end anywhere below, as likely in every octave.
_DIVERGING_SHARE = 0.5
# Likelihoods of what should not be: a bad guess stays possible, so that any history has one.
_STRANGE_RUN = 1e-8
_DIVERGED_WITHOUT_FAILURE = 1e-6
_DIVERGED_BELOW_KNEE = 1e-3
_SAMPLES = 512


@dataclass(frozen=True, eq=False)
class KeptBelief:
    """The guesses, weighted by what was observed.

    Attributes:
        guesses: As drawn at first, or renewed.
        weights: (P,) sum to 1.
        largest_loss: The most accuracy that a run can lose.
        target_accuracy: Mean of the runs of the first protocol alone, or what was known.
    """

    threshold: float
    largest_loss: float
    guesses: Guesses
    weights: Floats
    target_accuracy: float
    target_runs: int

    def target_errors(self) -> Floats:
        """(P,) by how much the true target lies above the measured one."""
        errors: Floats = (
            self.guesses.target_z * self.guesses.scatter[:, -1] / math.sqrt(self.target_runs)
        )
        return errors

    def mean(self, values: Floats) -> Floats:
        """Expected values; the first axis is that of the guesses."""
        # Not BLAS: its threads wait longer for each other than such small sums take.
        expected: Floats = np.einsum("p,p...->...", self.weights, values)
        return expected

    def sample(self) -> npt.NDArray[np.intp]:
        """(512,) guesses as likely as their weights.

        Systematic, without chance, so that the same belief asks for the same run.
        """
        places = (np.arange(_SAMPLES) + 0.5) / _SAMPLES
        last = len(self.weights) - 1
        return np.searchsorted(np.cumsum(self.weights), places).clip(0, last)


def believe(prior: Prior, data: Iterable[Datum], known: KnownTarget | None = None) -> KeptBelief:
    """The belief after some runs, which may come in any order.

    One at least is of the first protocol alone and did not diverge, unless the target is known.
    """
    # In a fixed order, so that rounding is the same whatever the order of the runs.
    ordered = sorted(data, key=_order)
    return _believed(prior, tuple(ordered), known)


def _order(datum: Datum) -> tuple[int, float, bool, bool]:
    return (datum.index, datum.accuracy, datum.diverged, datum.failed)


@functools.lru_cache(maxsize=4096)
def _believed(prior: Prior, ordered: tuple[Datum, ...], known: KnownTarget | None) -> KeptBelief:
    evidence = _Evidence.of(prior, ordered, known)
    guesses = first_guesses(prior)
    log_weights = evidence.log_weights(guesses)
    weights = _normalised(log_weights)
    if effective_size(weights) < _LEAST_EFFECTIVE:
        cube = renewed(
            guesses.cube, lambda cube: evidence.log_weights(guesses_at(prior, cube)), log_weights
        )
        guesses = guesses_at(prior, cube)
        weights = np.full(len(cube), 1 / len(cube))
    return KeptBelief(
        threshold=prior.threshold,
        largest_loss=prior.largest_loss,
        guesses=guesses,
        weights=weights,
        target_accuracy=evidence.target,
        target_runs=evidence.target_runs,
    )


def _normalised(log_weights: Floats) -> Floats:
    weights: Floats = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    return weights


@dataclass(frozen=True, eq=False)
class _Evidence:
    """What was measured, as the weights need it.

    Attributes:
        freedom: Degrees of freedom of the scatter around the target.
        squares: Sum of squares around it.
        losses: Of each run of a candidate that did not diverge, against the target.
        indexes: Their switch points.
        diverged: Switch points of those that did.
        failed: Switch points of those that a guard ended.
    """

    threshold: float
    largest_loss: float
    target: float
    target_runs: int
    freedom: int
    squares: float
    losses: Floats
    indexes: npt.NDArray[np.intp]
    diverged: npt.NDArray[np.intp]
    failed: npt.NDArray[np.intp]

    @classmethod
    def of(cls, prior: Prior, ordered: Sequence[Datum], known: KnownTarget | None) -> _Evidence:
        last = len(prior.grid) - 1
        whole = [datum for datum in ordered if not (datum.diverged or datum.failed)]
        baseline = [datum.accuracy for datum in whole if datum.index == last]
        earlier = [known.accuracy] * known.runs if known else []
        target = math.fsum([*baseline, *earlier]) / (len(baseline) + len(earlier))
        candidates = [datum for datum in whole if datum.index < last]
        lost = [datum for datum in ordered if datum.index < last]
        diverged = [datum.index for datum in lost if datum.diverged]
        failed = [datum.index for datum in lost if datum.failed and not datum.diverged]
        return cls(
            threshold=prior.threshold,
            largest_loss=prior.largest_loss,
            target=target,
            target_runs=len(baseline) + len(earlier),
            # A known mean is one measurement, whatever the number of runs behind it.
            freedom=len(baseline) + bool(earlier) - 1,
            squares=math.fsum((accuracy - target) ** 2 for accuracy in [*baseline, *earlier]),
            losses=np.array([target - datum.accuracy for datum in candidates]),
            indexes=np.array([datum.index for datum in candidates], dtype=np.intp),
            diverged=np.array(diverged, dtype=np.intp),
            failed=np.array(failed, dtype=np.intp),
        )

    def log_weights(self, guesses: Guesses) -> Floats:
        """(P,) logarithm of prior times likelihood, up to a constant."""
        sd = guesses.scatter[:, -1]
        log_weights: Floats = -self.freedom * np.log(sd)
        log_weights -= self.squares / (2 * sd**2)
        error = guesses.target_z * sd / math.sqrt(self.target_runs)
        for index, loss in zip(self.indexes, self.losses, strict=True):
            log_weights += np.log(self._likelihood(guesses, index, loss + error))
        for index in self.diverged:
            likelihood = _DIVERGING_SHARE * guesses.failures[:, index] + _DIVERGED_WITHOUT_FAILURE
            likelihood += _DIVERGED_BELOW_KNEE * (guesses.losses[:, index] > self.threshold)
            log_weights += np.log(likelihood)
        for index in self.failed:
            log_weights += np.log(self._failing_share(guesses, index, error))
        return log_weights

    def _failing_share(self, guesses: Guesses, index: int, error: Floats) -> Floats:
        """(P,) of losing more than beta against the measured target, which a guard goes by."""
        from scipy.special import ndtr

        most = self.threshold + error - guesses.losses[:, index]
        kept = (1 - guesses.failures[:, index]) * ndtr(most / guesses.scatter[:, index])
        share: Floats = 1 - kept + _STRANGE_RUN
        return share

    def _likelihood(self, guesses: Guesses, index: int, losses: Floats) -> Floats:
        """(P,) of a run that lost so much, given each guess's target."""
        failures, sd = guesses.failures[:, index], guesses.scatter[:, index]
        z = (losses - guesses.losses[:, index]) / sd
        usual = (1 - failures) * np.exp(-0.5 * z * z) / (math.sqrt(2 * math.pi) * sd)
        # Evenly over the logarithm of the loss, from beta to the largest.
        octaves = math.log(self.largest_loss) - math.log(self.threshold)
        spread = np.maximum(losses, self.threshold) * octaves
        failed = (1 - _DIVERGING_SHARE) * failures / spread
        likelihood: Floats = usual + np.where(losses > self.threshold, failed, 0.0) + _STRANGE_RUN
        return likelihood
