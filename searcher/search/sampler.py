"""The binary search as an Optuna sampler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial, TrialState

from syncswitch.searcher.search.observations import in_flight_runs, observations_in_study
from syncswitch.searcher.strategies.base import Decided, Strategy
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.searcher.strategies.planner import course_of, plan_trial

if TYPE_CHECKING:
    from optuna.study import Study


class BinarySearchSampler(BaseSampler):
    """Suggests the switch point that the strategy wants to be measured next.

    While trials are under way it suggests what is likely to be needed after them.

    It owns one parameter if that is a plain float, without log scale and step: the strategy
    searches from the low end of its distribution to the high end, which stands for the first
    protocol alone. The study's value is the accuracy. All other parameters and distributions are
    left to an independent sampler. The sampler has no state: each call derives everything from the
    study's trials, so any number of processes can share a study, and a killed search goes on.

    A trial that diverged is completed with the user attribute `diverged` set to True.

    Example:
        ```
        sampler = BinarySearchSampler(PaperStrategy(settings=5, runs=3))
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.optimize(objective, callbacks=[sampler.stop_when_decided])
        ```
    """

    def __init__(
        self,
        strategy: Strategy | None = None,
        *,
        parameter: str = "switch_percent",
        independent_sampler: BaseSampler | None = None,
        seed: int | None = None,
    ) -> None:
        """Creates a sampler.

        Args:
            strategy: Its two ends are replaced by those of the parameter's distribution.
            parameter: Name of the parameter that this sampler owns.
            independent_sampler: Samples everything else; None for random sampling.
            seed: Seed of that random sampling.
        """
        self._strategy = strategy or PaperStrategy()
        self._parameter = parameter
        self._independent = independent_sampler or RandomSampler(seed=seed)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Returns what the independent sampler wants, except the owned parameter."""
        _require_one_objective(study)
        space = self._independent.infer_relative_search_space(study, trial)
        return {
            name: found for name, found in space.items() if self._strategy_on(name, found) is None
        }

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Asks the independent sampler."""
        _require_one_objective(study)
        return self._independent.sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Suggests the owned parameter by the strategy, even if no more run is needed.

        Raises UserError if the baseline diverged.
        """
        _require_one_objective(study)
        strategy = self._strategy_on(param_name, param_distribution)
        if strategy is not None:
            return float(self._next_percent(study, trial, strategy))
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def _next_percent(self, study: Study, trial: FrozenTrial, strategy: Strategy) -> float:
        """Returns the switch point that the strategy wants, given all other trials."""
        others = [
            other for other in study.get_trials(deepcopy=False) if other.number != trial.number
        ]
        planned = plan_trial(
            strategy,
            observations_in_study(others, self._parameter),
            in_flight_runs(others, self._parameter),
        )
        return planned.switch_percent

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Tells the independent sampler."""
        self._independent.before_trial(study, trial)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        """Tells the independent sampler."""
        self._independent.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        """Reseeds the independent sampler."""
        self._independent.reseed_rng()

    def stop_when_decided(self, study: Study, trial: FrozenTrial) -> None:
        """Stops the study once the answer is known; a callback for `study.optimize`."""
        distribution = trial.distributions.get(self._parameter)
        strategy = self._strategy_on(self._parameter, distribution)
        if strategy is not None:
            finished = observations_in_study(study.get_trials(deepcopy=False), self._parameter)
            if isinstance(course_of(strategy, finished).decision, Decided):
                study.stop()

    def _strategy_on(self, name: str, distribution: BaseDistribution | None) -> Strategy | None:
        """Returns the strategy on the range of the owned parameter; None for other parameters."""
        if (
            name != self._parameter
            or not isinstance(distribution, FloatDistribution)
            or distribution.log
            or distribution.step is not None
        ):
            return None
        return self._strategy.between(float(distribution.low), float(distribution.high))


def _require_one_objective(study: Study) -> None:
    if len(study.directions) != 1:
        raise ValueError("BinarySearchSampler needs a study with one objective, the accuracy")
