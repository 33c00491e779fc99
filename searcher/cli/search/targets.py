"""`--threshold` and `--target-accuracy`, in the unit of the metric of all jobs; pure."""

from __future__ import annotations

from collections.abc import Iterable

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.metric import Metric

_USUAL_THRESHOLD = 0.01


def one_metric(metrics: Iterable[Metric]) -> Metric:
    """What all jobs are compared by; jobs by two metrics have no target in common.

    Raises:
        UserError: There are several.
    """
    different = list(dict.fromkeys(metrics))
    if len(different) > 1:
        names = " and ".join(f"{one.axis_title}, {one.range_text}" for one in different)
        raise UserError(
            f"these jobs are compared by {names}, so none can say what another is to reach; sweep"
            " each on its own"
        )
    return different[0]


def allowed_and_target(
    metric: Metric, threshold: float | None, target_value: float | None
) -> tuple[float, float | None]:
    """beta, and the accuracy to keep, None where it is to be measured.

    Raises:
        UserError: The metric has no usual threshold, or cannot lose or be as much.
    """
    from syncswitch.searcher.strategies.comparison import ComparisonStrategy
    from syncswitch.searcher.study.plan import SearchPlan, check_usual_threshold

    if threshold is None:
        check_usual_threshold(metric)
        threshold = _USUAL_THRESHOLD
    given = ComparisonStrategy(1, 1, threshold, target_value, percents=(100.0,))
    strategy = given.measured_by(metric)
    SearchPlan(strategy).check()
    return strategy.threshold, strategy.target_accuracy
