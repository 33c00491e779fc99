"""What is said of a run that lost more than its policy allows."""

from __future__ import annotations

import socket
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from syncswitch.cli.run.report import print_report, report_as_json
from syncswitch.searcher.training.train import Training
from syncswitch.searcher.training.uses import recorded_alone
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.records.guard import FailedSwitch, GuardOutcome
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import Evaluation, PhaseRecord, TrialRecord
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Owner
from tests.storage.conftest import IDENTITY, POLICY, RECORD, SEARCH

PROMISED = replace(POLICY, kept_share=0.93, baseline_kept_share=0.954, target_accuracy=0.95)


def training(
    policy: TimingPolicy | None, record: TrialRecord = RECORD, alone: tuple[float, ...] = ()
) -> Training:
    return Training(policy, record, Path("model.keras"), alone)


def said_of(done: Training, capsys: pytest.CaptureFixture[str]) -> str:
    print_report(done)
    return " ".join(capsys.readouterr().out.split())


def test_it_says_how_often_that_happens(capsys: pytest.CaptureFixture[str]) -> None:
    said = said_of(training(PROMISED), capsys)
    assert "accuracy 0.8900, NOT within 0.01 of the target 0.9500" in said
    assert "with this policy lose that much, and 5 of 100 with BSP alone." in said


def test_a_guarded_run_is_one_of_those_that_deliver(capsys: pytest.CaptureFixture[str]) -> None:
    policy = replace(PROMISED, guarded=True, delivered_share=0.96)
    record = replace(RECORD, guard=GuardOutcome(RECORD.spec.switch_percent))
    loses = "of 100 runs with this policy lose that much"
    assert f"About 4 {loses}" in said_of(training(policy, record), capsys)
    assert f"About 7 {loses}" in said_of(training(policy), capsys)


@pytest.mark.parametrize("policy", [POLICY, replace(PROMISED, target_accuracy=0.9)])
def test_it_says_nothing_where_nothing_is_known_or_lost(
    policy: TimingPolicy, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "of 100 runs" not in said_of(training(policy), capsys)


def test_with_the_first_protocol_alone_there_is_one_share(
    capsys: pytest.CaptureFixture[str],
) -> None:
    policy = replace(PROMISED, switch_percent=100.0, kept_share=0.954)
    assert "About 5 of 100 runs with this policy lose that much." in said_of(
        training(policy), capsys
    )


@pytest.mark.parametrize(
    ("percent", "phases", "words"),
    [
        (
            50.0,
            RECORD.phases,
            "digits on 4 workers, switching from BSP to ASP at 50 % as you asked: accuracy",
        ),
        (100.0, RECORD.phases[:1], "digits on 4 workers, with BSP alone as you asked: accuracy"),
        (0.0, RECORD.phases[1:], "digits on 4 workers, with ASP alone as you asked: accuracy"),
    ],
)
def test_without_a_policy_it_says_what_was_asked_for(
    percent: float,
    phases: tuple[PhaseRecord, ...],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = replace(RECORD.spec, switch_percent=percent)
    done = training(None, replace(RECORD, spec=spec, phases=phases))
    said = said_of(done, capsys)
    assert words in said
    assert "target" not in said
    assert "BSP alone in" not in said
    told = report_as_json(done)
    assert (told["policy"], told["reaches_target"]) == (None, None)
    assert (told["switch_percent"], told["fingerprint"]) == (percent, IDENTITY.fingerprint)


ALARM = "3 tests in a row are below what the first protocol alone reaches"


@pytest.mark.parametrize(
    ("guard", "state", "words"),
    [
        (None, "off", ""),
        (GuardOutcome(50.0), "quiet", "The guard found nothing wrong after the switch."),
        (
            GuardOutcome(100.0, (FailedSwitch(50.0, ALARM, 1750, 4.5, 2.25, 0.5),)),
            "alarmed",
            f"The guard went back to the switch at 50 % after 2.2 s: {ALARM}. BSP alone did the"
            " rest. That cost 2.2 s.",
        ),
        (
            GuardOutcome(
                25.0,
                (
                    FailedSwitch(6.25, ALARM, 1750, 4.5, 3.125, 0.5),
                    FailedSwitch(12.5, "it diverged", 1800, 6.5, 2.0),
                ),
            ),
            "alarmed",
            f"The guard went back to the switch at 6.25 % after 3.1 s: {ALARM}; to that at 12.5 %"
            " after 2.0 s: it diverged. That at 25 % held. That cost 5.1 s.",
        ),
    ],
)
def test_it_says_what_the_guard_did(
    guard: GuardOutcome | None, state: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = training(POLICY, replace(RECORD, guard=guard))
    said = said_of(done, capsys)
    assert words in said
    assert ("guard" in said) == (guard is not None)
    assert report_as_json(done)["guard"] == {
        "state": state,
        **asdict(guard or GuardOutcome(RECORD.spec.switch_percent)),
        "lost_seconds": sum(one.lost_seconds for one in (guard.failed if guard else ())),
    }


def timed(
    first_phase: tuple[tuple[int, float], ...], policy: TimingPolicy | None = None
) -> tuple[str, float | None]:
    """Where the speed-up of a run of 3 s is from, and what it is; of a phase by its tests."""
    (end, seconds) = first_phase[-1]
    phases = (replace(RECORD.phases[0], end_worker_step=end, seconds=seconds), RECORD.phases[1])
    evaluations = tuple(Evaluation(step, at, 0.8, 0.3) for step, at in first_phase)
    record = replace(RECORD, phases=phases, evaluations=evaluations)
    told = report_as_json(training(policy, record))
    return told["baseline_source"], told["speed_up"]


ESTIMATED = "BSP alone, as estimated from the pace of this run's BSP phase"


def test_what_a_run_takes_to_start_counts_once() -> None:
    # A second to start, then 500 worker-steps in 2 s: alone it would have taken 1 + 4 s.
    phase = ((100, 1.4), (200, 1.8), (300, 2.2), (500, 3.0))
    assert timed(phase) == (ESTIMATED, pytest.approx(5 / 3))
    assert timed(phase, POLICY) == (ESTIMATED, pytest.approx(5 / 3))


@pytest.mark.parametrize("phase", [((500, 1.5),), ((100, 0.5), (500, 1.5))])
def test_of_too_few_tests_nothing_is_estimated(phase: tuple[tuple[int, float], ...]) -> None:
    assert timed(phase) == ("unknown", None)
    assert timed(phase, POLICY) == ("BSP alone in the search", 2.0)


@pytest.mark.parametrize(
    ("baseline_seconds", "words"),
    [
        (3.1, "Training took 3.0 s, about as long as BSP alone in the search (3.1 s); the switch"),
        (6.0, "Training took 3.0 s, 2.00 times as fast as BSP alone in the search (6.0 s); the"),
    ],
)
def test_what_may_be_chance_is_no_speed_up(
    baseline_seconds: float, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = replace(POLICY, baseline_seconds=baseline_seconds)
    assert words in said_of(training(policy), capsys)


def test_of_uneven_tests_less_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    tests = tuple(Evaluation(100 * n, at, 0.8, 0.3) for n, at in enumerate((1.0, 1.2, 2.0, 2.2), 1))
    phases = (PhaseRecord("bsp", 0, 400, 2.2, 0.0, 0), RECORD.phases[1])
    record = replace(RECORD, phases=phases, evaluations=tests)
    said = said_of(training(None, record), capsys)
    assert f"Training took 3.0 s, about as long as {ESTIMATED} (" in said


@pytest.mark.parametrize(
    ("alone", "words"),
    [
        ((3.2,), "about as long as BSP alone in 1 recorded run (3.2 s)"),
        ((6.0,), "2.00 times as fast as BSP alone in 1 recorded run (6.0 s)"),
        # Four runs that differ by 2 s: another one may take 3 s or 9 s.
        ((5.0, 7.0, 5.0, 7.0), "2.00 times as fast as BSP alone in 4 recorded runs (6.0 s)"),
        ((3.0, 5.0, 3.0, 5.0), "about as long as BSP alone in 4 recorded runs (4.0 s)"),
        # Slower is said, too.
        ((1.5, 1.5), "0.50 times as fast as BSP alone in 2 recorded runs (1.5 s)"),
    ],
)
def test_recorded_runs_of_bsp_alone_are_what_counts(
    alone: tuple[float, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = said_of(training(POLICY, alone=alone), capsys)
    assert f"Training took 3.0 s, {words}; the switch" in said


def test_only_undisturbed_runs_of_this_machine_are_compared_with(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'trials.db'}"
    alone = replace(RECORD.spec, switch_percent=100.0)
    phases = (PhaseRecord("bsp", 0, 1000, 5.0, 0.0, 0),)
    whole = replace(RECORD, spec=alone, phases=phases, training_seconds=5.0, stopped_early=False)
    here = replace(whole, host=socket.gethostname())
    slowed = replace(alone, conditions=RunConditions(injections=("kill:ps,at=60%",)))
    runs = [
        here,
        replace(here, host="elsewhere"),
        replace(here, spec=slowed),
        replace(RECORD, host=here.host),
        replace(here, diverged=True),
    ]
    with open_database(url, create=True) as database:
        store = TrialStore(database)
        store.register(IDENTITY, "digits", SEARCH)
        for number, record in enumerate(runs):
            store.begin(SEARCH.study, number, record.spec, Owner.current())
            store.complete(SEARCH.study, number, record)
    assert recorded_alone(url, IDENTITY) == [5.0]
    assert recorded_alone(f"sqlite:///{tmp_path / 'none.db'}", IDENTITY) == []
