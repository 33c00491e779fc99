"""Judges the measurements of a run: convergence, divergence, times; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import CONVERGENCE_EVALUATIONS, Evaluation, PhaseRecord

CONVERGENCE_SPAN = 0.001

_ACCURACY = Metric()

_SHORTEST_PHASE_SECONDS = 1e-9  # with a throughput; the view has the same limit


def converged_accuracy(evaluations: Sequence[Evaluation], worst: float = 0.0) -> float:
    """Returns the mean test accuracy of the last 5 evaluations; `worst` without any, always finite.

    The paper trains until the accuracy has changed by at most 0.1 % over five evaluations. Here a
    run has a fixed length and always has an accuracy; `is_converged` says whether it has settled.
    The evaluations of a fork include those that it inherited.
    """
    last = [
        evaluation.accuracy
        for evaluation in evaluations[-CONVERGENCE_EVALUATIONS:]
        if math.isfinite(evaluation.accuracy)
    ]
    return sum(last) / len(last) if last else worst


def is_converged(
    evaluations: Sequence[Evaluation], last_decay_worker_step: int, metric: Metric = _ACCURACY
) -> bool:
    """Returns whether the last 5 evaluations, all after the last decay, hardly differ.

    They may span 0.1 % of the metric's range, which is 0.1 pp of an accuracy; for a metric without
    a range, 0.1 % of their mean.
    """
    last = evaluations[-CONVERGENCE_EVALUATIONS:]
    if len(last) < CONVERGENCE_EVALUATIONS or last[0].worker_step <= last_decay_worker_step:
        return False
    accuracies = [evaluation.accuracy for evaluation in last]
    if metric.lowest is None or metric.highest is None:
        scale = abs(math.fsum(accuracies)) / len(accuracies)
    else:
        scale = metric.highest - metric.lowest
    # The margin forgives the last bit of a difference of two floats.
    return max(accuracies) - min(accuracies) <= (CONVERGENCE_SPAN + 1e-9) * scale


def is_at_chance(accuracy: float, chance_accuracy: float, test_examples: int) -> bool:
    """Returns whether an accuracy is that of guessing the most frequent class.

    Two standard errors of a guess are allowed above `chance_accuracy`.
    """
    standard_error = math.sqrt(chance_accuracy * (1.0 - chance_accuracy) / test_examples)
    return accuracy <= chance_accuracy + 2.0 * standard_error


def time_to_accuracy_seconds(
    evaluations: Sequence[Evaluation], target_accuracy: float
) -> float | None:
    """Returns the training time of the first evaluation at the target; None if there is none."""
    reached = (one.elapsed_seconds for one in evaluations if one.accuracy >= target_accuracy)
    return next(reached, None)


def whole_run_seconds(
    training_seconds: float,
    phases: Sequence[PhaseRecord],
    worker_steps: int,
    total_worker_steps: int,
) -> float | None:
    """Estimates the training time of the whole run of which a part was made.

    The rest is taken to go on at the throughput of the last phase, as in the view of trials; None
    if it has none. Time and worker-steps until the stop include a fork's prefix, its phases do not.
    """
    missing = total_worker_steps - worker_steps
    if missing <= 0:
        return training_seconds
    if not phases or phases[-1].seconds <= _SHORTEST_PHASE_SECONDS:
        return None
    last = phases[-1]
    done = last.end_worker_step - last.start_worker_step
    return training_seconds + missing * last.seconds / done if done > 0 else None


def seconds_at_pace(
    phases: Iterable[PhaseRecord], protocol: str, total_worker_steps: int
) -> float | None:
    """Returns the seconds of a whole training at the pace of the phases with one protocol.

    None if no phase used it.
    """
    mine = [phase for phase in phases if phase.protocol == protocol]
    steps = sum(phase.end_worker_step - phase.start_worker_step for phase in mine)
    seconds = math.fsum(phase.seconds for phase in mine)
    return total_worker_steps * seconds / steps if steps and seconds else None


def student_half_width(standard_error: float, freedom: int, confidence: float) -> float:
    """Returns half of Student's interval, by standard error and degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2)) * standard_error


def mean_of(values: Iterable[float | None]) -> float | None:
    """Returns the mean of the known values; None if none is known."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
