"""What a guarded run keeps to, whatever it trains on; a test of each trainer inherits it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from syncswitch.storage.records.guard import Band, BandPoint, GuardOutcome
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.trial import Evaluation, RunEvent, TrialRecord, TrialSpec
from syncswitch.trainers.job.schedule import checkpoint_path
from syncswitch.trainers.model.layout import ModelState
from syncswitch.trainers.trainer import Verdict
from tests.trainers.final import assert_bitwise_equal, train_to_end
from tests.trainers.jobs import BRIEF, RecordingObserver, normalized_model
from tests.trainers.trainer_contract import EXPLOSIVE

W = BRIEF.total_worker_steps
GUARDED = replace(BRIEF, model=normalized_model)
EASY = Band(0.2, 0.01, 3, (BandPoint(1, 0.1, 0.0), BandPoint(W, 0.1, 0.0)))
# No test is as good as that, so the third one after the switch is an alarm.
STRICT = Band(2.0, 0.01, 3, (BandPoint(1, 2.0, 0.0), BandPoint(W, 2.0, 0.0)))
# Nor any test up to worker-step 100; what a switch at 50 % is held against does not matter there.
EARLY = Band(
    0.2,
    0.01,
    3,
    tuple(BandPoint(step, 2.0 if step <= 100 else 0.0, 0.0) for step in range(1, W, 9)),
)
# No run ends as well as that.
TARGET = Band(2.0, 0.01)
# Nobody has measured the job.
UNMEASURED = Band(None, 0.01)
LOCAL = "local-sgd:4:semi-sync"


def tested(record: TrialRecord) -> list[tuple[int, float]]:
    return [(one.worker_step, one.accuracy) for one in record.evaluations]


Trained = Callable[..., tuple[TrialRecord, ModelState]]

_alone: dict[type, tuple[TrialRecord, ModelState]] = {}


class GuardContract:
    """Args of a subclass: `spec_of` and a fixture `make_trainer`, as in `TrainerContract`.

    `is_repeatable`: also what comes after a switch is the same each time that it is made.
    """

    workers: ClassVar[int] = 4
    is_repeatable: ClassVar[bool] = False

    spec_of: ClassVar[Callable[..., TrialSpec]]

    @pytest.fixture
    def trained(self, make_trainer: Callable[..., Any], tmp_path: Path) -> Trained:
        """Trains a guarded trial to its end; `folder` is for its checkpoints."""

        def train(
            switch_percent: float,
            band: Band | None,
            observer: RecordingObserver | None = None,
            folder: str = ".",
            **fields: Any,
        ) -> tuple[TrialRecord, ModelState]:
            spec = self.spec_of(GUARDED, self.workers, switch_percent, band=band, **fields)
            trainer = make_trainer(GUARDED, self.workers)
            return train_to_end(trainer, spec, tmp_path / folder, observer)

        return train

    @pytest.fixture
    def alone(self, trained: Trained) -> tuple[TrialRecord, ModelState]:
        """A run of the first protocol, which is the same whoever asks: the first one makes it."""
        if type(self) not in _alone:
            _alone[type(self)] = trained(100.0, None, folder="alone")
        return _alone[type(self)]

    @pytest.mark.parametrize(
        ("percents", "band", "second"),
        [
            ((0.0, 30.0, 50.0), STRICT, "asp"),
            ((30.0,), STRICT, "asp"),
            ((30.0, 60.0), TARGET, "local-sgd:2"),
            ((30.0, 60.0), TARGET, "local-sgd:4:semi-sync:growing"),
        ],
    )
    def test_after_its_last_alarm_it_ends_where_the_first_protocol_alone_does(
        self,
        trained: Trained,
        alone: tuple[TrialRecord, ModelState],
        percents: tuple[float, ...],
        band: Band,
        second: str,
    ) -> None:
        observer, pair = RecordingObserver(), ("bsp", second)
        first, *later = percents
        record, state = trained(first, band, observer, protocols=pair, retry_percents=tuple(later))
        whole, expected = alone
        assert_bitwise_equal(state, expected)
        assert tested(record) == tested(whole)
        assert [(p.protocol, p.end_worker_step) for p in record.phases] == [("bsp", W)]
        assert record.worker_steps == W
        assert not record.diverged
        assert record.converged_accuracy == whole.converged_accuracy
        guard = record.guard
        assert guard is not None
        assert guard.held_percent == 100.0
        assert tuple(one.switch_percent for one in guard.failed) == percents
        events = [event for event in record.events if event.kind == "alarmed"]
        switches = [round(percent / 100 * W / 4) * 4 for percent in percents]
        for switch, failed, alarmed in zip(switches, guard.failed, events, strict=True):
            if band is TARGET:
                assert failed.worker_step == W
                assert failed.alarm.startswith("it ends with ")
            else:
                assert switch + 3 * 20 - 20 < failed.worker_step <= W
                assert failed.alarm.startswith("3 evaluations in a row are below ")
            assert failed.accuracy is not None
            if failed.worker_step < W:
                # Of the tests that were told of, but do not count.
                assert failed.accuracy in [one.accuracy for one in observer.evaluations]
            assert alarmed in observer.events
            assert alarmed == RunEvent(
                "alarmed",
                failed.worker_step,
                failed.elapsed_seconds,
                alarmed.reason,
                seconds=failed.lost_seconds,
            )
            where = f"BSP continues from the switch, after {switch} worker-steps"
            assert alarmed.reason.startswith(f"{failed.alarm}; {where}")
        nexts = [event.reason.partition("worker-steps")[2] for event in events]
        assert nexts == [*(f", and the next switch is at {one:g} %" for one in later), ""]
        self.assert_time_is_kept(record, guard)
        # Those of the failed parts as well, and then those of the first protocol.
        told = [(one.worker_step, one.accuracy) for one in observer.evaluations]
        after = [one for one in tested(record) if one[0] > switches[-1]]
        assert told[-len(after) :] == after
        assert len(told) >= len(tested(record)) + 3 * len(percents)

    def assert_time_is_kept(self, record: TrialRecord, guard: GuardOutcome) -> None:
        assert all(0 < one.lost_seconds <= one.elapsed_seconds for one in guard.failed)
        phases = sum(phase.seconds for phase in record.phases)
        assert record.training_seconds == pytest.approx(phases + guard.lost_seconds)
        seconds = [one.elapsed_seconds for one in record.evaluations]
        assert seconds == sorted(seconds)
        assert (record.switch_overhead_seconds > 0) == (len(record.phases) > 1)

    def test_a_later_switch_holds_as_if_it_were_the_only_one(self, trained: Trained) -> None:
        record, state = trained(30.0, EARLY, retry_percents=(50.0, 60.0))
        once, expected = trained(50.0, EARLY, folder="once")
        if self.is_repeatable:
            assert_bitwise_equal(state, expected)
            assert tested(record) == tested(once)
        assert tested(record)[:4] == tested(once)[:4]
        assert once.guard == GuardOutcome(50.0)
        assert record.guard is not None
        assert record.guard.held_percent == 50.0
        assert [one.switch_percent for one in record.guard.failed] == [30.0]
        assert [event.kind for event in record.events] == ["switched", "alarmed", "switched"]
        assert record.events[-1].reason.endswith("the switch is at 50 %")
        ends = [[(p.protocol, p.end_worker_step) for p in one.phases] for one in (record, once)]
        assert ends[0] == ends[1]
        self.assert_time_is_kept(record, record.guard)

    @pytest.mark.parametrize(
        ("switch_percent", "band", "outcome"),
        [
            (30.0, EASY, GuardOutcome(30.0)),
            (30.0, UNMEASURED, GuardOutcome(30.0)),
            (30.0, None, None),
            (100.0, STRICT, None),
        ],
    )
    def test_without_an_alarm_nothing_is_different(
        self,
        trained: Trained,
        switch_percent: float,
        band: Band | None,
        outcome: GuardOutcome | None,
    ) -> None:
        record, _ = trained(switch_percent, band)
        assert record.guard == outcome
        assert [p.protocol for p in record.phases] == ["bsp", "asp"][: 2 - (switch_percent == 100)]
        assert record.worker_steps == W
        assert [event.kind for event in record.events] == ["switched"] * (switch_percent < 100)

    @pytest.mark.parametrize("band", [TARGET, UNMEASURED], ids=["target", "unmeasured"])
    def test_what_explodes_goes_back_as_well(
        self, make_trainer: Callable[..., Any], band: Band
    ) -> None:
        """Here to its start, and explodes again before its next switch."""
        spec = self.spec_of(EXPLOSIVE, self.workers, 0.0, band=band, retry_percents=(50.0,))
        record = make_trainer(EXPLOSIVE, self.workers).train(spec)
        assert record.diverged
        assert [phase.protocol for phase in record.phases] == ["bsp"]
        assert record.guard is not None
        assert record.guard.held_percent == 100.0
        (failed,) = record.guard.failed
        assert failed.alarm in ("a training loss is not finite", "the parameters are not finite")

    def test_a_stop_with_the_alarm_is_obeyed(self, make_trainer: Callable[..., Any]) -> None:
        observer = RecordingObserver(
            lambda one: Verdict.STOP if one.worker_step >= 100 else Verdict.CONTINUE
        )
        spec = self.spec_of(GUARDED, self.workers, 30.0, band=STRICT)
        record = make_trainer(GUARDED, self.workers).train(spec, observer)
        assert record.guard == GuardOutcome(30.0)

    def test_the_state_at_the_switch_is_among_the_checkpoints(
        self, trained: Trained, tmp_path: Path
    ) -> None:
        percents = (10.0, 20.0, 50.0, 60.0, 80.0)
        record, _ = trained(30.0, EASY, checkpoint_percents=percents, kept_checkpoints=2)
        assert sorted(record.checkpoints) == [30.0, 80.0, 100.0]
        assert set(tmp_path.iterdir()) == set(record.checkpoints.values())

    def test_after_an_alarm_no_checkpoint_of_the_failed_part_is_left(
        self, make_trainer: Callable[..., Any], tmp_path: Path
    ) -> None:
        seen: list[set[Path]] = []

        class Looking(RecordingObserver):
            def on_evaluation(self, evaluation: Evaluation) -> Verdict:
                if any(event.kind == "alarmed" for event in self.events):
                    seen.append(set(tmp_path.iterdir()))
                return super().on_evaluation(evaluation)

        fields = {"checkpoint_percents": (20.0, 40.0, 50.0), "checkpoint_directory": tmp_path}
        spec = self.spec_of(GUARDED, self.workers, 30.0, band=STRICT, **fields)
        record = make_trainer(GUARDED, self.workers).train(spec, Looking())
        assert sorted(record.checkpoints) == [20.0, 30.0, 40.0, 50.0]
        assert seen[0] == {checkpoint_path(spec, one, ".npz") for one in (20.0, 30.0)}

    @pytest.mark.parametrize(("switch_percent", "later"), [(0.0, ()), (30.0, (60.0,))])
    def test_resumed_after_its_switch_it_can_still_go_back(
        self,
        trained: Trained,
        alone: tuple[TrialRecord, ModelState],
        tmp_path: Path,
        switch_percent: float,
        later: tuple[float, ...],
    ) -> None:
        """From the start it needs no checkpoint for that."""

        def interrupt(evaluation: Evaluation) -> Verdict:
            alarms = [event for event in observer.events if event.kind == "alarmed"]
            if evaluation.worker_step >= 120 and len(alarms) == len(later):
                raise KeyboardInterrupt
            return Verdict.CONTINUE

        fields: dict[str, Any] = {
            "checkpoint_percents": (40.0, 70.0),
            "kept_checkpoints": 1,
            "retry_percents": later,
        }
        for attempt in range(20):
            observer, folder = RecordingObserver(interrupt), f"resumed-{attempt}"
            with pytest.raises(KeyboardInterrupt):
                trained(switch_percent, TARGET, observer, folder, **fields)
            left = (tmp_path / folder).iterdir()
            found = {float(path.stem.partition("-at-")[2]) for path in left}
            if 100.0 not in found:  # else its steps were ahead of its evaluations
                break
        assert found == {70.0, *later}
        # What is left to try is known to the run.
        fields["retry_percents"] = ()
        fields["resume"] = True
        record, state = trained(switch_percent, TARGET, folder=folder, **fields)
        kinds = [event.kind for event in record.events if event.kind != "switched"]
        assert kinds == [*("alarmed" for _ in later), "resumed", "alarmed"]
        assert record.guard is not None
        assert record.guard.held_percent == 100.0
        assert [one.switch_percent for one in record.guard.failed] == [switch_percent, *later]
        assert_bitwise_equal(state, alone[1])

    def test_resumed_without_the_state_at_its_switch_it_has_no_guard(
        self, make_trainer: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        fields: dict[str, Any] = {"checkpoint_percents": (60.0,), "checkpoint_directory": tmp_path}
        spec = self.spec_of(GUARDED, self.workers, 30.0, **fields)
        make_trainer(GUARDED, self.workers).train(spec)
        spec = replace(spec, band=STRICT, resume=True)
        record = make_trainer(GUARDED, self.workers).train(spec)
        assert record.guard is None
        assert [phase.protocol for phase in record.phases] == ["bsp", "asp"]
        assert "the run continues without a guard" in caplog.text

    def test_it_goes_on_with_the_fastest_second_phase_also_once_it_is_resumed(
        self, make_trainer: Callable[..., Any], tmp_path: Path
    ) -> None:
        total = 1000
        job = replace(GUARDED, total_worker_steps=total, evaluation_interval_worker_steps=200)
        spec = self.spec_of(job, self.workers, 6.25, band=UNMEASURED)
        local = self.spec_of(job, self.workers, 6.25, protocols=("bsp", LOCAL)).identity.protocols
        spec = replace(spec, candidates=(spec.identity.protocols, local))
        trainer = make_trainer(job, self.workers)
        percents = {"checkpoint_percents": (50.0,)}
        record, _ = train_to_end(trainer, replace(spec, **percents), tmp_path)
        identity, phases = record.spec.identity, record.phases
        assert (phases[0].protocol, phases[0].end_worker_step >= 64) == ("bsp", True)
        assert record.worker_steps == total
        kinds = [one.kind for one in record.events]
        # What cannot be faster is not tried, nor what comes after one that halves the time.
        assert kinds[: kinds.index("chosen") + 1] in (
            *[["tried"] * count + ["chosen"] for count in range(3)],
        )
        # Whatever it is on this machine, and by then; on a virtual clock it is the same each time.
        tried = {phase.protocol for phase in phases[1:]} - {"bsp"}
        assert tried <= {"asp", LOCAL}
        assert identity.protocols in (local, spec.identity.protocols)
        assert record.guard in (GuardOutcome(100.0), GuardOutcome(6.25))
        record.checkpoints[100.0].unlink()
        again, _ = train_to_end(trainer, replace(spec, resume=True, **percents), tmp_path)
        half = [
            [(p.protocol, min(p.end_worker_step, 500)) for p in one if p.start_worker_step < 500]
            for one in (phases, again.phases)
        ]
        assert half[0] == half[1]
        early = [[e for e in one.events if e.worker_step < 500] for one in (record, again)]
        assert early[0] == early[1]
        if self.is_repeatable:
            assert again.phases == phases
            assert (again.spec.identity, again.guard) == (identity, record.guard)
            assert (tried, identity.protocols) == ({"asp"}, spec.identity.protocols)

    def test_it_falls_back_to_another_second_phase_also_once_it_is_resumed(
        self, make_trainer: Callable[..., Any], tmp_path: Path
    ) -> None:
        """BSP waits for a slow worker before the switch; both phases end in vain."""
        total = 1000
        job = replace(GUARDED, total_worker_steps=total, evaluation_interval_worker_steps=200)
        slow = RunConditions(injections=("straggler:worker=1,at=0%,for=6%,delay=100ms",))
        spec = self.spec_of(job, self.workers, 6.25, band=TARGET, conditions=slow)
        local = self.spec_of(job, self.workers, 6.25, protocols=("bsp", LOCAL)).identity.protocols
        asp = spec.identity.protocols
        spec = replace(spec, fallbacks=(asp, local), checkpoint_percents=(50.0,))
        trainer = make_trainer(job, self.workers)

        def interrupt(evaluation: Evaluation) -> Verdict:
            is_again = any(one.kind == "alarmed" for one in observer.events)
            if is_again and evaluation.worker_step >= 600:
                raise KeyboardInterrupt
            return Verdict.CONTINUE

        observer = RecordingObserver(interrupt)
        with pytest.raises(KeyboardInterrupt):
            train_to_end(trainer, spec, tmp_path, observer)
        record, _ = train_to_end(trainer, replace(spec, resume=True), tmp_path)
        guard = record.guard
        assert guard is not None
        failed = [(one.switch_percent, one.second_protocol) for one in guard.failed]
        assert failed == [(6.25, "asp"), (6.25, LOCAL)]
        assert guard.held_percent == 100.0
        assert [phase.protocol for phase in record.phases] == ["bsp"]
        assert (record.spec.identity.protocols, record.worker_steps) == (asp, total)
        assert set(record.step_seconds) == {"bsp", "asp", LOCAL}
        assert "resumed" in [event.kind for event in record.events]
        back = [event.reason for event in record.events if event.kind == "alarmed"]
        assert "LOCAL-SGD:4:semi-sync continues from the switch" in back[0]
        assert "BSP continues from the switch" in back[1]
