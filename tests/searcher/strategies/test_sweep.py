"""Runs that are given: each is made once, whatever it measures."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncswitch.searcher.search.plan import SearchPlan, study_name
from syncswitch.searcher.strategies.base import NextTrial, Wait
from syncswitch.searcher.strategies.observation import Observation
from syncswitch.searcher.strategies.planner import PlannedTrial, plan_trial
from syncswitch.searcher.strategies.registry import stored_strategy
from syncswitch.searcher.strategies.sweep import SweepStrategy
from tests.failing import fails
from tests.searcher.generated_trainer import identity
from tests.searcher.strategies.strategy_contract import info_of

PERCENTS = (100.0, 6.25, 12.5)
WANTED = st.lists(st.tuples(st.sampled_from(PERCENTS), st.integers(0, 5)), unique=True, max_size=12)
RULES = WANTED.map(
    lambda wanted: SweepStrategy(3, 3, 0.01, percents=PERCENTS, wanted=tuple(wanted))
)


@given(RULES, st.integers(1, 4), st.randoms(use_true_random=False))
def test_each_wanted_run_is_made_once(
    strategy: SweepStrategy, searchers: int, chance: object
) -> None:
    finished: list[Observation] = []
    under_way: list[tuple[float, int]] = []
    made: list[tuple[float, int]] = []
    while True:
        planned = plan_trial(strategy, finished, under_way)
        if isinstance(planned, PlannedTrial) and len(under_way) < searchers:
            assert not planned.is_speculative
            run = (planned.switch_percent, planned.replicate)
            under_way.append(run)
            made.append(run)
        elif under_way:
            percent, replicate = under_way.pop(chance.randrange(len(under_way)))  # type: ignore[attr-defined]
            diverged = percent != 100 and replicate == 1
            finished.append(Observation(percent, 0.9, diverged, len(finished), replicate))
        else:
            break
    assert isinstance(planned, Wait)
    assert sorted(made) == sorted(strategy.wanted)
    assert len(made) == strategy.most_runs
    assert [p for p, _ in made] == sorted([p for p, _ in made], key=PERCENTS.index)
    progress = strategy.progress(finished)
    assert progress.open_percent is None
    assert [summary.accepted for summary in progress.summaries] == [None] * len(PERCENTS)


@given(RULES)
def test_the_database_gives_back_what_was_wanted(strategy: SweepStrategy) -> None:
    assert stored_strategy(info_of(strategy)) == strategy
    # Which runs are missing changes as they are made; the study stays the same.
    nothing, others = (
        SweepStrategy(3, 3, 0.01, percents=percents) for percents in (PERCENTS, PERCENTS[:2])
    )
    name, same, other = (
        study_name(identity(), SearchPlan(one)) for one in (strategy, nothing, others)
    )
    assert name == same != other


def test_a_baseline_that_diverges_ends_it() -> None:
    strategy = SweepStrategy(2, 2, percents=(100.0, 50.0), wanted=((100.0, 0), (50.0, 0)))
    with fails("baseline-diverged"):
        strategy.decide([Observation(100.0, 0.1, diverged=True, replicate=n) for n in range(2)])
    assert strategy.decide([Observation(100.0, 0.9)]) == NextTrial(50.0, 1)
