"""The binary search as an Optuna sampler."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial, TrialState

from syncswitch.searcher.search.observations import (
    ASKED,
    NO_RESULT,
    in_flight_runs,
    observations_in_study,
)
from syncswitch.searcher.strategies.base import Decided, Strategy
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.searcher.strategies.planner import course_of, plan_trial

if TYPE_CHECKING:
    from optuna.study import Study

_LOG = logging.getLogger(__name__)


class BinarySearchSampler(BaseSampler):
    """Suggests the switch point that the strategy wants to be measured next.

    While trials are under way it suggests what is likely to be needed after them.

    It owns one parameter if that is a number: the strategy searches from the low end of its
    distribution to the high end, which stands for the first protocol alone, and takes the nearest
    value where there are steps. The study's value is the accuracy, or an error where the study
    minimizes. All other parameters are left to an independent sampler. The sampler has no state:
    each call derives everything from the study's trials, so any number of processes can share a
    study, and a killed search goes on.

    A trial that diverged is completed with the user attribute `diverged` set to True. One that
    fails or is pruned is asked for again; a switch point that has done so R times counts as
    diverged.

    Example:
        ```
        sampler = BinarySearchSampler(PaperStrategy(halvings=5, runs=3))
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
        _require_one_objective(study)
        space = self._independent.infer_relative_search_space(study, trial)
        own = [name for name, values in space.items() if self._strategy_on(name, values)]
        return {name: values for name, values in space.items() if name not in own}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
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
            assert isinstance(param_distribution, FloatDistribution | IntDistribution)
            percent = self._next_percent(study, trial, strategy)
            value = _on_grid(percent, param_distribution)
            if value != percent:
                study._storage.set_trial_system_attr(trial._trial_id, ASKED, percent)
            return int(value) if isinstance(param_distribution, IntDistribution) else value
        return self._independent.sample_independent(study, trial, param_name, param_distribution)

    def _next_percent(self, study: Study, trial: FrozenTrial, strategy: Strategy) -> float:
        others = [
            other for other in study.get_trials(deepcopy=False) if other.number != trial.number
        ]
        planned = plan_trial(
            strategy, self._finished(study, others), in_flight_runs(others, self._parameter)
        )
        return float(planned.switch_percent)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self._independent.before_trial(study, trial)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        self._independent.after_trial(study, trial, state, values)
        if self._parameter not in trial.params or state.name not in NO_RESULT:
            return
        percent = trial.params[self._parameter]
        others = [one for one in study.get_trials(deepcopy=False) if one.number != trial.number]
        same = [one for one in others if one.params.get(self._parameter) == percent]
        if 1 + sum(one.state.name in NO_RESULT for one in same) == self._strategy.runs:
            self._tell_given_up(percent)

    def _tell_given_up(self, percent: float) -> None:
        _LOG.warning(
            "%s %g gave no result %d times: the search continues as if it had diverged",
            self._parameter,
            percent,
            self._strategy.runs,
        )

    def reseed_rng(self) -> None:
        self._independent.reseed_rng()

    def stop_when_decided(self, study: Study, trial: FrozenTrial) -> None:
        """Stops the study once the answer is known; a callback for `study.optimize`."""
        distribution = trial.distributions.get(self._parameter)
        strategy = self._strategy_on(self._parameter, distribution)
        if strategy is not None:
            finished = self._finished(study, study.get_trials(deepcopy=False))
            if isinstance(course_of(strategy, finished).decision, Decided):
                study.stop()

    def _strategy_on(self, name: str, distribution: BaseDistribution | None) -> Strategy | None:
        """The strategy on the range of the owned parameter; None for other parameters."""
        if name != self._parameter or not isinstance(
            distribution, FloatDistribution | IntDistribution
        ):
            return None
        strategy = self._strategy.between(float(distribution.low), float(distribution.high))
        width, step = distribution.high - distribution.low, distribution.step
        if step and width:
            # Finer halves have the same values as others, which would be asked for once more.
            most = max(1, math.floor(math.log2(width / step) + 1e-9))
            strategy = strategy.halved_at_most(most)
        return strategy

    def _finished(self, study: Study, trials: Sequence[FrozenTrial]) -> list[Observation]:
        sign = -1.0 if study.direction.name == "MINIMIZE" else 1.0
        return observations_in_study(trials, self._parameter, sign, self._strategy.runs)


def _on_grid(percent: float, distribution: FloatDistribution | IntDistribution) -> float:
    low, high, step = distribution.low, distribution.high, distribution.step
    if step is None or low == high:
        return min(max(percent, low), high)
    most = math.floor((high - low) / step + 1e-9)
    return min(high, low + min(most, max(0, round((percent - low) / step))) * step)


def _require_one_objective(study: Study) -> None:
    if len(study.directions) != 1:
        raise ValueError(
            "BinarySearchSampler needs a study with one objective, the accuracy or an error"
        )
