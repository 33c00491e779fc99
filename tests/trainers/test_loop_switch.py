"""The switch of a loop of one's own: when it holds, goes back, and what is recorded."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncswitch.storage.database.engine import open_database
from syncswitch.storage.errors import ErrorCode, PolicyError
from syncswitch.storage.marks import DeprecatedWarning
from syncswitch.storage.policies.file import checksum_of, read_policy_file
from syncswitch.storage.policies.registry import import_policies
from syncswitch.storage.records.flat import flat
from syncswitch.storage.records.job import OWN_MOMENTUM
from syncswitch.storage.uses.spool import TakenIn, take_in
from syncswitch.storage.uses.store import uses
from syncswitch.trainers.loop_switch import LoopSwitch
from tests.failing import fails
from tests.records import changed
from tests.storage.conftest import IDENTITY
from tests.trainers.policies import level_band, policy_file
from tests.wording import Said

W = 1000
NAN = float("nan")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A policy that switches at 12.5 %, whose first way reaches 0.9 at once."""
    return written(tmp_path / "job.json")


def written(path: Path, momentum_after_switch: str | None = None, workers: int = 1) -> Path:
    # Rounds of one worker-step, so that every percent is a step.
    identity = changed(
        IDENTITY, total_worker_steps=W, workers=workers, momentum_after_switch=momentum_after_switch
    )
    return policy_file(path, identity, band=level_band(0.9, range(100, W + 1, 100)))


def recorded(path: Path) -> dict[str, Any]:
    (line,) = path.with_name("job.uses.jsonl").read_text().splitlines()
    return dict(json.loads(line)["record"])


def train(
    switch: LoopSwitch, second_way: Callable[[int], float | None]
) -> tuple[list[int], list[tuple[int, int]], list[int]]:
    """A loop whose model is what its second way last began with.

    Returns:
        Where it saved, from where and to where it went back, and its steps in the second way.
    """
    saved, went_back, second = [], [], []
    step, began = 0, W
    while step < W:
        if switch.saves_at(step):
            saved.append(step)
        if switch.is_second(step):
            began = min(began, step)
            second.append(step)
        step += 1
        if step % 100 == 0:
            accuracy = second_way(began) if began < W else 0.9
            if (back := switch.report(step, accuracy)) is not None:
                went_back.append((step, back))
                step, began = back, W
    return saved, went_back, second


def test_a_good_switch_is_made_once_and_counted_in_the_database(path: Path, tmp_path: Path) -> None:
    saved, went_back, second = train(LoopSwitch(path, seed=7), lambda _: 0.9)
    assert (saved, went_back, second) == ([125], [], list(range(125, W)))
    spool = tmp_path / "job.uses.jsonl"
    with open_database(f"sqlite:///{tmp_path}/uses.db", create=True) as database:
        import_policies(database, [read_policy_file(path)])
        assert take_in(database, spool) == TakenIn(recorded=1)
        (use,) = uses(database, read_policy_file(path).policy.job.fingerprint)
    assert (use.switch_percent, use.seed, use.guard.state) == (12.5, 7, "quiet")
    assert use.result.converged_accuracy == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("good_from", "failed", "held"),
    [(200, [125], 25), (300, [125, 250], 50), (W, [125, 250, 500], 100)],
)
@pytest.mark.parametrize("bad", [0.2, NAN])
def test_a_failed_switch_is_gone_back_to_and_made_later(
    path: Path, good_from: int, failed: list[int], held: float, bad: float
) -> None:
    found = train(LoopSwitch(path), lambda began: 0.9 if began >= good_from else bad)
    assert found[0] == ([*failed, held * 10] if held < 100 else failed)
    assert [back for _, back in found[1]] == failed
    # Three low tests are an alarm, one that is not finite is one at once.
    assert found[1][0] == (400 if bad == 0.2 else 200, 125)
    outcome = recorded(path)["guard"]
    assert outcome["held_percent"] == held
    assert [one["switch_percent"] * 10 for one in outcome["failed"]] == failed
    tests = recorded(path)["evaluations"]
    assert [one["worker_step"] for one in tests] == list(range(100, W + 1, 100))
    assert {one["accuracy"] for one in tests} == {0.9}
    lost = sum(one["lost_seconds"] for one in outcome["failed"])
    phases = sum(one["seconds"] for one in recorded(path)["phases"])
    assert phases == pytest.approx(recorded(path)["training_seconds"] - lost)


def test_the_others_do_what_the_chief_is_told_and_record_nothing(path: Path) -> None:
    told: list[int | None] = []

    def broadcast(back: int | None) -> int | None:
        told.append(back)
        return back

    chief = LoopSwitch(path, broadcast=broadcast)
    expected = train(chief, lambda _: 0.2)
    answers = iter(told)
    other = LoopSwitch(path, is_chief=False, broadcast=lambda _: next(answers))
    # It need not measure.
    assert train(other, lambda _: None) == expected
    recorded(path)  # one line
    with pytest.raises(TypeError, match="rank 0 decides: give report"):
        LoopSwitch(path).report(100, None)


def test_a_policy_of_another_size_is_told(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    LoopSwitch(path, total_steps=W, processes=4)  # it was found without a number of workers
    assert caplog.messages == []
    LoopSwitch(path, total_steps=2 * W)
    told = f"and {path} is for 1,000: the best switch may differ; find a policy for this"
    assert caplog.messages == [f"this loop has 2,000 steps, {told} job"]
    caplog.clear()
    for four in (LoopSwitch(written(path, workers=8), processes=8), LoopSwitch(path, processes=4)):
        four.report(100, 0.9)
    assert caplog.messages == [f"this loop has 4 processes, {told.replace('1,000', '8')} job"]


class Model:
    """One number, which the second way changes."""

    def __init__(self) -> None:
        self.state = {"steps": [0]}

    def state_dict(self) -> dict[str, list[int]]:
        return self.state

    def load_state_dict(self, state: dict[str, list[int]]) -> None:
        self.state = state


def test_what_it_keeps_is_put_back_after_each_alarm(path: Path) -> None:
    model, found = Model(), []
    switch = LoopSwitch(path, keeps=[model])
    for switches_at in (125, 250, 500):
        assert switch.is_second(switches_at)
        model.state["steps"][0] += 1
        found.append(switch.report(switches_at + 75, NAN))
        assert model.state["steps"] == [0]
    assert found == [125, 250, 500]


def test_with_a_momentum_for_each_worker_it_switches_again_at_a_quarter_alone(
    tmp_path: Path,
) -> None:
    switch, found = LoopSwitch(written(tmp_path / "job.json", OWN_MOMENTUM)), []
    while (at := switch.switch_step) is not None:
        found.append(at)
        switch.saves_at(at)
        switch.report(at + 75, NAN)
    assert found == [125, 250]


@pytest.mark.parametrize("killed_at", [50, 150, 350, 450, 650, 990])
@pytest.mark.parametrize("saves_every", [10, 100])
def test_a_loop_that_is_killed_goes_on_as_if_nothing_had_happened(
    path: Path, killed_at: int, saves_every: int
) -> None:
    """Steps are counted as they are made, those that were lost included."""

    def run(switch: LoopSwitch, step: int, kill_after: int | None) -> tuple[int, str]:
        saved, made = (step, json.dumps(switch.state_dict())), 0
        while step < W:
            switch.saves_at(step)
            if step % saves_every == 0:
                saved = step, json.dumps(switch.state_dict())
            if made == kill_after:
                return saved
            step, made = step + 1, made + 1
            if step % 100 == 0:
                fails = switch.is_second(step) and (switch.switch_step or 0) < 300
                back = switch.report(step, 0.2 if fails else 0.9)
                step = step if back is None else back
        return saved

    step, state = run(LoopSwitch(path), 0, killed_at)
    again = LoopSwitch(path)
    again.load_state_dict(json.loads(state))
    run(again, step, None)
    record = recorded(path)
    failed = [(one["switch_percent"], one["worker_step"]) for one in record["guard"]["failed"]]
    assert failed == [(12.5, 400), (25.0, 500)]
    assert record["guard"]["held_percent"] == 50
    tests = [(one["worker_step"], one["accuracy"]) for one in record["evaluations"]]
    assert tests == [(step, 0.9) for step in range(100, W + 1, 100)]


def test_a_state_from_before_an_alarm_does_not_bring_the_failed_switch_back(path: Path) -> None:
    switch = LoopSwitch(path)
    switch.saves_at(125)
    state = switch.state_dict()
    assert switch.report(200, NAN) == 125
    switch.load_state_dict(state)
    assert switch.switch_step == 250
    # What was saved at the failed switch, and what was told of it since.
    again = LoopSwitch(path)
    again.load_state_dict({**state, "history": switch.state_dict()["history"]})
    assert not again.is_second(125)
    assert again.saves_at(250)


def test_a_switch_that_is_told_goes_before_the_file_and_nobody_guards_the_run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train(LoopSwitch(), lambda _: 0.2) == ([], [], [])  # all steps in the first way
    monkeypatch.setenv("SYNCSWITCH_SWITCH_STEP", "950")
    monkeypatch.setenv("SYNCSWITCH_OUTPUT_DIR", str(tmp_path))
    found = train(LoopSwitch(path), lambda _: 0.2)
    assert found == ([950], [], list(range(950, W)))
    now = iter([3.0, 5.5])
    LoopSwitch(path, clock=lambda: next(now)).report(W, 0.2)  # a clock of the loop's own
    *_, last, again = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert last == {"step": W, "accuracy": 0.2}
    assert again == {**last, "seconds": 2.5}
    assert not (tmp_path / "job.uses.jsonl").exists()


def test_it_reports_under_a_former_name_too_until_that_goes(path: Path) -> None:
    switch = LoopSwitch(path)
    switch.saves_at(125)
    with pytest.warns(DeprecatedWarning, match="test is deprecated since 0.2 and goes in 0.3"):
        assert switch.test(200, NAN) == 125


GOLDEN_STATE = Path(__file__).with_name("golden_loop_state_1.json")


def later_fields(state: Any) -> Any:
    """As a later version may add them, in each part."""
    if isinstance(state, list):
        return [later_fields(one) for one in state]
    if isinstance(state, dict):
        return {**{name: later_fields(one) for name, one in state.items()}, "later": 1}
    return state


@pytest.mark.parametrize("change", [dict, later_fields])
def test_a_loop_goes_on_that_the_first_version_has_saved(
    path: Path, change: Callable[[Any], Any]
) -> None:
    switch = LoopSwitch(path)
    switch.load_state_dict(change(json.loads(GOLDEN_STATE.read_text())))
    assert switch.switch_step == 250
    assert [event.kind for event in switch.events] == ["alarmed"]
    for step in range(400, W + 1, 100):
        assert switch.report(step, 0.9) is None
    use = recorded(path)
    assert [one["switch_percent"] for one in use["guard"]["failed"]] == [12.5]
    assert [one["worker_step"] for one in use["evaluations"]] == list(range(100, W + 1, 100))


def test_a_state_of_a_newer_version_says_so(path: Path) -> None:
    state = {**json.loads(GOLDEN_STATE.read_text()), "schema_version": 2}
    with fails("newer-version", r"^the state of this loop was written by a newer"):
        LoopSwitch(path).load_state_dict(state)


def altered(path: Path, **changes: Any) -> None:
    """Changes a policy, with the checksum of its new values."""
    content = json.loads(path.read_text())
    content["policy"] |= changes
    values = {name: content[name] for name in ("workload", "policy")}
    path.write_text(json.dumps({**content, "checksum": checksum_of(values)}))


@pytest.mark.parametrize(
    "changes",
    [
        {"switch_percent": 140.0},
        {"switch_percent": -3.0},
        {"switch_percent": "12.5"},
        {"threshold": -1.0},
        {"target_accuracy": 1.5},
    ],
)
def test_a_policy_is_read_as_by_all_others(path: Path, changes: dict[str, Any]) -> None:
    altered(path, **changes)
    with pytest.raises(PolicyError) as of_all:
        read_policy_file(path)
    with pytest.raises(PolicyError) as here:
        LoopSwitch(path)
    assert str(here.value) == str(of_all.value)
    with fails("file-unusable", r"^cannot read the policy file .*gone\.json: No such"):
        LoopSwitch(path.with_name("gone.json"))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"switch_percent": 140.0}, "trial.switch_percent .140.0.: Input should be less than"),
        ({"retry_percents": [-3.0]}, "trial.retry_percents.0 .-3.0.: Input should be greater than"),
        ({"identity": {}}, "trial.identity.name: Field required"),
    ],
)
def test_a_plan_that_was_altered_is_one_line(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    identity = changed(IDENTITY, total_worker_steps=W, workers=1)
    plan: dict[str, Any] = {"identity": flat(identity), "switch_percent": 12.5, "seed": 0}
    plan |= {"band": flat(level_band(0.9, [100])), "retry_percents": [25.0]}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps({"trial": plan}))
    assert LoopSwitch(path).switch_step == 125
    later = {"schema_version": 1, "later": 1, "trial": {**plan, "later": 1}}
    path.write_text(json.dumps(later))
    assert LoopSwitch(path).switch_step == 125
    path.write_text(json.dumps({"trial": {**plan, **changes}}))
    with fails("policy-damaged", rf"^the plan .*plan\.json was altered: {told}"):
        LoopSwitch(path)


def test_it_loads_no_library_that_a_training_lacks(path: Path) -> None:
    code = (
        "import sys; known = set(sys.modules)\n"
        "def loaded():\n"
        "    tops = {name.partition('.')[0] for name in set(sys.modules) - known}\n"
        "    return sorted(tops - sys.stdlib_module_names - {'syncswitch'})\n"
        "from syncswitch.trainers.loop_switch import LoopSwitch\n"
        f"LoopSwitch(total_steps={W}).report({W}, 0.9); print(*loaded())\n"
        f"switch = LoopSwitch({str(path)!r}); switch.saves_at(125); switch.report({W}, 0.9)\n"
        "print(*(one for one in loaded() if 'sysconfig' not in one))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    alone, with_policy = done.stdout.splitlines()
    assert alone == "typing_extensions"  # which PyTorch needs as well
    assert with_policy.split() == [
        *("annotated_types", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection")
    ]
    recorded(path)


@pytest.mark.parametrize(("kind", "step_kind"), [(np.float32, np.int64), (np.array, np.int32)])
def test_numbers_of_numpy_are_numbers(path: Path, kind: Any, step_kind: Any) -> None:
    switch = LoopSwitch(path)
    for step in range(1, W + 1):
        switch.is_second(step_kind(step - 1))
        if step % 100 == 0:
            switch.report(step_kind(step), kind(0.9), kind(0.5))
    assert recorded(path)["evaluations"][-1]["worker_step"] == W


# The loop's first step and stride: where its switch is, whether it is guarded, what is told.
STEPS = {
    "by sevens": (0, 7, 126, True, None),
    "from behind": (600, 5, 600, True, "starts at step 600, after the switch at step 125"),
    "that saves nothing": (0, 5, 125, False, "nothing was saved there"),
}


@pytest.mark.parametrize("kind", STEPS)
def test_the_first_step_at_or_after_the_switch_counts(
    path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    step, stride, at, is_guarded, told = STEPS[kind]
    model = Model()
    switch = LoopSwitch(path, keeps=[model] if is_guarded else [])
    went_back, tested = [], 0
    while step < W:
        is_second = switch.is_second(step)
        step = min(W, step + stride)
        if step // 100 > tested // 100:
            tested = step
            if (back := switch.report(step, 0.2 if is_second else 0.9)) is not None:
                went_back.append(back)
                step = tested = back
                break
    assert went_back == ([at] if is_guarded else [])
    if not is_guarded:
        phases = recorded(path)["phases"]
        assert [(one["start_worker_step"], one["end_worker_step"]) for one in phases] == [
            (0, at),
            (at, W),
        ]
    *said, _ = caplog.messages  # the last one is of the end, or of an alarm
    assert [told in line for line in said] == ([True] if told else [])


def test_a_nan_at_the_very_switch_is_of_the_first_way(path: Path) -> None:
    switch = LoopSwitch(path, keeps=[Model()])
    for step in range(126):
        switch.is_second(step)
    assert switch.report(125, NAN) is None
    assert recorded(path)["diverged"]
    assert not recorded(path)["guard"]["failed"]


def test_a_loop_that_looks_beyond_the_next_switch_before_it_goes_back_is_guarded(
    path: Path,
) -> None:
    """As a trainer does that was killed after an alarm, and resumes to go back."""
    model = Model()
    switch = LoopSwitch(path, keeps=[model])
    switch.is_second(0)
    switch.is_second(125)
    assert [switch.report(step, 0.2) for step in (200, 300, 400)] == [None, None, 125]
    assert switch.is_second(400)  # the next switch is at 250
    assert not switch.is_second(125)
    assert switch.is_second(250)
    assert [switch.report(step, 0.2) for step in (300, 400, 500)] == [None, None, 250]


def test_without_a_policy_it_switches_at_a_quarter_and_says_what_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, said: Said
) -> None:
    monkeypatch.chdir(tmp_path)
    found = train(LoopSwitch(total_steps=W, clock=lambda: 0.0), lambda _: 0.9)
    assert found == ([250], [], list(range(250, W)))
    assert not LoopSwitch(total_steps=W, keeps=[Model()]).is_second(0)
    LoopSwitch(total_steps=W, is_chief=False).is_second(0)
    said(*caplog.messages)
    assert list(tmp_path.iterdir()) == []  # nothing to record it beside


def test_without_a_policy_its_own_tests_send_it_back(caplog: pytest.LogCaptureFixture) -> None:
    switch = LoopSwitch(total_steps=W)
    saved, went_back, second = train(switch, lambda _: 0.2)
    assert (saved, [back for _, back in went_back]) == ([250, 500], [250, 500])
    tried = (range(back, alarm) for alarm, back in went_back)
    assert second == [step for steps in tried for step in steps]
    assert "has not recovered" in switch.events[0].reason
    of_loss = LoopSwitch(total_steps=W, metric_goal="min", metric_name="loss")
    assert of_loss.switch_step == 250
    of_loss.saves_at(250)
    assert of_loss.report(300, NAN) == 250


def test_without_a_policy_its_user_says_when_or_is_told_that_nothing_switches(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert train(LoopSwitch(total_steps=W, switch_at=100), lambda _: 0.2) == ([], [], [])
    assert LoopSwitch(total_steps=W, switch_at=10).switch_step == 100
    assert [line[:30] for line in caplog.messages] == ["all steps were made in the fir"]
    assert train(LoopSwitch(), lambda _: 0.2) == ([], [], [])
    _, said = caplog.messages
    assert said.startswith("there is neither a policy nor total_steps, so that all steps are in")


def test_a_loop_without_a_policy_that_is_killed_goes_on_once_its_length_is_known() -> None:
    switch = LoopSwitch(total_steps=W)
    for at in (250, 500):
        switch.saves_at(at)
        assert switch.report(at + 100, NAN) == at
    again = LoopSwitch()
    assert again.may_go_back
    again.load_state_dict(json.loads(json.dumps(switch.state_dict())))
    again.set_length(W, "")
    assert (again.switch_step, again.may_go_back) == (None, False)
    assert switch.state_dict()["use_id"] == again.state_dict()["use_id"]


def test_what_contradicts_itself_without_a_policy_is_one_line(said: Said) -> None:
    options: dict[str, Any]
    code: ErrorCode
    for code, options in (
        ("parameters-conflict", {"policy": "job.json", "switch_at": 5}),
        ("parameter-invalid", {"total_steps": W, "switch_at": 101}),
        ("parameter-invalid", {"metric_goal": "less"}),
        ("parameter-missing", {"metric_name": "val_loss"}),
    ):
        said.refusal(code, LoopSwitch, **options)
    said.refusal("parameter-missing", LoopSwitch(total_steps=W).report, 100, 2.5)


def seconds_of(switch_at: float | None, second_way: Callable[[int], float], **options: Any) -> None:
    """A loop that takes a second for each step of the first way, half of one for the others."""
    now = 0.0
    switch = LoopSwitch(clock=lambda: now, switch_at=switch_at, **options)
    step, began = 0, W
    while step < W:
        if switch.saves_at(step):
            began = step
        now += 0.5 if switch.is_second(step) else 1.0
        step += 1
        if step % 50 == 0:
            accuracy = second_way(began) if began < step else min(0.9, step / 500)
            if (back := switch.report(step, accuracy)) is not None:
                step, began = back, W


def test_at_its_end_it_says_whether_the_switch_held_and_what_time_it_took(
    caplog: pytest.LogCaptureFixture, said: Said, tmp_path: Path
) -> None:
    own = {"total_steps": W}
    seconds_of(50, lambda _: 0.9, **own)  # holds
    seconds_of(50, lambda _: 0.2, **own)  # fails
    seconds_of(20, lambda began: 0.9 if began > 200 else NAN, **own)
    seconds_of(0, lambda _: 0.9, **own)
    seconds_of(100, lambda _: NAN, **own)
    seconds_of(None, lambda _: 0.9, policy=written(tmp_path / "job.json"))
    seconds_of(None, lambda _: 0.1, policy=written(tmp_path / "other.json"))
    said(*caplog.messages)


def test_what_cannot_be_recorded_costs_no_model(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.with_name("job.uses.jsonl").mkdir()
    assert train(LoopSwitch(path), lambda _: 0.9)[1] == []
    assert "It is not recorded: cannot write the file" in caplog.messages[-1]


@pytest.mark.parametrize(
    ("start", "least"),
    [(0.9, 0.05), (0.5, 0.05), (0.02, 0.65), (0.004, 0.69)],  # the last ones fall slowly
)
def test_a_loss_that_is_taken_for_an_accuracy_sends_nothing_back_and_is_told(
    start: float, least: float, caplog: pytest.LogCaptureFixture
) -> None:
    switch, made = LoopSwitch(total_steps=W, switch_at=50, keeps=[Model()]), 0
    for step in range(1, W + 1):
        switch.is_second(step - 1)
        if step % 50 == 0:
            assert switch.report(step, least + start * math.exp(-step / 300)) is None
            made += 1
    told, end = caplog.messages
    assert "accuracy has only fallen in the first way, from " in told
    assert "give metric_goal='min'" in told
    assert end.startswith("nothing shows whether the switch at 50 % held")
    # What is no number is noticed even so.
    again = LoopSwitch(total_steps=W, switch_at=50, keeps=[Model()])
    for step in range(0, W, 50):
        again.is_second(step)
        if step > 600:
            assert again.report(step, NAN) == 500
            break
        again.report(step, least + start * math.exp(-step / 300))
    assert switch.events == ()


@pytest.mark.parametrize(
    "curve",
    [
        lambda step: min(0.9, step / 400),  # learns
        lambda step: 0.9 + 0.01 * math.sin(step),  # is learnt already
        lambda step: 0.6 if step == 100 else 0.5 + step / 2000,  # begins by luck
        lambda step: 0.9 - step / 50_000 + 0.003 * (-1) ** (step // 50),  # overfits a little
    ],
)
def test_an_accuracy_that_falls_after_the_switch_alone_goes_back(
    curve: Callable[[int], float], caplog: pytest.LogCaptureFixture
) -> None:
    switch = LoopSwitch(total_steps=W, switch_at=50, keeps=[Model()])
    backs = []
    for step in range(1, W + 1):
        is_second = switch.is_second(step - 1)
        if step % 50 == 0:
            backs.append(switch.report(step, curve(step) - 0.4 * is_second))
    assert 500 in backs
    assert "only fallen" not in caplog.text


@pytest.mark.parametrize(
    ("every", "switch_at", "told"),
    [
        (50, 50, None),
        (20, 12.5, None),
        (200, 50, "with a test about every 200 steps nothing shows whether the switch at step 500"),
        (600, 50, "without a test so far nothing shows whether the switch at step 500 fails: test"),
        (2 * W, 10, "without a test so far nothing shows whether the switch at step 100 fails: t"),
        (2 * W, 50, "without a test so far nothing shows whether the switch at step 500 fails: t"),
        (2 * W, 100, None),
    ],
)
def test_tests_that_are_too_rare_for_the_guard_are_told_by_the_switch(
    every: int, switch_at: float, told: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    switch = LoopSwitch(total_steps=W, switch_at=switch_at, keeps=[Model()])
    others = LoopSwitch(total_steps=W, switch_at=switch_at, is_chief=False)
    for step in range(1, W + 1):
        switch.is_second(step - 1)
        others.is_second(step - 1)
        if step % every == 0:
            assert switch.report(step, step / W) is None
        if step == max(switch_at * W / 100, W / 4) + 1:
            assert [told is not None and told in line for line in caplog.messages] == (
                [] if told is None else [True]
            )
    held = [line for line in caplog.messages if line.startswith("the switch at")]
    assert len(held) == (every <= 50)
    caplog.clear()
    del switch, others
    untested = "its 1,000 steps, and the model was not tested after the last one: nothing shows"
    assert [untested in line for line in caplog.messages] == ([True] if W % every else [])


def test_a_loop_that_ends_before_its_last_step_says_nothing_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    switch = LoopSwitch(total_steps=W, switch_at=50, keeps=[Model()])
    for step in range(300):
        switch.is_second(step)
    del switch
    assert caplog.messages == []
