"""What a run measured says: converged, diverged, time to accuracy, time of the whole; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.trial import CONVERGENCE_EVALUATIONS, Evaluation, PhaseRecord

CONVERGENCE_SPAN = 0.001

_ACCURACY = Metric()

_SHORTEST_PHASE_SECONDS = 1e-9  # that has a throughput; the view has the same


def converged_accuracy(evaluations: Sequence[Evaluation], worst: float = 0.0) -> float:
    """Mean test accuracy of the last 5 evaluations; `worst` where there was none, always finite.

    The paper trains until the accuracy has changed by at most 0.1 % over five evaluations. Here a
    run has a fixed length and always has an accuracy; whether it rests is `is_converged`. The
    evaluations of a fork are also those that it inherited.
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
    """Whether the last 5 evaluations, all after the last decay, hardly differ.

    They span at most 0.1 % of the metric's range, which is 0.1 pp of an accuracy; of a metric
    without one, 0.1 % of their mean.
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
    """Whether an accuracy is what guessing the most frequent class would give.

    Two standard errors of a guess are allowed above `chance_accuracy`.
    """
    standard_error = math.sqrt(chance_accuracy * (1.0 - chance_accuracy) / test_examples)
    return accuracy <= chance_accuracy + 2.0 * standard_error


def time_to_accuracy_seconds(
    evaluations: Sequence[Evaluation], target_accuracy: float
) -> float | None:
    """Training time of the first evaluation at the target; None of a run that never gets there."""
    for evaluation in evaluations:
        if evaluation.accuracy >= target_accuracy:
            return evaluation.elapsed_seconds
    return None


def whole_run_seconds(
    training_seconds: float | None,
    phases: Sequence[PhaseRecord],
    worker_steps: int,
    total_worker_steps: int,
    stopped_early: bool | None,
    *,
    diverged: bool | None = False,
    final_protocol: str | None = None,
) -> float | None:
    """Training time of the whole run: of one that was stopped, what it would have taken.

    What it left undone is taken to go on at the throughput of its last phase. The view of trials
    says the same in SQL.

    Args:
        training_seconds: Until its end or its stop, a fork's prefix included; None while it runs.
        phases: In their order; of a fork those that it ran itself.
        worker_steps: Done at its end or its stop, a fork's prefix included.
        total_worker_steps: W.
        stopped_early: Whether it was stopped.
        diverged: Whether it diverged; how long that took is no training time of the job.
        final_protocol: Protocol that the whole run would have ended with. Of a run that was stopped
            in another one nobody knows how fast it would have gone on.

    Returns:
        Seconds; None where they are not known.
    """
    if training_seconds is None or diverged:
        return None
    missing = total_worker_steps - worker_steps
    if not stopped_early or missing <= 0:
        return training_seconds
    last = phases[-1] if phases else None
    if last is None or final_protocol not in (None, last.protocol):
        return None
    done = last.end_worker_step - last.start_worker_step
    if done <= 0 or last.seconds <= _SHORTEST_PHASE_SECONDS:
        return None
    return training_seconds + missing * last.seconds / done


def seconds_at_pace(
    phases: Iterable[PhaseRecord], protocol: str, total_worker_steps: int
) -> float | None:
    """Seconds of a whole training with one protocol at the pace of the phases that used it.

    None where none of them did.
    """
    mine = [phase for phase in phases if phase.protocol == protocol]
    steps = sum(phase.end_worker_step - phase.start_worker_step for phase in mine)
    seconds = math.fsum(phase.seconds for phase in mine)
    return total_worker_steps * seconds / steps if steps and seconds else None


def student_half_width(standard_error: float, freedom: int, confidence: float) -> float:
    """Half of Student's interval of an estimate, by its standard error and degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2)) * standard_error


def mean_of(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are known; None where none is."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
