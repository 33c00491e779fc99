"""Draws from a recording, and reading one from a database."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import UserError
from syncswitch.storage.importing import ImportedRun, import_runs
from syncswitch.storage.records.guard import Band
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import Evaluation, PhaseRecord, TrialRecord, TrialSpec
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Fork, Owner
from syncswitch.trainers.job.fingerprint import workload_identity
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.replay import RecordedRun, Recording, ReplayTrainer, read_recording
from syncswitch.trainers.trainer import Verdict
from tests.failing import fails
from tests.identities import GENERATED, UNRECORDED
from tests.records import changed
from tests.storage.conftest import IDENTITY as DIGITS
from tests.storage.conftest import RECORD, SEARCH, STARTED_AT
from tests.trainers.generated_recording import recording_of, run_of
from tests.trainers.jobs import RecordingObserver
from tests.trainers.trainer_contract import ForkContract

PAIR = ("bsp", "asp")
IDENTITY = changed(DIGITS, name="job", evaluation_interval_worker_steps=100)


def recording(runs: int, settings: Sequence[float] = (100.0, 50.0)) -> Recording:
    return Recording(
        IDENTITY,
        tuple(
            RecordedRun(switch_point, 0.9, 100.0, name=f"{switch_point:g} run {number}")
            for switch_point in settings
            for number in range(runs)
        ),
    )


def drawn(source: Recording, replicates: Sequence[int], deck_seed: int = 0) -> list[str]:
    found = [source.draw(50.0, replicate, deck_seed) for replicate in replicates]
    return [run.name for run in found if run is not None]


class TestDraw:
    @given(st.integers(1, 8), st.integers(0, 2**31), st.integers(0, 5))
    def test_every_deal_has_each_run_once(self, runs: int, deck_seed: int, deal: int) -> None:
        replicates = range(deal * runs, (deal + 1) * runs)
        found = drawn(recording(runs), replicates, deck_seed)
        assert sorted(found) == sorted(f"50 run {number}" for number in range(runs))

    def test_is_the_same_for_ever(self) -> None:
        """A search that goes on after an upgrade must not draw a run twice."""
        numbers = [name[-1] for name in drawn(recording(5), range(10), 7)]
        assert "".join(numbers) == "1034240123"

    def test_seeds_deals_and_switch_points_shuffle_on_their_own(self) -> None:
        source = recording(5)
        decks = {tuple(drawn(source, range(5), seed)) for seed in range(40)}
        deals = {tuple(drawn(source, range(5 * d, 5 * d + 5))) for d in range(40)}
        assert min(len(decks), len(deals)) > 20
        assert len({first for first, *_ in decks}) == 5
        pairs = [(source.draw(100.0, 0, seed), source.draw(50.0, 0, seed)) for seed in range(40)]
        assert len({(a.name[-1], b.name[-1]) for a, b in pairs if a and b}) > 10
        assert source.draw(25.0, 0) is None
        assert source.switch_points == (50.0, 100.0)
        assert (len(source.at(50.0)), source.at(25.0)) == (5, ())

    def test_a_replicate_has_the_same_seed_at_every_switch_point(self) -> None:
        runs = [
            RecordedRun(switch_point, 0.9, 100.0, seed=seed)
            for switch_point, seeds in ((100.0, (11, 5, 17, 3)), (50.0, (3, 17, 5, 11)))
            for seed in seeds
        ]
        source, orders = Recording(IDENTITY, tuple(runs)), set()
        for deck_seed in range(20):
            one, other = (
                [run.seed for n in range(8) if (run := source.draw(switch_point, n, deck_seed))]
                for switch_point in (100.0, 50.0)
            )
            assert one == other
            assert {*one[:4]} == {11, 17, 3, 5}
            orders.add(tuple(one[:4]))
        assert len(orders) > 8


def phases(first: int, end: int, start: int = 0) -> tuple[PhaseRecord, ...]:
    """BSP up to `first` at 0.1 s a worker-step, then ASP at 0.05 s."""
    found = [
        PhaseRecord("bsp", start, first, 0.1 * (first - start), 0.0, 0),
        PhaseRecord("asp", max(first, start), end, 0.05 * (end - max(first, start)), 2.0, 5),
    ]
    return tuple(one for one in found if one.end_worker_step > one.start_worker_step)


def seconds(worker_step: int, first: int) -> float:
    return 0.1 * min(worker_step, first) + 0.05 * max(0, worker_step - first)


def record_of(percent: float, start: int = 0, **changes: object) -> TrialRecord:
    """A run at a switch point, from a fork's worker-step on."""
    first = round(10 * percent)
    curve = tuple(
        Evaluation(step, seconds(step, first), 0.5 + step / 2500 + percent / 1e5, 0.5)
        for step in range(100, 1001, 100)
        if step > start
    )
    record = replace(
        RECORD,
        spec=TrialSpec(IDENTITY, percent, 11),
        evaluations=curve,
        phases=phases(first, 1000, start),
        stopped_early=False,
        training_seconds=seconds(1000, first),
        inherited_seconds=seconds(start, first),
        switch_overhead_seconds=0.0 if percent in (0.0, 100.0) else 0.25,
    )
    return replace(record, **changes)  # type: ignore[arg-type]


class Searched:
    """A search that makes the runs it is told to."""

    def __init__(self, database: Database, study: str = "job-1", **changes: object) -> None:
        trainer = changes.pop("trainer", "local/in-process")
        self._identity = changed(IDENTITY, **changes)
        self._study = study
        self._store = TrialStore(database)
        self._number = 0
        job = {"study": study, "fingerprint": self._identity.fingerprint, "trainer": str(trainer)}
        self._store.register(
            self._identity, "job.py:it", changed(SEARCH, **job, **asdict(self._identity.protocols))
        )

    def make(self, record: TrialRecord, fork: Fork | None = None, state: str = "complete") -> int:
        number, self._number = self._number, self._number + 1
        record = replace(record, spec=replace(record.spec, identity=self._identity))
        self._store.begin(self._study, number, record.spec, Owner.current(), fork=fork)
        if state == "complete":
            self._store.complete(self._study, number, record)
        elif state == "failed":
            self._store.fail(self._study, number, "lost")
        return number


@pytest.fixture
def database(sqlite_url: str) -> Iterator[Database]:
    with open_database(sqlite_url, create=True) as opened:
        yield opened


def read(database: Database, workload: str = "job", workers: int | None = None) -> Recording:
    return read_recording(database, workload, workers=workers, protocols=PAIR)


class TestRead:
    def test_a_searched_run_is_there_with_all_that_was_measured(self, database: Database) -> None:
        whole = record_of(50.0, converged_accuracy=0.85, stopped_early=True)
        Searched(database).make(whole)
        found = read(database)
        assert (found.identity, found.reference) == (IDENTITY, "job.py:it")
        (run,) = found.runs
        assert run == RecordedRun(
            candidate_percent=50.0,
            accuracy=0.85,
            training_seconds=75.0,
            first_seconds=50.0,
            worker_steps=1000,
            evaluations=whole.evaluations,
            phases=whole.phases,
            switch_overhead_seconds=0.25,
            seed=11,
            stopped_early=True,
            name="job-1 trial 0",
        )
        assert run.switch_worker_step == 500

    @pytest.mark.parametrize(
        "conditions",
        [
            RunConditions("greedy"),
            RunConditions("none", "restart"),
            RunConditions("none", "hot", ("a",)),
        ],
    )
    def test_what_is_not_complete_disturbed_or_a_replay_is_left_out(
        self, database: Database, conditions: RunConditions
    ) -> None:
        whole = record_of(100.0)
        disturbed = replace(whole, spec=replace(whole.spec, conditions=conditions))
        searched, replays = Searched(database), Searched(database, "job-2", trainer="replay")
        searched.make(whole, state="failed")
        searched.make(whole, state="running")
        parent = searched.make(disturbed)
        searched.make(record_of(50.0, start=500), Fork(parent, 50.0))
        replays.make(whole)
        said = (
            r"^no complete runs of 'job' with bsp,asp in .*, those with treated[^\n]* import_runs"
        )
        with fails("nothing-recorded", said):
            read(database)
        searched.make(whole)
        assert [run.name for run in read(database).runs] == ["job-1 trial 4"]

    def test_a_fork_without_its_start_is_left_out(self, database: Database) -> None:
        search = Searched(database)
        search.make(record_of(100.0), state="failed")
        search.make(record_of(50.0, start=250), Fork(0, 25.0))
        search.make(record_of(50.0, start=300), Fork(1, 30.0))
        # Its parent ended before.
        search.make(record_of(100.0, worker_steps=200, phases=phases(200, 200)))
        search.make(record_of(50.0, start=250), Fork(3, 25.0))
        assert [run.name for run in read(database).runs] == ["job-1 trial 3"]

    def test_the_start_of_a_fork_took_what_was_measured_there(self, database: Database) -> None:
        """The parent may have been faster before its checkpoint than after it."""
        search = Searched(database)
        search.make(record_of(100.0))
        slower = record_of(50.0, start=250, inherited_seconds=20.0, training_seconds=70.0)
        search.make(slower, Fork(0, 25.0))
        diverged = {"diverged": True, "evaluations": (), "phases": (), "worker_steps": 250}
        search.make(record_of(50.0, start=250, training_seconds=25.0, **diverged), Fork(0, 25.0))
        _, run, start_alone = read(database).runs
        assert run.training_seconds == pytest.approx(70.0)
        assert [p.seconds for p in run.phases] == pytest.approx([45.0, 25.0])
        assert (start_alone.diverged, start_alone.training_seconds) == (True, 25.0)
        assert start_alone.worker_steps == 250
        assert [(p.protocol, p.end_worker_step) for p in start_alone.phases] == [("bsp", 250)]
        assert len(start_alone.evaluations) == 2

    def test_an_imported_run_has_what_somebody_recorded(self, database: Database) -> None:
        job = changed(IDENTITY, name="imported", **dict.fromkeys(UNRECORDED))
        measured: dict[str, Any] = {
            "worker_steps": 1003,
            "evaluations": (Evaluation(1003, 59.0, 0.9, 0.1),),
            "phases": (
                PhaseRecord("bsp", 0, 200, 20.0, None, None),
                PhaseRecord("asp", 200, 1003, 40.0, None, None),
            ),
            "training_seconds": 60.0,
            "switch_overhead_seconds": 100.0,
        }
        known = {"final_accuracy": 0.9, "converged": True, "stopped_early": False}
        log = ImportedRun(
            "a log",
            job,
            25.0,
            20.0,
            1,
            False,
            **measured,
            **known,
            started_at=STARTED_AT,
            ended_at=STARTED_AT,
        )
        hearsay = ImportedRun("by hearsay", job, 12.5, 12.5, 1, True)
        for_none = replace(log, source="for none", candidate_percent=None, switch_percent=37.0)
        import_runs(database, [log, hearsay, for_none])
        found = read(database, "imported")
        assert (found.identity, found.reference) == (job, "imported")
        assert found.runs == (
            RecordedRun(
                25.0,
                accuracy=0.9,
                first_seconds=20.0,
                converged_evaluations=1,
                name="a log",
                **measured,
            ),
            RecordedRun(12.5, 0.0, 0.0, diverged=True, name="by hearsay"),
        )

    def test_a_fork_has_the_start_of_its_parent(self, database: Database) -> None:
        search = Searched(database)
        base = record_of(100.0)
        search.make(base)
        fork = record_of(50.0, start=250)
        search.make(fork, Fork(0, 25.0))
        again = record_of(50.0, start=700, switch_overhead_seconds=0.0)
        search.make(again, Fork(1, 70.0))
        whole = record_of(50.0)
        _, one, two = read(database).runs
        inherited = base.evaluations[:2]
        assert one.evaluations == (*inherited, *fork.evaluations)
        assert two.evaluations == (*inherited, *fork.evaluations[:5], *again.evaluations)
        for run in (one, two):
            assert run.training_seconds == pytest.approx(75.0)
            assert run.first_seconds == pytest.approx(50.0)
            assert [p.seconds for p in run.phases] == pytest.approx([50.0, 25.0])
            assert [replace(p, seconds=0.0) for p in run.phases] == [
                replace(p, seconds=0.0) for p in whole.phases
            ]
            assert run.switch_overhead_seconds == 0.25  # of the second one's parent


class TestWhichWorkload:
    def test_one_of_several_has_to_be_chosen(self, database: Database) -> None:
        Searched(database).make(record_of(100.0))
        Searched(database, "job-2", workers=8).make(record_of(50.0))
        Searched(database, "job-3", first_protocol="asp", second_protocol="bsp").make(
            record_of(25.0)
        )
        with pytest.raises(UserError) as caught:
            read(database)
        assert "'job' names 2 workloads: " in str(caught.value)
        assert "(4 workers)" in str(caught.value)
        assert "(8 workers)" in str(caught.value)
        assert read(database, workers=8).switch_points == (50.0,)
        assert read(database, IDENTITY.fingerprint[:12]).switch_points == (100.0,)
        assert read(database, "somewhere/job.py:it", workers=4).identity == IDENTITY
        swapped = read_recording(database, "job", workers=None, protocols=("asp", "bsp"))
        assert swapped.switch_points == (25.0,)
        with fails("nothing-recorded"):
            read(database, workers=16)

    def test_real_runs_come_before_those_of_a_simulated_cluster(self, database: Database) -> None:
        simulated = {"simulated_cluster": "5" * 64, "study": "job-2"}
        Searched(database, **simulated).make(record_of(50.0))
        assert read(database).switch_points == (50.0,)
        Searched(database).make(record_of(100.0))
        assert read(database).switch_points == (100.0,)
        chosen = read_recording(database, "job", workers=None, protocols=PAIR, cluster="simulated")
        assert chosen.switch_points == (50.0,)


SETTINGS = (0.0, 2.0, 25.0, 37.5, 40.0, 50.0, 60.0, 99.0, 100.0)

SHORT = changed(
    GENERATED,
    total_worker_steps=400,
    learning_rate_boundaries=((200, 0.1),),
    evaluation_interval_worker_steps=20,
)
RECORDING = recording_of(SHORT, (100.0, 50.0, 25.0), seeds=(1, 2, 3))


@pytest.fixture(scope="module")
def make_trainer() -> Callable[[Workload, int], ReplayTrainer]:
    """The trainer of generated recordings, of both orders of the protocols."""

    @cache
    def make(workload: Workload, workers: int) -> ReplayTrainer:
        pairs = (PAIR, PAIR[::-1])
        identities = [workload_identity(workload, workers, *pair) for pair in pairs]
        return ReplayTrainer(*(recording_of(one, SETTINGS, seeds=(1, 2)) for one in identities))

    return make


class TestReplayTrainer(ForkContract):
    virtual_time: ClassVar[bool] = True


def spec(switch_percent: float, seed: int = 1, **fields: Any) -> TrialSpec:
    identity = fields.pop("identity", SHORT)
    return TrialSpec(identity, switch_percent, seed, **fields)


def stopping_at(number: int) -> RecordingObserver:
    """Stops a run at its `number`-th evaluation, from 1."""
    observer = RecordingObserver(
        lambda _: Verdict.STOP if len(observer.evaluations) == number else Verdict.CONTINUE
    )
    return observer


def refusal(trainer: ReplayTrainer, trial: TrialSpec) -> str:
    with pytest.raises(UserError) as caught:
        trainer.train(trial)
    message = str(caught.value)
    assert "\n" not in message
    return message


class TestWhichRun:
    def test_the_seed_decides_where_it_was_recorded(self) -> None:
        for seed in (1, 2, 3):
            record = ReplayTrainer(RECORDING).train(spec(50.0, seed, replicate=7))
            assert record.evaluations == run_of(SHORT, 50.0, seed).evaluations

    def test_a_recorded_run_cannot_go_back_so_no_guard_watches_it(self) -> None:
        guarded = spec(50.0, band=Band(2.0, 0.01))
        record = ReplayTrainer(RECORDING).train(guarded)
        assert (record.spec, record.guard) == (guarded, None)
        assert record.evaluations == run_of(SHORT, 50.0, 1).evaluations

    def test_what_nobody_recorded_is_refused(self) -> None:
        message = refusal(ReplayTrainer(RECORDING), spec(12.5))
        assert "at 12.5 % is recorded (recorded: 100, 50, 25)" in message
        assert "(recorded: none)" in refusal(ReplayTrainer(Recording(SHORT, ())), spec(50.0))
        for conditions in (RunConditions("greedy"), RunConditions(injections=("kill:ps,at=60%",))):
            message = refusal(ReplayTrainer(RECORDING), spec(50.0, conditions=conditions))
            assert "leave these out, or choose another trainer" in message


class TestStops:
    @pytest.mark.parametrize("number", [1, 5, 12])
    def test_a_run_costs_what_it_took_up_to_there(self, number: int) -> None:
        whole = run_of(SHORT, 50.0, 1)
        record = ReplayTrainer(RECORDING).train(spec(50.0), stopping_at(number))
        last = whole.evaluations[number - 1]
        assert record.evaluations == whole.evaluations[:number]
        assert record.training_seconds == record.paid_seconds == last.elapsed_seconds
        assert record.worker_steps == record.phases[-1].end_worker_step == last.worker_step
        assert sum(p.seconds for p in record.phases) == pytest.approx(last.elapsed_seconds)
        accuracies = [one.accuracy for one in record.evaluations[-5:]]
        assert record.converged_accuracy == pytest.approx(sum(accuracies) / len(accuracies))
        assert record.stopped_early

    def test_the_accuracy_of_a_whole_run_is_its_recordings(self) -> None:
        runs = tuple(replace(run, converged_evaluations=1) for run in RECORDING.runs)
        trainer = ReplayTrainer(replace(RECORDING, runs=runs))
        assert trainer.train(spec(50.0)).converged_evaluations == 1
        assert trainer.train(spec(50.0), stopping_at(12)).converged_evaluations == 5

    def test_a_run_that_diverged_leaves_what_came_before(self, tmp_path: Path) -> None:
        flat = tuple(Evaluation(step, step / 100, 0.1, math.nan) for step in range(0, 301, 20))
        ill = RecordedRun(
            100.0, 0.1, 3.0, diverged=True, worker_steps=300, evaluations=flat, seed=1
        )
        trainer = ReplayTrainer(Recording(SHORT, (ill,)))
        trial = spec(100.0, checkpoint_percents=(50.0, 75.0, 90.0), checkpoint_directory=tmp_path)
        record = trainer.train(trial)
        assert (record.diverged, record.converged, record.stopped_early) == (True, False, False)
        assert set(record.checkpoints) == {50.0}
        # Tested before its training, and with a loss that nobody logged.
        assert repr(record.evaluations) == repr(flat)
        early = trainer.train(trial, stopping_at(1))
        assert (early.worker_steps, early.training_seconds, early.phases) == (0, 0.0, ())
        assert not early.diverged

    def test_checkpoints_lie_where_the_run_got_to(self, tmp_path: Path) -> None:
        percents = (5.0, 10.0, 15.0, 90.0)
        trial = spec(50.0, checkpoint_percents=percents, checkpoint_directory=tmp_path)
        record = ReplayTrainer(RECORDING).train(trial, stopping_at(2))
        assert record.worker_steps == 40
        assert set(record.checkpoints) == {5.0}
        assert sorted(tmp_path.iterdir()) == sorted(record.checkpoints.values())


class TestForks:
    @pytest.fixture
    def prefix(self, tmp_path: Path) -> TrialRecord:
        trial = spec(100.0, 1, checkpoint_percents=(25.0, 75.0), checkpoint_directory=tmp_path)
        return ReplayTrainer(RECORDING).train(trial)

    def test_one_of_the_same_switch_point_goes_on_with_the_same_run(
        self, prefix: TrialRecord
    ) -> None:
        for seed in (1, 2):
            trial = spec(100.0, seed, replicate=5, fork_from=prefix.checkpoints[25.0])
            fork = ReplayTrainer(RECORDING).train(trial)
            after = tuple(one for one in prefix.evaluations if one.worker_step > 100)
            assert [(one.worker_step, one.accuracy) for one in fork.evaluations] == [
                (one.worker_step, one.accuracy) for one in after
            ]
            assert fork.training_seconds == pytest.approx(prefix.training_seconds)
            assert fork.converged_accuracy == prefix.converged_accuracy

    def test_the_clock_goes_on_from_what_was_inherited(self, prefix: TrialRecord) -> None:
        """The checkpoint says how long it took up to there, not the run that is played."""
        path = altered(prefix, "elapsed_seconds", 7.0)
        wanted = {"checkpoint_percents": (50.0, 75.0), "checkpoint_directory": path.parent / "new"}
        first = ReplayTrainer(RECORDING).train(spec(50.0, fork_from=path, **wanted))
        assert first.inherited_seconds == 7.0
        assert [p.seconds for p in first.phases] == pytest.approx([100 * 0.01, 200 * 0.004])
        assert first.paid_seconds == pytest.approx(100 * 0.01 + 200 * 0.004)
        assert first.evaluations[0].elapsed_seconds == pytest.approx(7.0 + 20 * 0.01)
        assert first.evaluations[-1].elapsed_seconds == pytest.approx(first.training_seconds)
        assert first.switch_overhead_seconds > 0
        second = ReplayTrainer(RECORDING).train(spec(50.0, 2, fork_from=first.checkpoints[75.0]))
        assert second.inherited_seconds == pytest.approx(7.0 + 100 * 0.01 + 100 * 0.004)
        assert second.training_seconds == pytest.approx(first.training_seconds)
        assert second.converged_accuracy == first.converged_accuracy
        assert second.switch_overhead_seconds == 0.0

    def test_one_that_diverged_before_its_checkpoint_pays_nothing(
        self, prefix: TrialRecord
    ) -> None:
        unknown = RecordedRun(50.0, 0.0, 0.0, diverged=True)
        fork = ReplayTrainer(Recording(SHORT, (unknown,))).train(
            spec(50.0, fork_from=prefix.checkpoints[25.0])
        )
        assert fork.diverged
        assert fork.paid_seconds == 0.0
        assert (fork.worker_steps, fork.phases, fork.evaluations) == (100, (), ())

    def test_one_that_is_stopped_pays_from_its_checkpoint_on(self, prefix: TrialRecord) -> None:
        path = prefix.checkpoints[25.0]
        fork = ReplayTrainer(RECORDING).train(spec(50.0, fork_from=path), stopping_at(2))
        assert fork.worker_steps == 140
        assert fork.paid_seconds == pytest.approx(40 * 0.01)
        assert fork.training_seconds == fork.evaluations[-1].elapsed_seconds
        assert [(p.protocol, p.start_worker_step) for p in fork.phases] == [("bsp", 100)]

    @pytest.mark.parametrize(
        ("other", "percent", "switch_percent", "message"),
        [
            ({}, 75.0, 50.0, "this trial switches at 200"),
            ({"total_worker_steps": 80}, 25.0, 100.0, "at worker-step 100, beyond the 80"),
            ({"model": "1" * 64}, 25.0, 100.0, "of another model"),
            ({"model": None, "name": "other"}, 25.0, 100.0, "of another model"),
        ],
    )
    def test_one_that_does_not_fit_is_refused(
        self,
        prefix: TrialRecord,
        other: dict[str, Any],
        percent: float,
        switch_percent: float,
        message: str,
    ) -> None:
        identity = changed(SHORT, **other)
        trainer = ReplayTrainer(recording_of(identity, (switch_percent,), (1,)))
        trial = spec(switch_percent, identity=identity, fork_from=prefix.checkpoints[percent])
        assert message in refusal(trainer, trial)

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("worker_step", -1),
            ("worker_step", 1.5),
            ("elapsed_seconds", "soon"),
            ("elapsed_seconds", -0.5),
            ("surplus", 1),
            ("run", None),
        ],
    )
    def test_an_altered_checkpoint_is_refused(
        self, prefix: TrialRecord, name: str, value: object
    ) -> None:
        path = altered(prefix, name, value)
        trial = spec(100.0, fork_from=path)
        assert "cannot be read" in refusal(ReplayTrainer(RECORDING), trial)
        path.write_bytes(b'{"model": "\xff"}')
        assert "cannot be read" in refusal(ReplayTrainer(RECORDING), trial)

    def test_a_folder_that_cannot_be_made_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        folder = tmp_path / "file" / "folder"
        trial = spec(100.0, checkpoint_percents=(25.0,), checkpoint_directory=folder)
        assert f"cannot make the folder {folder}" in refusal(ReplayTrainer(RECORDING), trial)


def altered(prefix: TrialRecord, name: str, value: object) -> Path:
    """The checkpoint at 25 % with another value."""
    path = prefix.checkpoints[25.0]
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    return path


def test_five_draws_have_the_published_means(authors: dict[int, Recording]) -> None:
    """5 runs of a switch point are recorded, and each of them is drawn once."""
    recording = authors[8]
    trainer = ReplayTrainer(recording, deck_seed=1)
    for percent, accuracy, seconds in (
        (100.0, 0.9188, 10604),
        (50.0, 0.9202, 5994),
        (25.0, 0.9178, 3883),
        (12.5, 0.9142, 2543),
        (6.25, 0.9182, 2084),
    ):
        records = [
            trainer.train(TrialSpec(recording.identity, percent, 1, replicate=replicate))
            for replicate in range(5)
        ]
        assert len({record.training_seconds for record in records}) == 5
        mean = sum(record.converged_accuracy for record in records) / 5
        assert mean == pytest.approx(accuracy, abs=6e-5)
        mean_seconds = sum(record.training_seconds for record in records) / 5
        assert mean_seconds == pytest.approx(seconds, rel=0.003)


def test_a_diverged_run_without_a_log_is_a_result(authors: dict[int, Recording]) -> None:
    record = ReplayTrainer(authors[16]).train(TrialSpec(authors[16].identity, 25.0, 1))
    assert record.diverged
    assert (record.converged_accuracy, record.training_seconds) == (0.0, 0.0)
    assert record.evaluations == ()
