"""When a searcher may choose its trial."""

from __future__ import annotations

from typing import Any

import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from syncswitch.searcher.search.observations import REPLICATE
from syncswitch.searcher.search.search import PARAMETER, SearchState
from syncswitch.searcher.strategies.paper import PaperStrategy

PERCENTS = FloatDistribution(0.0, 100.0)


def trial(
    number: int,
    *,
    chosen: float | None,
    replicate: int | None,
    state: TrialState = TrialState.RUNNING,
) -> FrozenTrial:
    has_percent: dict[str, Any] = {} if chosen is None else {PARAMETER: chosen}
    made = create_trial(
        state=state,
        values=None,
        params=has_percent,
        distributions=dict.fromkeys(has_percent, PERCENTS),
        user_attrs={} if replicate is None else {REPLICATE: replicate},
    )
    made.number = number
    return made


def after(*trials: FrozenTrial) -> SearchState:
    return SearchState(PaperStrategy(), trials, rows={})


@pytest.mark.parametrize(
    ("percent", "replicate"),
    [
        pytest.param(None, None, id="nothing is chosen"),
        pytest.param(12.5, None, id="no replicate yet"),
        pytest.param(None, 1, id="both, but the replicate was read later"),
    ],
)
def test_who_comes_later_waits_for_both_choices(
    percent: float | None, replicate: int | None
) -> None:
    state = after(trial(0, chosen=percent, replicate=replicate))
    assert state.is_choosing_before(1)
    assert not state.is_all_before(1)
    assert not state.is_choosing_before(0)


def test_chosen_and_ended_ones_are_not_waited_for() -> None:
    ended = trial(1, chosen=None, replicate=None, state=TrialState.FAIL)
    state = after(trial(0, chosen=12.5, replicate=0), ended)
    assert not state.is_choosing_before(2)
    assert state.is_all_before(2)
    assert not state.is_all_before(3)
