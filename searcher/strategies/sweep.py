"""Runs that are given, to compare switch points and not to find one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from typing_extensions import override

from syncswitch.searcher.strategies.base import (
    Decision,
    NextTrial,
    Outcomes,
    SearchProgress,
    Strategy,
    Wait,
    summary_of,
)
from syncswitch.searcher.strategies.baseline import check_baseline
from syncswitch.searcher.strategies.observation import Observation


@dataclass(frozen=True, slots=True)
class SweepStrategy(Strategy):
    """Asks for given runs, in the order of their switch points, and never decides anything.

    R is the number of runs of each switch point in the end, including those of other studies.

    Attributes:
        percents: The switch points that are compared, the first protocol alone before the others:
            if that diverges, the rest is not worth its time.
        wanted: Switch point and replicate of each run to make.
        has_baseline: Whether the others are compared with the first protocol alone, which then must
            not diverge.
        guarded: Whether runs are trained as with a guarded policy, so that a run that fails goes
            back to its switch.
    """

    name = "sweep"

    percents: tuple[float, ...] = ()
    wanted: tuple[tuple[float, int], ...] = ()
    has_baseline: bool = True
    guarded: bool = False

    @property
    @override
    def is_guarded(self) -> bool:
        return self.guarded

    @property
    @override
    def seeks_switch(self) -> bool:
        return False

    @override
    def halved_at_most(self, halvings: int) -> SweepStrategy:
        return self

    @property
    @override
    def most_runs(self) -> int:
        return len(self.wanted)

    @property
    @override
    def repeats(self) -> int:
        return self.runs

    @override
    def grid(self) -> tuple[float, ...]:
        return tuple(sorted(self.percents))

    @override
    def replicates(self, percent: float) -> Sequence[int]:
        return [replicate for switch_point, replicate in self.wanted if switch_point == percent]

    @override
    def decide(self, finished: Iterable[Observation]) -> Decision:
        """Returns the next run, or `Wait` once all are made, as there is no answer."""
        finished = list(finished)
        percent = self.progress(finished).open_percent
        if percent is None:
            return Wait(self.highest_percent)
        made = sum(run.switch_percent == percent for run in finished)
        return NextTrial(percent, len(self.replicates(percent)) - made)

    @override
    def outcomes(self, finished: Iterable[Observation], percent: float) -> Outcomes:
        return [(1.0, 0.5)]

    @override
    def progress(self, finished: Iterable[Observation]) -> SearchProgress:
        runs: dict[float, list[Observation]] = {percent: [] for percent in self.percents}
        for run in finished:
            if run.switch_percent in runs:
                runs[run.switch_percent].append(run)
        if self.has_baseline:
            check_baseline(run.diverged for run in runs.get(self.highest_percent, ()))
        unfinished = (p for p in self.percents if len(runs[p]) < len(self.replicates(p)))
        return SearchProgress(
            summaries=tuple(summary_of(percent, runs[percent], None) for percent in self.percents),
            lower_percent=self.lowest_percent,
            upper_percent=self.highest_percent,
            target_accuracy=self.target_accuracy,
            open_percent=next(unfinished, None),
        )
