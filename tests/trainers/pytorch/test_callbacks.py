"""Both callbacks with the real libraries: two processes, DDP and Gloo, on the CPU.

Each library is started once, and again after the kill. CONTRIBUTING.md says how to run them.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.records import changed
from tests.storage.conftest import IDENTITY
from tests.trainers.policies import level_band, policy_file

pytest.importorskip("torch", reason="needs PyTorch, which is in the extras lightning, transformers")
from tests.trainers.pytorch import problem

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
SWITCH = 10
POLICIES = {"from_start": 0.0}
"""The others switch at 12.5 %."""

Result = dict[str, Any]
Seen = Callable[[str], tuple[Result, Result]]


def write(path: Path, percent: float) -> None:
    identity = changed(IDENTITY, total_worker_steps=problem.STEPS, workers=1)
    steps = range(problem.TEST_EVERY, problem.STEPS + 1, problem.TEST_EVERY)
    # What the first way reaches: the error of the best weight.
    band = level_band(problem.score(0.7805), steps)
    policy_file(path, identity, switch_percent=percent, band=band)


def run_both(folder: Path, library: str) -> list[int]:
    """Two processes to their end; their exit codes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = []
    for rank in range(2):
        environment = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": "2",
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": str(ROOT),
        }
        program = f"tests.trainers.pytorch.{library}_program"
        command = [sys.executable, "-m", program, str(folder)]
        with (folder / f"output-{rank}.txt").open("a") as out:
            given: Any = {"stdout": out, "stderr": out, "env": {**os.environ, **environment}}
            processes.append(subprocess.Popen(command, cwd=folder, **given))
    return [process.wait() for process in processes]


@pytest.fixture(scope="module", params=["lightning", "transformers"])
def played(
    request: pytest.FixtureRequest, once: Callable[[str, Callable[[Path], None]], Path]
) -> Path:
    """Folder with all that the processes have seen."""
    library: str = request.param
    pytest.importorskip(library, reason=f"needs the extra {library}")

    def play(folder: Path) -> None:
        names = "good few_tests unaveraged diverging later from_start in_epoch epochs mixed"
        names += " stopped killed"
        for name in names.split():
            write(folder / f"{name}.json", POLICIES.get(name, 12.5))
        killed, ended = run_both(folder, library), run_both(folder, library)
        last = (folder / "output-0.txt").read_text()[-2000:]
        assert killed == [-signal.SIGKILL] * 2, last
        assert ended == [0, 0], last

    return once(f"played_{library}", play)


@pytest.fixture
def seen(played: Path) -> Seen:
    """What both processes saw of a scenario."""

    def read(name: str) -> tuple[Result, Result]:
        first, second = (json.loads((played / f"{name}-{r}.json").read_text()) for r in range(2))
        return first, second

    return read


def recorded(played: Path, name: str) -> dict[str, Any]:
    """The one run of a policy's waiting file."""
    (line,) = (played / f"{name}.uses.jsonl").read_text().splitlines()
    return dict(json.loads(line)["record"])


def failed(played: Path, name: str) -> list[tuple[float, int]]:
    guard = recorded(played, name)["guard"]
    return [(one["switch_percent"], one["worker_step"]) for one in guard["failed"]]


def steps_of_evaluations(record: dict[str, Any]) -> list[int]:
    return [one["worker_step"] for one in record["evaluations"]]


def steps_of(result: Result) -> list[int]:
    return [step for step, _, _ in result["trace"]]


def reference(library: str, second: range) -> list[tuple[float, float]]:
    """The weights of both processes after each step, by hand."""
    weights, speeds, momentum = [0.0, 0.0], [0.0, 0.0], 0.5 if library == "lightning" else 0.0
    found, local_steps = [], 0
    for done in range(problem.STEPS):
        left = 1 - done / problem.STEPS
        rate = 0.1 * (0.99**done if library == "lightning" else left)
        slopes = [2 * x * (w * x - y) for w, (x, y) in zip(weights, problem.POINTS, strict=True)]
        if done not in second:
            slopes = [sum(slopes) / 2] * 2
        speeds = [momentum * speed + slope for speed, slope in zip(speeds, slopes, strict=True)]
        weights = [w - rate * speed for w, speed in zip(weights, speeds, strict=True)]
        found.append((weights[0], weights[1]))
        # Averages of the period, and before checkpoints and tests, from which it counts anew.
        local_steps = local_steps + 1 if done in second else 0
        if local_steps == problem.PERIOD or (local_steps and (done + 1) % 5 == 0):
            weights, speeds = [sum(weights) / 2] * 2, [sum(speeds) / 2] * 2
            local_steps = 0
    return found


def library_of(played: Path) -> str:
    return played.name.removeprefix("played_")


def test_the_first_way_alone_is_what_it_should_be_and_the_same_where_it_is_asked_for(
    seen: Seen, played: Path
) -> None:
    expected = reference(library_of(played), range(0))
    for rank, (alone, asked) in enumerate(zip(seen("alone"), seen("first_alone"), strict=True)):
        assert (asked["trace"], asked["end"]) == (alone["trace"], alone["end"])
        assert steps_of(alone) == list(range(1, problem.STEPS + 1))
        found = [weight for _, weight, _ in alone["trace"]]
        assert found == pytest.approx([both[rank] for both in expected], rel=1e-4)


def test_both_processes_switch_at_the_step_and_average_their_models(
    seen: Seen, played: Path
) -> None:
    library = library_of(played)
    expected = reference(library, range(SWITCH, problem.STEPS))
    results = seen("good")
    for rank, result in enumerate(results):
        assert steps_of(result) == list(range(1, problem.STEPS + 1))
        found = [weight for _, weight, _ in result["trace"]]
        wanted = [both[rank] for both in expected]
        if library == "lightning":
            # It shows a step when the callback has averaged, the other one before.
            for step in range(SWITCH + problem.PERIOD, problem.STEPS + 1, 5):
                wanted[step - 1] = sum(expected[step - 1]) / 2
        assert found == pytest.approx(wanted, rel=1e-4)
    one, other = results
    assert one["trace"][SWITCH - 1][1] == other["trace"][SWITCH - 1][1]
    assert one["trace"][SWITCH][1] != other["trace"][SWITCH][1]
    assert one["end"] == other["end"] == pytest.approx(sum(expected[-1]) / 2, rel=1e-4)
    assert one["left"] == []
    # What is saved in the second way is the mean of both.
    steps = zip(one["trace"], other["trace"], strict=True)
    means = {step: (weight + its) / 2 for (step, weight, _), (_, its, _) in steps}
    assert one["saved"]
    for name, saved in one["saved"].items():
        assert saved == pytest.approx(means[int(name.removeprefix("step="))], rel=1e-5)


def test_without_a_policy_it_switches_at_a_quarter_and_is_guarded_by_its_own_tests(
    seen: Seen, played: Path
) -> None:
    one, other = seen("unmeasured")
    differ = [a[0] for a, b in zip(one["trace"], other["trace"], strict=True) if a[1] != b[1]]
    assert differ[0] == problem.STEPS // 4 + 1
    assert one["end"] == other["end"]
    for alone, result in zip(seen("alone"), seen("unmeasured_failing"), strict=True):
        assert steps_of(result).count(problem.STEPS // 4 + 1) == 2
        assert (result["step"], result["end"], result["left"]) == (80, alone["end"], [])
    # Rank 0 says it.
    said = "this run switches to the second way at 25 %"
    texts = [(played / f"output-{rank}.txt").read_text() for rank in range(2)]
    assert [text.count(said) > 0 for text in texts] == [True, False]


def test_a_good_run_is_recorded_with_all_its_tests(played: Path) -> None:
    record = recorded(played, "good")
    assert record["spec"]["seed"] == 7
    assert record["guard"] == {"held_percent": 12.5, "failed": []}
    assert steps_of_evaluations(record) == list(range(10, 81, 10))
    parts = [(one["start_worker_step"], one["end_worker_step"]) for one in record["phases"]]
    assert parts == [(0, SWITCH), (SWITCH, problem.STEPS)]
    # The model is tested after the last step.
    tests = steps_of_evaluations(recorded(played, "few_tests"))
    assert tests == ([30, 60, 80] if library_of(played) == "lightning" else [80])


def test_without_checkpoints_of_its_own_none_is_left(seen: Seen, played: Path) -> None:
    if library_of(played) == "transformers":  # with save_strategy="no"
        assert [one["saved"] for one in seen("few_tests")] == [{}, {}]


@pytest.mark.parametrize("name", ["diverging", "unaveraged", "in_epoch", "epochs", "from_start"])
def test_a_switch_that_fails_ends_as_the_first_way_alone(
    name: str, seen: Seen, played: Path
) -> None:
    """Bit for bit; the data of each step are the same here."""
    found = failed(played, name)
    switches = [math.floor(percent * problem.STEPS / 100 + 0.5) for percent, _ in found]
    assert switches == [*([0, 1, 3, 5] if name == "from_start" else []), SWITCH, 20, 40]
    assert recorded(played, name)["guard"]["held_percent"] == 100
    expected, start = [], 0
    for (_, alarm), switch in zip(found, switches, strict=True):
        expected += range(start + 1, alarm + 1)
        start = switch
    expected += range(start + 1, problem.STEPS + 1)
    for alone, result in zip(seen("alone"), seen(name), strict=True):
        assert steps_of(result) == expected
        assert result["step"] == problem.STEPS
        last = {step: weight for step, weight, _ in result["trace"]}
        assert last == {step: weight for step, weight, _ in alone["trace"]}
        assert result["end"] == alone["end"]
        assert result["left"] == []


def test_going_back_restores_the_order_of_the_data(seen: Seen, played: Path) -> None:
    assert [percent for percent, _ in failed(played, "mixed")] == [12.5, 25, 50]
    for alone, result in zip(seen("mixed_alone"), seen("mixed"), strict=True):
        last = {step: (weight, data) for step, weight, data in result["trace"]}
        assert last == {step: (weight, data) for step, weight, data in alone["trace"]}


def test_a_later_switch_holds(seen: Seen, played: Path) -> None:
    assert failed(played, "later") == [(12.5, 40), (25.0, 50)]
    assert recorded(played, "later")["guard"]["held_percent"] == 50
    assert steps_of_evaluations(recorded(played, "later")) == list(range(10, 81, 10))
    for result in seen("later"):
        assert steps_of(result)[-60:] == list(range(21, 81))


def test_a_training_that_is_killed_goes_on_from_the_librarys_own_checkpoint(
    seen: Seen, played: Path
) -> None:
    for whole, result in zip(seen("later"), seen("killed"), strict=True):
        # From the newest checkpoint, or from that with the highest step.
        assert steps_of(result)[0] in (31, 36)
        assert result["trace"][-60:] == whole["trace"][-60:]
        assert result["end"] == whole["end"]
        assert result["left"] == []
    assert [percent for percent, _ in failed(played, "killed")] == [12.5, 25]
    assert recorded(played, "killed")["guard"]["held_percent"] == 50


def test_one_that_is_killed_between_an_alarm_and_going_back_goes_back(
    seen: Seen, played: Path
) -> None:
    assert [steps_of(one)[-1] for one in seen("stopped")] == [40, 40]
    for alone, result in zip(seen("alone"), seen("goes_on"), strict=True):
        assert SWITCH + 1 in steps_of(result)[:2]
        assert result["end"] == alone["end"]
    assert failed(played, "stopped")[0] == (12.5, 40)


def test_whoever_started_the_script_says_when_and_gets_the_tests(seen: Seen, played: Path) -> None:
    one, other = seen("told")
    differ = [a[0] for a, b in zip(one["trace"], other["trace"], strict=True) if a[1] != b[1]]
    assert differ[0] == 21
    lines = [json.loads(line) for line in (played / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(10, 81, 10))
    assert all(line["seconds"] > 0 and 0 < line["accuracy"] < 1 for line in lines)
    assert one["left"] == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_fit", "instead of trainer."),
        ("no_callback", "Trainer(callbacks=[switch])"),
        ("no_goal", "nothing says whether more of "),
        ("other_steps", "the policy is for 80 steps, and the trainer makes 70; train with max"),
        ("other_metric", "accuracy' among what was measured: "),
        ("other_hook", "has one already"),
        ("model_alone", "save_only_model"),
        ("early_stopping", "may end the training before the three evaluations"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(
    name: str, words: str, seen: Seen, played: Path
) -> None:
    if name == "model_alone" and library_of(played) == "lightning":
        return
    for result in seen(name):
        assert words in result["error"]
        assert "\n" not in result["error"]


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("lightning", "transformers"):
        name = f"syncswitch.trainers.pytorch.{library}"
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setitem(sys.modules, library, None)
        monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
        with pytest.raises(ImportError, match=rf"pip install 'syncswitch\[{library}\]'"):
            importlib.import_module(name)
