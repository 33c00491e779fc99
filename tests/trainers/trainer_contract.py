"""What every trainer keeps to, whatever it trains on; the test of each inherits it.

The module of the test defines a fixture `make_trainer(workload, workers)`; it may return the same
trainer again for the same arguments, and the tests then show that one trial leaves nothing behind
for the next.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import Evaluation, TrialRecord, TrialSpec
from syncswitch.trainers.job.workload import Workload
from syncswitch.trainers.trainer import Trainer, Verdict
from tests.trainers.jobs import BRIEF, DENSE, RecordingObserver, idle_model, spec_of

REPLICATE = 3
"""Of the watched runs."""

MakeTrainer = Callable[[Workload, int], Trainer]

# Long enough that nobody mistakes a run that stopped for one that ended.
LONG = replace(DENSE, total_worker_steps=20_000, learning_rate_boundaries=())
EXPLOSIVE = replace(LONG, learning_rate=1e25)
HOPELESS = replace(
    LONG, model=idle_model, learning_rate=1e-30, learning_rate_boundaries=((80, 0.1),)
)
# Its last evaluation is due at the very end.
NOT_YET_HOPELESS = replace(HOPELESS, total_worker_steps=160, learning_rate_boundaries=((160, 0.1),))


class Watched(NamedTuple):
    """A run at which several tests look, what its observer was told, and how long it took."""

    record: TrialRecord
    observer: RecordingObserver
    wall_seconds: float


_watched: dict[tuple[type, float], Watched] = {}
_prefixes: dict[type, TrialRecord] = {}


class TrainerContract:
    """Args of a subclass: `only`, the tests that it takes over, where it is not all of them."""

    workload: ClassVar[Workload] = BRIEF
    workers: ClassVar[int] = 4
    # A trainer whose seconds are not those of the clock on the wall.
    virtual_time: ClassVar[bool] = False

    def __init_subclass__(cls, only: Collection[str] | None = None) -> None:
        tests = {name for name in dir(cls) if name.startswith("test_")}
        if only is not None:
            assert tests >= set(only), f"no tests: {set(only) - tests}"
            for name in tests - set(only):
                setattr(cls, name, None)

    def train(
        self,
        make_trainer: MakeTrainer,
        switch_percent: float,
        observer: RecordingObserver | None = None,
        workload: Workload | None = None,
        **fields: object,
    ) -> TrialRecord:
        workload = workload or self.workload
        spec = self.spec_of(workload, self.workers, switch_percent, **fields)
        return make_trainer(workload, self.workers).train(spec, observer)

    def watched(self, make_trainer: MakeTrainer, switch_percent: float) -> Watched:
        """The first who asks makes it."""
        key = (type(self), switch_percent)
        if key not in _watched:
            trainer, observer = make_trainer(self.workload, self.workers), RecordingObserver()
            spec = self.spec(switch_percent, replicate=REPLICATE)
            before = time.perf_counter()
            record = trainer.train(spec, observer)
            _watched[key] = Watched(record, observer, time.perf_counter() - before)
        return _watched[key]

    def whole_run(self, make_trainer: MakeTrainer, switch_percent: float) -> TrialRecord:
        """See `watched`."""
        return self.watched(make_trainer, switch_percent).record

    def spec(self, switch_percent: float, **fields: object) -> TrialSpec:
        return self.spec_of(self.workload, self.workers, switch_percent, **fields)

    spec_of = staticmethod(spec_of)  # a trial as this trainer takes it

    @pytest.mark.parametrize("switch_percent", [0.0, 2.0, 50.0, 99.0, 100.0])
    def test_a_run_does_w_worker_steps_and_no_more(
        self, make_trainer: MakeTrainer, switch_percent: float
    ) -> None:
        record = self.whole_run(make_trainer, switch_percent)
        W = self.workload.total_worker_steps
        assert record.worker_steps == W
        assert record.phases[0].start_worker_step == 0
        assert record.phases[-1].end_worker_step == W
        for before, after in zip(record.phases, record.phases[1:], strict=False):
            assert before.end_worker_step == after.start_worker_step
            assert before.protocol != after.protocol
        assert all(phase.end_worker_step > phase.start_worker_step for phase in record.phases)
        done = sum(
            phase.end_worker_step - phase.start_worker_step
            for phase in record.phases
            if phase.protocol == "bsp"
        )
        assert abs(done - switch_percent / 100 * W) <= self.workers / 2
        assert not record.diverged
        assert not record.stopped_early
        if switch_percent in (0.0, 100.0):
            assert [phase.protocol for phase in record.phases] == ["bsp" if done else "asp"]
            assert record.switch_overhead_seconds == 0.0

    @pytest.mark.parametrize("switch_percent", [0.0, 50.0, 100.0])
    def test_it_learns_and_its_evaluations_ascend_to_the_end_of_the_job(
        self, make_trainer: MakeTrainer, switch_percent: float
    ) -> None:
        record = self.whole_run(make_trainer, switch_percent)
        steps = [evaluation.worker_step for evaluation in record.evaluations]
        seconds = [evaluation.elapsed_seconds for evaluation in record.evaluations]
        interval = self.workload.evaluation_interval_worker_steps
        assert steps == sorted(set(steps))
        assert seconds == sorted(seconds)
        assert seconds[0] > 0
        assert steps[-1] == self.workload.total_worker_steps
        # One as soon as each multiple of the interval is reached, at most a round late.
        due = range(interval, self.workload.total_worker_steps, interval)
        assert len(steps) == len(due) + 1
        for multiple, step in zip(due, steps, strict=False):
            assert multiple <= step < multiple + self.workers
        for evaluation in record.evaluations:
            assert 0.0 <= evaluation.accuracy <= 1.0
        # Chance is 0.1. On a busy machine one gradient may be 160 updates late.
        assert record.final_accuracy > 0.7
        losses = [evaluation.training_loss for evaluation in record.evaluations]
        assert all(map(math.isfinite, losses))
        assert losses[-1] < 0.75 * losses[0]

    def test_the_seconds_of_the_phases_are_those_of_the_training(
        self, make_trainer: MakeTrainer
    ) -> None:
        record, _, wall_seconds = self.watched(make_trainer, 50.0)
        assert record.training_seconds > 0
        assert self.virtual_time or record.training_seconds <= wall_seconds
        assert record.training_seconds == pytest.approx(sum(p.seconds for p in record.phases))
        assert record.inherited_seconds == 0.0
        assert 0 < record.switch_overhead_seconds < record.training_seconds

    def test_the_record_says_what_when_and_with_what(self, make_trainer: MakeTrainer) -> None:
        record = self.whole_run(make_trainer, 50.0)
        assert record.spec == self.spec(50.0, replicate=REPLICATE)
        assert record.started_at.tzinfo is not None
        assert record.started_at <= record.ended_at
        assert record.host
        assert "python" in record.software
        last = [evaluation.accuracy for evaluation in record.evaluations[-5:]]
        assert record.converged_accuracy == pytest.approx(sum(last) / len(last))

    def test_in_bsp_nothing_is_stale(self, make_trainer: MakeTrainer) -> None:
        (phase,) = self.whole_run(make_trainer, 100.0).phases
        assert (phase.mean_staleness, phase.max_staleness) == (0.0, 0)

    def test_a_seed_fixes_bsp_and_another_changes_it(self, make_trainer: MakeTrainer) -> None:
        def measured(record: TrialRecord) -> list[tuple[int, float]]:
            return [(e.worker_step, e.accuracy) for e in record.evaluations]

        first = measured(self.whole_run(make_trainer, 100.0))
        same = {"replicate": REPLICATE}
        assert measured(self.train(make_trainer, 100.0, **same)) == first
        assert measured(self.train(make_trainer, 100.0, seed=2, **same)) != first

    def test_the_observer_is_told_what_the_record_says(self, make_trainer: MakeTrainer) -> None:
        record, observer, _ = self.watched(make_trainer, 50.0)
        assert tuple(observer.evaluations) == record.evaluations
        assert observer.progress == sorted(observer.progress)
        assert observer.progress[-1] == self.workload.total_worker_steps

    def test_the_observer_is_called_from_one_thread_at_a_time(
        self, make_trainer: MakeTrainer
    ) -> None:
        def slow(evaluation: Evaluation) -> Verdict:
            if len(observer.evaluations) == 1:
                time.sleep(0.3)
            return Verdict.STOP

        observer = RecordingObserver(slow)
        self.train(make_trainer, 0.0, observer, LONG)
        assert observer.overlaps == 0

    @pytest.mark.parametrize("switch_percent", [0.0, 99.0, 100.0])
    def test_stop_is_obeyed(self, make_trainer: MakeTrainer, switch_percent: float) -> None:
        """Before the switch, the second protocol does not begin."""
        observer = RecordingObserver(lambda evaluation: Verdict.STOP)
        record = self.train(make_trainer, switch_percent, observer, LONG)
        assert record.stopped_early
        assert not record.diverged
        assert record.evaluations[0].worker_step <= record.worker_steps < LONG.total_worker_steps
        assert [phase.protocol for phase in record.phases] == ["bsp" if switch_percent else "asp"]
        assert record.phases[-1].end_worker_step == record.worker_steps
        assert record.evaluations[-1].worker_step == record.worker_steps

    def test_stop_at_the_end_is_no_early_stop(self, make_trainer: MakeTrainer) -> None:
        W = self.workload.total_worker_steps
        observer = RecordingObserver(
            lambda e: Verdict.STOP if e.worker_step == W else Verdict.CONTINUE
        )
        record = self.train(make_trainer, 50.0, observer)
        assert not record.stopped_early
        assert record.worker_steps == W

    @pytest.mark.parametrize("switch_percent", [0.0, 100.0])
    def test_a_run_that_explodes_is_a_result(
        self, make_trainer: MakeTrainer, switch_percent: float
    ) -> None:
        record = self.train(make_trainer, switch_percent, workload=EXPLOSIVE)
        assert record.diverged
        assert not record.converged
        assert not record.stopped_early
        assert record.worker_steps < EXPLOSIVE.total_worker_steps
        assert math.isfinite(record.converged_accuracy)
        assert math.isfinite(record.training_seconds)
        for evaluation in record.evaluations:
            assert math.isfinite(evaluation.accuracy)
            assert math.isfinite(evaluation.training_loss)

    def test_a_run_at_chance_after_the_first_decay_has_diverged(
        self, make_trainer: MakeTrainer
    ) -> None:
        record = self.train(make_trainer, 0.0, workload=HOPELESS)
        assert record.diverged
        assert 80 < record.worker_steps < HOPELESS.total_worker_steps
        assert record.converged_accuracy < 0.2

    def test_before_the_first_decay_a_run_may_be_at_chance(self, make_trainer: MakeTrainer) -> None:
        record = self.train(make_trainer, 50.0, workload=NOT_YET_HOPELESS)
        assert not record.diverged
        assert record.worker_steps == 160
        # No evaluation is later than the training.
        assert record.evaluations[-1].worker_step == 160
        assert record.evaluations[-1].elapsed_seconds <= record.training_seconds + 1e-9

    @pytest.mark.parametrize(
        ("hook", "error"),
        [
            ("on_progress", KeyboardInterrupt()),
            ("on_evaluation", KeyboardInterrupt()),
            ("on_evaluation", UserError("disk full")),
        ],
    )
    def test_an_observer_that_fails_stops_the_run(
        self, make_trainer: MakeTrainer, hook: str, error: BaseException
    ) -> None:
        """Nothing goes on, and the next trial runs as ever."""

        def fail(told: object) -> None:
            if told:  # no worker-steps are reported before the first
                raise error

        observer = RecordingObserver()
        setattr(observer, hook, fail)
        with pytest.raises(type(error)):
            self.train(make_trainer, 50.0, observer, LONG)
        assert max(observer.progress, default=0) < LONG.total_worker_steps
        assert not [t.name for t in threading.enumerate() if t.name.startswith("worker-")]
        stopping = RecordingObserver(lambda evaluation: Verdict.STOP)
        record = self.train(make_trainer, 50.0, stopping, LONG)
        assert record.phases[0].start_worker_step == 0
        assert record.evaluations[0].worker_step < LONG.total_worker_steps

    def test_a_trial_of_another_job_is_refused(self, make_trainer: MakeTrainer) -> None:
        other = replace(self.workload, learning_rate=0.5)
        self._is_refused(make_trainer, self.spec_of(other, self.workers, 50.0))
        self._is_refused(make_trainer, self.spec_of(self.workload, self.workers + 1, 50.0))

    @pytest.mark.parametrize("switch_percent", [-1.0, 100.5, math.nan])
    def test_a_switch_out_of_range_is_refused(
        self, make_trainer: MakeTrainer, switch_percent: float
    ) -> None:
        self._is_refused(make_trainer, self.spec(switch_percent))

    def test_an_unknown_protocol_is_refused(self, make_trainer: MakeTrainer) -> None:
        self._is_refused(make_trainer, self.spec(50.0, protocols=("bsp", "nonsense")))

    def _is_refused(self, make_trainer: MakeTrainer, spec: TrialSpec) -> None:
        with pytest.raises(UserError) as error:
            make_trainer(self.workload, self.workers).train(spec)
        assert "\n" not in str(error.value)

    def test_it_may_be_closed_twice(self, make_trainer: MakeTrainer) -> None:
        # Another trainer than that of the tests that follow.
        workload = replace(self.workload, name="closed")
        with make_trainer(workload, self.workers) as trainer:
            trainer.close()
        trainer.close()


class ForkContract(TrainerContract):
    """For trainers that write checkpoints and start from them."""

    def prefix(self, make_trainer: MakeTrainer, folder: Path) -> TrialRecord:
        """A run of BSP with a checkpoint at 40 percent, which nobody changes."""
        if type(self) not in _prefixes:
            _prefixes[type(self)] = self.train(
                make_trainer, 100.0, checkpoint_percents=(40.0,), checkpoint_directory=folder
            )
        return _prefixes[type(self)]

    def test_checkpoints_are_written_where_they_were_asked_for(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        record = self.train(
            make_trainer,
            50.0,
            checkpoint_percents=(12.5, 50.0, 80.0, 100.0),
            checkpoint_directory=tmp_path / "new",
        )
        assert set(record.checkpoints) == {12.5, 50.0, 80.0, 100.0}
        assert len(set(record.checkpoints.values())) == 4
        for path in record.checkpoints.values():
            assert path.parent == tmp_path / "new"
            assert path.is_file()
        assert [phase.protocol for phase in record.phases] == ["bsp", "asp"]

    def test_a_fork_goes_on_where_the_checkpoint_was_written(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        prefix = self.prefix(make_trainer, tmp_path)
        observer = RecordingObserver()
        fork = self.train(make_trainer, 50.0, observer, fork_from=prefix.checkpoints[40.0])
        start = fork.phases[0].start_worker_step
        W = self.workload.total_worker_steps
        assert abs(start - 0.4 * W) <= self.workers / 2
        assert fork.worker_steps == W
        assert fork.phases[-1].end_worker_step == W
        assert all(evaluation.worker_step > start for evaluation in fork.evaluations)
        assert 0 < fork.inherited_seconds < prefix.training_seconds
        assert fork.paid_seconds == pytest.approx(sum(phase.seconds for phase in fork.phases))
        assert all(e.elapsed_seconds > fork.inherited_seconds for e in fork.evaluations)
        assert fork.final_accuracy > 0.7
        assert all(step >= start for step in observer.progress)
        at_switch = self.train(make_trainer, 40.0, fork_from=prefix.checkpoints[40.0])
        assert [phase.protocol for phase in at_switch.phases] == ["asp"]

    def test_a_fork_of_bsp_measures_what_the_whole_run_did(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        whole = self.prefix(make_trainer, tmp_path)
        fork = self.train(make_trainer, 100.0, fork_from=whole.checkpoints[40.0])
        accuracies = {e.worker_step: e.accuracy for e in whole.evaluations}
        assert fork.evaluations
        for evaluation in fork.evaluations:
            assert evaluation.accuracy == accuracies[evaluation.worker_step]

    def test_a_fork_may_run_on_another_number_of_workers(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        prefix = self.prefix(make_trainer, tmp_path)
        for percent in (100.0, 60.0):
            spec = self.spec_of(self.workload, 3, percent, fork_from=prefix.checkpoints[40.0])
            record = make_trainer(self.workload, 3).train(spec)
            assert record.worker_steps == self.workload.total_worker_steps
            assert record.final_accuracy > 0.7

    def test_a_damaged_checkpoint_is_refused(
        self, make_trainer: MakeTrainer, tmp_path: Path
    ) -> None:
        whole = self.prefix(make_trainer, tmp_path).checkpoints[40.0]
        path = tmp_path / "damaged.npz"
        path.write_bytes(whole.read_bytes()[:-100])
        self._is_refused(make_trainer, self.spec(50.0, fork_from=path))
        self._is_refused(make_trainer, self.spec(50.0, fork_from=tmp_path / "none.npz"))
