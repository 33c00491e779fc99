"""`run --dry-run`: a forecast from given times, or from recorded runs of the same job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Invoke
from generated_trainer import ASP_SECONDS, BSP_SECONDS

PAPER = ["--strategy", "paper"]
ANSWERS = [100.0, 50.0, 25.0, 12.5]
TIMES = ["--first-seconds", "100", "--second-seconds", "40"]


def forecast(invoke: Invoke, *arguments: str) -> list[dict[str, float]]:
    done = invoke("run", "any", "--settings", "3", "--dry-run", "--json", *arguments)
    assert done.exit_code == 0, done.stderr
    answers: list[dict[str, float]] = json.loads(done.stdout)
    assert [answer["switch_percent"] for answer in answers] == ANSWERS
    return answers


def test_from_given_times_and_without_a_database(invoke: Invoke, folder: Path) -> None:
    answers = forecast(invoke, *PAPER, "--runs", "2", *TIMES)
    # BSP, 50 % and 25 % accepted, 12.5 % accepted as well: each twice.
    assert answers[-1]["search_cost"] == pytest.approx(2 * (1.0 + 0.7 + 0.55 + 0.475))
    assert answers[-1]["speed_up"] == pytest.approx(1 / 0.475)
    assert list(folder.glob("*.db")) == []


def test_recorded_runs_say_what_given_times_would(invoke: Invoke) -> None:
    assert invoke("run", "any", "--settings", "3", "--runs", "1", *PAPER).exit_code == 0
    assert (BSP_SECONDS, ASP_SECONDS) == (100.0, 40.0)
    for known, given in zip(forecast(invoke), forecast(invoke, *TIMES), strict=True):
        assert known == pytest.approx(given)


@pytest.mark.parametrize(
    ("strategy", "caveat"),
    [
        ("paper", "an unlucky search costs more."),
        ("adaptive", "means over searches on generated accuracies"),
    ],
)
def test_the_table_says_when_it_is_paid_back_and_what_it_assumes(
    invoke: Invoke, folder: Path, strategy: str, caveat: str
) -> None:
    (folder / "train.py").touch()
    job = ["--trainer", "command", "--command", "python train.py", "--total-steps", "20"]
    done = invoke("run", "short", *job, "--dry-run", "--strategy", strategy, *TIMES)
    assert done.exit_code == 0
    assert "3.125 and 6.25 % of this job's 20 worker-steps are one switch, after 1" in done.stderr
    assert "never" in done.stdout
    assert caveat in " ".join(done.stdout.split())
    assert "Nothing was trained." in " ".join(done.stdout.split())
