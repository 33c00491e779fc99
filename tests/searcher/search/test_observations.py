"""A strategy and those who look at its search see the same runs."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from step_recording import step_recording

from syncswitch.searcher.report.data import load_report
from syncswitch.searcher.search.observations import read_observations
from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.search.search import Search
from syncswitch.searcher.search.study import Patience
from syncswitch.searcher.status import StatusReader
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Strategy
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.searcher.strategies.planner import PlannedTrial, course_of
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import RetryableError, UserError
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.storage.trials.values import Owner
from syncswitch.trainers.replay import Recording, ReplayTrainer
from syncswitch.trainers.trainer import Observer

RECORDED = (3.125, 6.25, 12.5, 25.0, 50.0)
RULES: list[Strategy] = [
    AdaptiveStrategy(switch_points=RECORDED),
    PaperStrategy(halvings=3, runs=2, share_prefix=True, early_stop=True),
]
# Whatever the noise, a fixed binary search stays at the switch points that are recorded.
RECORDINGS = [step_recording(3.125), step_recording(3.125, diverges_below_percent=20.0)]
EVENTS = [
    "trained",
    "others first",  # it ends after runs that began later
    "lost",
    "taken for lost",  # and ends all the same
    "pending",  # killed between the two accounts
]


class History(ReplayTrainer):
    """A search to which events happen."""

    def __init__(
        self, database: Database, folder: Path, strategy: Strategy, recording: Recording
    ) -> None:
        super().__init__(recording)
        plan = SearchPlan(strategy)
        self.loop = Search(database, recording.identity, plan, lambda: self, checkpoints=folder)
        self.study = self.loop.study
        self.events: deque[str] = deque()
        self.running: list[int] = []

    def play(self, events: list[str]) -> None:
        self.events.extend(events)
        while self.events and self._make_one():
            pass

    def _make_one(self) -> bool:
        """Returns whether there was a run to make."""
        state = self.study.read()
        if not isinstance(state.plan, PlannedTrial):
            return False
        claim = self.study.claim(state, Owner.current(), 0, self.study.read)
        assert claim is not None
        self.running.append(claim.number)
        try:
            with self._killed_before_it_is_told(self.events[0] == "pending"):
                self.loop.run_trial(claim, self)
        except RetryableError:
            self.study.repaired(Patience())
        return True

    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        event, number = self.events.popleft(), self.running.pop()
        if event == "lost":
            raise RetryableError("the server was lost")
        if event == "others first":
            while self.events and self._make_one() and len(self.events) % 2:
                pass
        record = super().train(spec, observer)
        if event == "taken for lost":
            self.loop.store.fail(self.study.name, number, "its process ended")
            self.study.fail(number)
        return record

    @contextmanager
    def _killed_before_it_is_told(self, is_killed: bool) -> Iterator[None]:
        def killed(*_: object) -> None:
            raise RetryableError("killed")

        if is_killed:
            self.study.note_result = killed  # type: ignore[method-assign]
        try:
            yield
        finally:
            self.study.__dict__.pop("note_result", None)


@pytest.mark.parametrize("strategy", RULES, ids=["adaptive", "paper"])
@settings(max_examples=2)
@example(recording=RECORDINGS[0], events=["others first", *["trained"] * 8])
@example(recording=RECORDINGS[0], events=["trained", "taken for lost", *["trained"] * 4])
@given(
    recording=st.sampled_from(RECORDINGS),
    events=st.lists(st.sampled_from(EVENTS), min_size=1, max_size=9),
)
def test_search_status_and_report_see_the_same(
    search_template: Path,
    tmp_path_factory: pytest.TempPathFactory,
    strategy: Strategy,
    recording: Recording,
    events: list[str],
) -> None:
    folder = tmp_path_factory.mktemp("history")
    url = f"sqlite:///{shutil.copyfile(search_template, folder / 'search.db')}"
    with open_database(url, create=False) as database:
        history = History(database, folder, strategy, recording)
        try:
            history.play(events)
            state = history.study.read()
            course = state.course
        except UserError:  # the baseline diverged
            return
        seen = read_observations(
            database, history.study.name, state.rows, recording.identity.protocols
        )
        assert seen == state.finished
        assert course_of(strategy, seen) == course

        progress = strategy.progress(course.runs)
        (status,) = StatusReader(url).read(with_rest=False)
        for name in ("lower_percent", "upper_percent", "target_accuracy", "open_percent"):
            assert getattr(status.bracket, name) == getattr(progress, name)
        shown = {one.switch_percent: one for one in status.switch_points}
        for summary in progress.summaries:
            for name in ("runs", "mean_accuracy", "accepted"):
                assert getattr(shown[summary.switch_percent], name) == getattr(summary, name)
        report = load_report(database, recording.identity.fingerprint)
        needed = [step.run for step in report.path if step.is_needed]
        for one, run in zip(needed, course.runs, strict=True):
            for name in ("trial_number", "accuracy", "stopped_early"):
                assert getattr(one, name) == getattr(run, name)
        assert len(report.path) == len(seen)
