"""What a run's evaluations say: converged, diverged, time to accuracy; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from syncswitch.storage.records import Evaluation

__all__ = [
    "CONVERGENCE_EVALUATIONS",
    "CONVERGENCE_SPAN",
    "converged_accuracy",
    "is_at_chance",
    "is_converged",
    "time_to_accuracy_seconds",
]

CONVERGENCE_EVALUATIONS = 5
CONVERGENCE_SPAN = 0.001


def converged_accuracy(evaluations: Sequence[Evaluation]) -> float:
    """Mean test accuracy of the last 5 evaluations; 0 where there was none, always finite."""
    last = [
        evaluation.accuracy
        for evaluation in evaluations[-CONVERGENCE_EVALUATIONS:]
        if math.isfinite(evaluation.accuracy)
    ]
    return sum(last) / len(last) if last else 0.0


def is_converged(evaluations: Sequence[Evaluation], last_decay_worker_step: int) -> bool:
    """Whether the last 5 evaluations, all after the last decay, span at most 0.1 pp."""
    last = evaluations[-CONVERGENCE_EVALUATIONS:]
    if len(last) < CONVERGENCE_EVALUATIONS or last[0].worker_step <= last_decay_worker_step:
        return False
    accuracies = [evaluation.accuracy for evaluation in last]
    # The margin forgives the last bit of a difference of two floats.
    return max(accuracies) - min(accuracies) <= CONVERGENCE_SPAN + 1e-9


def is_at_chance(accuracy: float, chance_accuracy: float, test_examples: int) -> bool:
    """Whether an accuracy is what guessing the most frequent class would give.

    Two standard errors of a guess are allowed above `chance_accuracy`.
    """
    standard_error = math.sqrt(chance_accuracy * (1.0 - chance_accuracy) / test_examples)
    return accuracy <= chance_accuracy + 2.0 * standard_error


def time_to_accuracy_seconds(
    evaluations: Sequence[Evaluation], target_accuracy: float
) -> float | None:
    """Training time of the first evaluation that reaches the target.

    Returns:
        Seconds, or None for a run that never does (censored, not dropped).
    """
    for evaluation in evaluations:
        if evaluation.accuracy >= target_accuracy:
            return evaluation.elapsed_seconds
    return None
