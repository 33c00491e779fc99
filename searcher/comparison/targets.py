"""`--threshold` and `--target-accuracy`, in the unit of the metric; pure."""

from __future__ import annotations

from syncswitch.storage.records.metric import Metric

_USUAL_THRESHOLD = 0.01


def allowed_and_target(
    metric: Metric, threshold: float | None, target_value: float | None
) -> tuple[float, float | None]:
    """beta, and the accuracy to keep, None where it is to be measured.

    Raises:
        UserError: The metric has no usual threshold, or cannot lose or be as much.
    """
    from syncswitch.searcher.search.plan import SearchPlan, check_usual_threshold
    from syncswitch.searcher.strategies.comparison import ComparisonStrategy

    if threshold is None:
        check_usual_threshold(metric)
        threshold = _USUAL_THRESHOLD
    given = ComparisonStrategy(1, 1, threshold, target_value, percents=(100.0,))
    strategy = given.measured_by(metric)
    SearchPlan(strategy).check()
    return strategy.threshold, strategy.target_accuracy
