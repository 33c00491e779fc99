"""A workload: the model, the data and the hyper-parameters of a training job."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any, Literal, get_args

from syncswitch.storage.errors import Part, SyncSwitchError, WorkloadError, one_line
from syncswitch.storage.records.job import MOST_WORKER_STEPS, name_problem
from syncswitch.storage.records.metric import GOALS, MetricGoal
from syncswitch.trainers.job.data import AnyData, Data, StreamedData

Momentum = Literal["own", "same", "zero", "scaled", "ramped", "additive"]
"""Momentum after the switch, see `hyperparameters.momentum_after_switch`."""

Batch = Literal["same", "global"]
"""Batch of a gradient after the switch, see `Workload.batch_after_switch`."""

Loss = str | Callable[..., Any] | Mapping[str, Any] | Sequence[Any]
"""A loss as a workload accepts it."""


LOSS_METRIC = "loss"  # name of the metric that is the loss on the test set


@dataclass(frozen=True)
class Workload:
    """A training job, independent of how and on how many machines it runs.

    Everything that needs TensorFlow is given as a function, so that a module that defines a
    workload can be imported without TensorFlow.

    Attributes:
        name: Name of the workload, for people.
        model: Builds a Keras 3 model with float32 variables and fresh initial values.
        data: Loads the training and the test set.
        data_set: Name of the data set; part of the fingerprint.
        total_worker_steps: W; a worker-step is one gradient of one worker.
        batch_size: B, the number of examples in a worker-step.
        learning_rate: eta, the rate of one worker; a round of n workers uses n * eta, and so do
            replicas that are averaged. Alternatively a function that builds a Keras learning-rate
            schedule, whose steps are worker-steps.
        evaluation_interval_worker_steps: Worker-steps between tests; the mean of the last 5 tests
            is the converged accuracy.
        momentum: Momentum of SGD, the optimizer unless `optimizer` is given.
        learning_rate_boundaries: Pairs `(worker_step, factor)`: from that worker-step on the rate
            is eta * factor.
        optimizer: Builds any Keras optimizer; the fields above set its learning rate.
        loss: Whatever `compile` accepts: the name of a Keras loss, a loss, or for several outputs a
            dict or list of these; or a function without arguments that builds one of them.
        metric: The metric that compares switch points: the name of a Keras metric, `loss` for the
            loss on the test set, or a function that builds a Keras metric; None for accuracy as it
            fits the labels.
        batch_after_switch: Examples in a gradient of the second protocol: `same` (B) or `global`
            (n * B, as in a round), which counts as n worker-steps and is applied with the rate
            n * eta. For protocols that apply each push, such as `asp`.
        momentum_after_switch: Momentum in the second protocol. With `own` each worker has the
            momentum of its own gradients, or with an optimizer all of its variables, and pushes
            what is to be added to the parameters. Otherwise all pushes move one shared momentum:
            `same`, `zero`, `scaled` (mu/n), `ramped` (mu/n, 2 mu/n, 4 mu/n ... mu) or `additive`
            (mu/n, 2 mu/n, 3 mu/n ... mu). Protocols that apply no single push share it always.
        momentum_stage_worker_steps: How long `ramped` and `additive` keep each value; None for an
            epoch.
        largest_scaling: Limit of linear scaling: the rate of an update grows with its number of
            gradients up to this number; None for no limit.
        least_embedding_values: Number of values from which on a `keras.layers.Embedding` is trained
            by its rows, so that a step only moves those of its batch; None to move all rows always.
        metric_goal: `max` if a higher metric is better, or `min`; None for the direction that Keras
            reports, or else `max`.
        metric_unit: Unit of the metric, for people.
        metric_range: Lowest and highest possible value of the metric, None for no limit; a run that
            is worse has diverged. None for the range of a Keras metric, or else 0 to 1.
        loss_weights: Factors of the losses of several outputs, a dict or list as in `compile`.
        class_weight: Factors of the loss by class, as in Keras' `fit`; 1 for missing classes.
        metric_output: Name of the output by whose metric a run is judged, if there are several.
        further_metrics: Metrics that each test records besides `metric`, given in the same way, or
            `accuracy`. They decide nothing and are not part of the fingerprint.
        callbacks: Builds the Keras callbacks of a run. Its tests are reported to them like the
            epochs of a `fit`: `on_train_begin`, `on_epoch_begin`, `on_test_begin`, `on_test_end`,
            `on_epoch_end` and `on_train_end`, the last three with logs. They have no model, and are
            not part of the fingerprint.
    """

    name: str
    model: Callable[[], Any]
    data: Callable[[], AnyData]
    data_set: str
    total_worker_steps: int
    batch_size: int
    learning_rate: float | Callable[[], Any]
    evaluation_interval_worker_steps: int
    momentum: float = 0.9
    learning_rate_boundaries: tuple[tuple[int, float], ...] = ()
    optimizer: Callable[[], Any] | None = None
    loss: Loss = "sparse_categorical_crossentropy"
    metric: str | Callable[[], Any] | None = None
    batch_after_switch: Batch = "same"
    momentum_after_switch: Momentum = "own"
    momentum_stage_worker_steps: int | None = None
    largest_scaling: int | None = None
    least_embedding_values: int | None = 1 << 20
    metric_goal: MetricGoal | None = None
    metric_unit: str | None = None
    metric_range: tuple[float | None, float | None] | None = None
    loss_weights: Mapping[str, float] | Sequence[float] | float | None = None
    class_weight: Mapping[int, float] | None = None
    metric_output: str | None = None
    further_metrics: tuple[str | Callable[[], Any], ...] = ()
    callbacks: Callable[[], Sequence[Any]] | None = None

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise self.error(problem)

    def _problems(self) -> Iterator[str]:
        if problem := name_problem(self.name):
            yield problem
        optional = ("momentum_stage_worker_steps", "largest_scaling", "least_embedding_values")
        required = ("total_worker_steps", "batch_size", "evaluation_interval_worker_steps")
        for field in (*required, *optional):
            value = getattr(self, field)
            if value is None and field in optional:
                continue
            if not isinstance(value, int) or not 1 <= value <= MOST_WORKER_STEPS:
                yield f"{field} is {value!r}; give a whole number, 1 to {MOST_WORKER_STEPS}"
        rate, boundaries = self.learning_rate, self.learning_rate_boundaries
        if not callable(rate) and not (math.isfinite(rate) and rate > 0):
            yield (
                f"learning_rate is {rate!r}; give a number above 0, or a function that builds a"
                " Keras schedule"
            )
        if callable(rate) and boundaries:
            yield (
                "learning_rate is a schedule, and there are learning_rate_boundaries as well; give"
                " one of the two"
            )
        variant, variants = self.momentum_after_switch, get_args(Momentum)
        if variant not in variants:
            yield f"momentum_after_switch is {variant!r}; give one of {', '.join(variants)}"
        if self.batch_after_switch not in get_args(Batch):
            batches = ", ".join(get_args(Batch))
            yield f"batch_after_switch is {self.batch_after_switch!r}; give one of {batches}"
        if self.optimizer is not None and variant not in ("own", "same"):
            yield (
                f"momentum_after_switch is {variant!r}, which is for the built-in SGD, and this"
                " workload has an optimizer; give own or same, or leave the optimizer out"
            )
        if self.momentum_stage_worker_steps is not None and variant not in ("ramped", "additive"):
            yield (
                "momentum_stage_worker_steps is for ramped and additive, and momentum_after_switch"
                f" is {variant}; leave one out"
            )
        if not 0 <= self.momentum < 1:
            yield f"momentum is {self.momentum!r}; give a number in [0, 1)"
        if not all(math.isfinite(factor) and factor >= 0 for _, factor in boundaries):
            yield f"learning_rate_boundaries are {boundaries}; give factors of 0 or more"
        steps = [step for step, _ in boundaries]
        if steps != sorted(set(steps)) or any(step < 1 for step in steps):
            yield (
                f"learning_rate_boundaries are {steps}; give worker-steps of 1 or more in ascending"
                " order"
            )

        yield from self._problems_of_metric()

    def _problems_of_metric(self) -> Iterator[str]:
        goal, unit, limits = self.metric_goal, self.metric_unit, self.metric_range
        if goal is not None and goal not in GOALS:
            yield f"metric_goal is {goal!r}; give max where more is better, or min"
        if unit is not None and not (isinstance(unit, str) and unit.isprintable() and unit):
            yield f"metric_unit is {unit!r}; give a text such as 'km', or leave it out"
        if self.metric is None and (goal, unit, limits) != (None, None, None):
            yield (
                "metric_goal, metric_unit and metric_range describe a metric, and there is none;"
                " give metric, too, such as 'mae'"
            )
        if isinstance(self.further_metrics, str) or not all(
            isinstance(one, str) or callable(one) for one in self.further_metrics
        ):
            yield (
                f"further_metrics is {self.further_metrics!r}; give a tuple of names of Keras"
                " metrics, or functions that build them, such as ('loss', 'AUC')"
            )
        if limits is not None and not _is_range(limits):
            yield (
                f"metric_range is {limits!r}; give its lowest and its highest value, None for no"
                " limit, such as (0, None)"
            )

    def error(self, problem: str, remedy: Part | Sequence[Part] = ()) -> WorkloadError:
        """Makes an error about this workload, whose problem is one line."""
        return WorkloadError(f"workload {self.name!r}: {problem}", remedy=remedy)

    def load_data(self) -> AnyData:
        """Loads the training and the test set.

        Raises:
            WorkloadError: `data` failed, or returned something else or less than a batch.
        """
        with users_code(self, "data"):
            data = self.data()
        if not isinstance(data, Data | StreamedData):
            raise WorkloadError(
                f"workload {self.name!r}: data() returned a {type(data).__name__}; "
                "return a syncswitch.Data or StreamedData"
            )
        if self.batch_size > data.train.examples:
            raise WorkloadError(
                f"workload {self.name!r}: batch_size is {self.batch_size:,}, and there are"
                f" {data.train.examples:,} examples to train with; give a batch_size of at most"
                " that many"
            )
        return data


def _is_range(limits: Any) -> bool:
    """Whether these are two limits in ascending order, either of which may be None."""
    if not isinstance(limits, tuple | list) or len(limits) != 2:
        return False
    given = [one for one in limits if one is not None]
    are_numbers = all(isinstance(one, int | float) and math.isfinite(one) for one in given)
    return are_numbers and (len(given) < 2 or given[0] < given[1])


@contextmanager
def users_code(workload: Workload, part: str) -> Iterator[None]:
    """Runs a function that the user wrote, and reports its failure in one line.

    Its output goes to standard error, because standard output is for results.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (SyncSwitchError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise workload.error(
            f"{part}() failed with {one_line(error)}; call it alone to see where"
        ) from error
