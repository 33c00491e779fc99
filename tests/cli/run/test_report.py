"""What is said of a run that lost more than its policy allows."""

from __future__ import annotations

import socket
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from syncswitch.cli.run.report import print_report, report_as_json
from syncswitch.searcher.training.train import Training
from syncswitch.searcher.training.uses import RunRecorder
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.records.guard import FailedSwitch, GuardOutcome
from syncswitch.storage.records.job import RunConditions
from syncswitch.storage.records.metric import Metric
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import Evaluation, PhaseRecord, TrialRecord
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.trials.values import Owner
from syncswitch.storage.uses.summary import goal_of
from tests.records import changed
from tests.storage.conftest import IDENTITY, POLICY, RECORD, SEARCH
from tests.wording import Said

PROMISED = changed(POLICY, kept_share=0.93, baseline_kept_share=0.954, target_accuracy=0.95)


def training(
    policy: TimingPolicy | None, record: TrialRecord = RECORD, alone: tuple[float, ...] = ()
) -> Training:
    goal = None if policy is None else goal_of(policy, ())
    return Training(policy, record, Path("model.keras"), alone, goal, counts_for=policy)


def said_of(done: Training, capsys: pytest.CaptureFixture[str]) -> str:
    """Below the table of its phases."""
    print_report(done)
    text = " ".join(capsys.readouterr().out.split())
    return text[text.index("digits ") :]


def test_of_a_run_that_lost_too_much_it_says_how_often_that_happens(
    capsys: pytest.CaptureFixture[str], said: Said
) -> None:
    guarded = {"guarded": True, "delivered_share": 0.96}
    cases: tuple[tuple[dict[str, Any], GuardOutcome | None], ...] = (
        ({}, None),
        (guarded, GuardOutcome(50.0)),
        (guarded, None),
        ({"switch_percent": 100.0, "kept_share": 0.954}, None),
        ({"kept_share": None}, None),
        ({"target_accuracy": 0.9}, None),
    )
    for changes, guard in cases:
        policy = changed(PROMISED, **changes)
        said(said_of(training(policy, replace(RECORD, guard=guard)), capsys))


@pytest.mark.parametrize(
    ("percent", "phases"),
    [(50.0, RECORD.phases), (100.0, RECORD.phases[:1]), (0.0, RECORD.phases[1:])],
    ids=["both", "bsp", "asp"],
)
def test_without_a_policy_it_says_what_was_asked_for(
    percent: float, phases: tuple[PhaseRecord, ...], capsys: pytest.CaptureFixture[str], said: Said
) -> None:
    spec = replace(RECORD.spec, switch_percent=percent)
    done = training(None, replace(RECORD, spec=spec, phases=phases))
    said(said_of(done, capsys))
    told = report_as_json(done)
    assert (told["policy"], told["reaches_target"]) == (None, None)
    assert (told["switch_percent"], told["fingerprint"]) == (percent, IDENTITY.fingerprint)


ALARM = "3 evaluations in a row are below those of runs without a switch"
FAILED = FailedSwitch(6.25, ALARM, 1750, 4.5, 3.125, 0.5)
OUTCOMES = {
    "off": None,
    "quiet": GuardOutcome(50.0),
    "alarmed": GuardOutcome(100.0, (FAILED,)),
    "alarmed twice": GuardOutcome(
        25.0, (FAILED, FailedSwitch(12.5, "it diverged", 1800, 6.5, 2.0))
    ),
    "alarmed in another phase": GuardOutcome(
        6.25, (replace(FAILED, second_protocol="local-sgd:8:semi-sync"),)
    ),
}


@pytest.mark.parametrize("name", OUTCOMES)
def test_it_says_what_the_guard_did(
    name: str, capsys: pytest.CaptureFixture[str], said: Said
) -> None:
    guard = OUTCOMES[name]
    done = training(POLICY, replace(RECORD, guard=guard))
    said(said_of(done, capsys))
    assert report_as_json(done)["guard"] == {
        "state": name.split()[0],
        **Metric().document(asdict(guard or GuardOutcome(RECORD.spec.switch_percent))),
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


def test_what_a_run_takes_to_start_counts_once_and_of_too_few_tests_nothing_is_estimated() -> None:
    # A second to start, then 500 worker-steps in 2 s: alone it would have taken 1 + 4 s.
    for policy in (None, POLICY):
        phase = ((100, 1.4), (200, 1.8), (300, 2.2), (500, 3.0))
        assert timed(phase, policy) == (ESTIMATED, pytest.approx(5 / 3))
    for phase in (((500, 1.5),), ((100, 0.5), (500, 1.5))):
        assert timed(phase) == ("unknown", None)
        assert timed(phase, POLICY) == ("BSP alone in the search", 2.0)


UNEVEN = replace(
    RECORD,
    phases=(PhaseRecord("bsp", 0, 400, 2.2, 0.0, 0), RECORD.phases[1]),
    evaluations=tuple(
        Evaluation(100 * number, at, 0.8, 0.3) for number, at in enumerate((1.0, 1.2, 2.0, 2.2), 1)
    ),
)


def test_recorded_runs_of_bsp_alone_are_what_counts_and_chance_is_no_speed_up(
    capsys: pytest.CaptureFixture[str], said: Said
) -> None:
    for done in (
        training(changed(POLICY, baseline_seconds=3.1)),
        training(changed(POLICY, baseline_seconds=6.0)),
        training(None, UNEVEN),
        training(POLICY, alone=(3.2,)),
        training(POLICY, alone=(6.0,)),
        # Four runs that differ by 2 s: another one may take 3 s or 9 s.
        training(POLICY, alone=(5.0, 7.0) * 2),
        training(POLICY, alone=(3.0, 5.0) * 2),
        # Slower is said, too.
        training(POLICY, alone=(1.5, 1.5)),
    ):
        said("Training took" + said_of(done, capsys).partition("Training took")[2])


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
    assert RunRecorder(url, print).times_alone(IDENTITY) == [5.0]
    assert RunRecorder(f"sqlite:///{tmp_path / 'none.db'}", print).times_alone(IDENTITY) == []
