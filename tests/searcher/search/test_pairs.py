"""Several pairs of protocols: which one wins, and what is trained only once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import pytest
from generated_trainer import GeneratedTrainer, identity
from searches import QUICK, policies_of

from syncswitch.cli.search.launch.making import ProgressReporter
from syncswitch.searcher.report.data import load_report
from syncswitch.searcher.search.pairs import (
    Dropped,
    PairsResult,
    _dropped_after,
    _expected_seconds,
    search_pairs,
)
from syncswitch.searcher.search.plan import SearchPlan
from syncswitch.searcher.search.reporter import Reporter
from syncswitch.searcher.status import StatusReader
from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.strategies.base import Decided
from syncswitch.searcher.strategies.observation import Observation, TrialCost
from syncswitch.searcher.strategies.paper import PaperStrategy
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import OptionHint, UnsuitableProtocolError
from syncswitch.storage.records.policy import Promise
from syncswitch.storage.records.trial import TrialRecord, TrialSpec
from syncswitch.storage.trials.store import TrialStore
from syncswitch.trainers.trainer import Observer
from tests.failing import fails
from tests.wording import Said

pytestmark = pytest.mark.usefixtures("our_tables")

Run = tuple[str, float, int]
SECONDS = {"asp": 40.0, "ssp:3": 50.0, "dssp:3-15": 45.0, "gba:3": 20.0}
KNEES = {"asp": 25.0, "ssp:3": 3.0, "dssp:3-15": 12.5, "gba:3": 100.0}


@dataclass
class PairTrainer(GeneratedTrainer):
    """Second protocols differ in pace and knee, and runs leave checkpoints.

    Ctrl-C comes after so many runs. `made` are those that began afresh.
    """

    seconds: Mapping[str, float] = field(default_factory=lambda: SECONDS)
    unsuitable: str | None = None
    dies_after: int = 1_000

    def __post_init__(self) -> None:
        super().__post_init__()
        self.made: list[Run] = []
        self.forked: list[tuple[Run, str]] = []

    def train(self, spec: TrialSpec, observer: Observer | None = None) -> TrialRecord:
        if len(self.made) + len(self.forked) == self.dies_after:
            raise KeyboardInterrupt
        if spec.identity.second_protocol == self.unsuitable:
            raise UnsuitableProtocolError(
                "not with such layers", remedy=OptionHint("parameter_servers", 1)
            )
        run = (spec.identity.second_protocol, spec.switch_percent, spec.replicate)
        if spec.fork_from is None:
            self.made.append(run)
        else:
            self.forked.append((run, spec.fork_from.read_text()))
        self.knee_percent = KNEES[spec.identity.second_protocol]
        self.second_seconds = self.seconds[spec.identity.second_protocol]
        return super().train(spec, observer)

    def _record(self, spec: TrialSpec, observer: Observer, started_at: datetime) -> TrialRecord:
        whole = super()._record(spec, observer, started_at)
        files: dict[float, Path] = {}
        if spec.checkpoint_directory is not None:
            for percent in spec.checkpoint_percents:
                files[percent] = spec.checkpoint_directory / f"{percent:g}"
                files[percent].parent.mkdir(parents=True, exist_ok=True)
                files[percent].write_text(
                    f"{spec.identity.second_protocol} {spec.replicate} {percent:g}"
                )
        begun = 0 if spec.fork_from is None else round(30 * float(spec.fork_from.name))
        phases = []
        for phase in whole.phases:
            start, end = max(phase.start_worker_step, begun), phase.end_worker_step
            if start < end:
                share = (end - start) / (end - phase.start_worker_step)
                phases.append(
                    replace(phase, start_worker_step=start, seconds=share * phase.seconds)
                )
        return replace(
            whole,
            phases=tuple(phases),
            evaluations=tuple(e for e in whole.evaluations if e.worker_step > begun),
            inherited_seconds=begun / 30,
            checkpoints=files,
        )


def search(
    url: str,
    trainer: PairTrainer,
    seconds: Sequence[str] = tuple(SECONDS),
    folder: Path | None = None,
    reporter: Reporter | None = None,
) -> PairsResult:
    strategy = PaperStrategy(3, 2, share_prefix=folder is not None)
    plan = SearchPlan(strategy, pairs=tuple(f"bsp,{second}" for second in seconds))
    pairs = [(identity(second_protocol=second), plan, lambda: trainer) for second in seconds]
    with open_database(url, create=True) as database:
        checkpoints = folder or Path("unused")
        options = {"patience": QUICK, "checkpoints": checkpoints, "reporter": reporter}
        return search_pairs(database, pairs, **options)


def test_the_fastest_pair_that_keeps_the_accuracy_has_the_only_policy(url: str, said: Said) -> None:
    trainer = PairTrainer()
    found = search(url, trainer)
    # BSP alone is trained once for all, and no pair beyond what it may still win.
    assert trainer.made == [
        *[("asp", percent, n) for percent in (100.0, 50.0, 25.0, 12.5) for n in range(2)],
        ("ssp:3", 50.0, 0),
        *[("dssp:3-15", percent, n) for percent in (50.0, 25.0, 12.5) for n in range(2)],
        *[("gba:3", 50.0, n) for n in range(2)],
    ]
    assert [pair.name for pair in found.pairs] == [f"bsp,{second}" for second in SECONDS]
    assert [pair.seconds for pair in found.pairs] == pytest.approx([55.0, 56.25, 51.875, 70.0])
    asp, ssp, dssp, gba = (pair.found for pair in found.pairs)
    assert isinstance(asp, Decided)
    assert isinstance(dssp, Decided)
    assert (asp.switch_percent, dssp.switch_percent) == (25.0, 12.5)
    assert (ssp, gba) == (Dropped(3, 12.5, 56.25), Dropped(4, 62.5, 70.0))
    assert [pair.runs for pair in found.pairs] == [8, 3, 8, 4]
    assert found.pairs[3].paid_seconds == pytest.approx(2 * 60)

    policy = found.best.policy
    assert (policy.protocols.second_protocol, policy.switch_percent) == ("dssp:3-15", 12.5)
    assert policy.measured.baseline_seconds == pytest.approx(100)
    assert policies_of(url) == [policy]
    with open_database(url, create=False) as database:
        searches = TrialStore(database).searches()
    assert [one.pairs for one in searches] == [[pair.name for pair in found.pairs]]
    (status,) = StatusReader(url).read()
    assert (status.info.study, status.state, status.policy) == (policy.study, "done", policy)
    assert status.job.second_protocol == "dssp:3-15"
    said(*(f"{pair}: {why}" for pair, why in sorted(status.info.dropped.items())))

    cost = load_report(url, "generated").cost
    assert cost is not None
    assert cost.paid_seconds == pytest.approx(sum(pair.paid_seconds for pair in found.pairs))

    again = PairTrainer()
    assert search(url, again) == found
    assert again.made == []


def test_a_pair_that_is_hardly_faster_is_not_preferred(url: str) -> None:
    # With a switch at 12.5 % 51.9 s, and 51.0 s at best.
    trainer = PairTrainer(seconds={"dssp:3-15": 45.0, "ssp:3": 44.0})
    found = search(url, trainer, ("dssp:3-15", "ssp:3"))
    assert found.best.policy.protocols.second_protocol == "dssp:3-15"
    assert trainer.made[8:] == [("ssp:3", 50.0, 0)]


def test_a_pair_that_cannot_train_the_job_is_left_out(url: str) -> None:
    trainer = PairTrainer(unsuitable="ssp:3")
    reporter = ProgressReporter(lambda _: None)  # the command line's
    found = search(url, trainer, ("asp", "ssp:3", "dssp:3-15"), reporter=reporter)
    assert found.best.policy.protocols.second_protocol == "dssp:3-15"
    refusal = "not with such layers; give --parameter-servers 1"
    assert found.pairs[1].found == Dropped(0, 100.0, math.inf, refusal=refusal)
    (status,) = StatusReader(url).read()
    assert status.info.dropped["bsp,ssp:3"] == f"not possible: {refusal}"
    with fails("protocol-unsuitable"):
        search(url, PairTrainer(unsuitable="gba:3"), ("gba:3", "asp"))


RUNS = tuple(
    Observation(percent, accuracy, False, number, cost=TrialCost(60.0, 100.0, 20.0))
    for number in range(3)
    for percent, accuracy in ((100.0, 0.9), (12.5, 0.9 + 0.001 * number))
)


@pytest.mark.parametrize(("expected_time", "seconds"), [(0.35, 35.0), (None, 12.5 + 0.875 * 20.0)])
def test_a_pair_takes_what_its_answer_expects_with_failed_switches(
    expected_time: float | None, seconds: float
) -> None:
    answer = Decided(12.5, 0.9, Promise(expected_time=expected_time))
    assert _expected_seconds(answer, RUNS) == pytest.approx(seconds)


def test_a_pair_is_given_up_that_saves_less_than_another_run_costs() -> None:
    fastest = 12.5
    takes = fastest + (1 - fastest / 100) * 20.0

    def dropped_after(expected_runs: int) -> Dropped | None:
        strategy = AdaptiveStrategy(halvings=3, threshold=0.01, expected_runs=expected_runs)
        assert min(strategy.grid()) == fastest
        return _dropped_after(strategy, RUNS[:2], 1.05 * takes)

    assert dropped_after(100) is None
    found = dropped_after(1)
    assert found is not None
    assert (found.runs, found.percent, found.seconds) == (2, fastest, pytest.approx(takes))
    assert found.chance is not None
    # At most 5 % of one training.
    assert found.saving_seconds == pytest.approx(found.chance * 0.05 * takes, rel=1e-6)


def test_what_the_first_protocol_did_is_shared_by_all_pairs(url: str, tmp_path: Path) -> None:
    trainer = PairTrainer()
    found = search(url, trainer, ("asp", "dssp:3-15"), tmp_path)
    assert trainer.made == [("asp", 100.0, 0), ("asp", 100.0, 1)]
    runs = list(itertools.product(("asp", "dssp:3-15"), (50, 25, 12.5), range(2)))
    assert trainer.forked == [((one, p, n), f"asp {n} {p:g}") for one, p, n in runs]
    # Runs of all pairs are one search's, and those of the second one fork from those of the first.
    with open_database(url, create=False) as database:
        rows = TrialStore(database).numbered(found.best.policy.study)
    assert [row.job.second_protocol for row in rows.values()] == ["asp"] * 8 + ["dssp:3-15"] * 6
    assert [row.parent_trial_number for row in rows.values()] == [None, None, *[0, 1] * 6]
    half = rows[8]
    assert [(p.protocol, p.start_worker_step, p.end_worker_step) for p in half.phases] == [
        ("dssp:3-15", 1500, 3000)
    ]
    assert (half.times.training_seconds, half.times.paid_seconds) == pytest.approx((72.5, 22.5))
    assert not list(tmp_path.rglob("*")), "the checkpoints go with the last pair"


@pytest.mark.parametrize("dies_after", [1, 8, 12])
def test_goes_on_wherever_it_was_interrupted(url: str, tmp_path: Path, dies_after: int) -> None:
    first = PairTrainer(dies_after=dies_after)
    with pytest.raises(KeyboardInterrupt):
        search(url, first, folder=tmp_path)
    second = PairTrainer()
    found = search(url, second, folder=tmp_path)
    made = [*first.made, *second.made, *(run for run, _ in (*first.forked, *second.forked))]
    assert len(made) == len(set(made)) == 17
    assert [pair.found for pair in found.pairs][1] == Dropped(3, 12.5, 56.25)
    assert found.best.policy.protocols.second_protocol == "dssp:3-15"


def test_two_searchers_share_the_runs_and_agree(url: str) -> None:
    def found(_: int) -> PairsResult:
        return search(url, PairTrainer(delay_seconds=0.02))

    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(found, range(2))
    assert one.best.policy == other.best.policy
    assert one.best.policy.protocols.second_protocol == "dssp:3-15"
    assert [pair.found for pair in one.pairs] == [pair.found for pair in other.pairs]
    assert len(policies_of(url)) == 1
