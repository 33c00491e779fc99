"""A command with placeholders, the job that it makes, and what its script may import."""

from __future__ import annotations

import json
import math
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.command import output_dir, report, seed, switch_step
from syncswitch.trainers.command.job import (
    PLACEHOLDERS,
    CommandJob,
    CommandTemplate,
    command_with_policy,
    environment_of,
    run_values,
)
from syncswitch.trainers.command.reports import parse_json
from tests.trainers.command.test_reports import IDENTITY
from tests.wording import Said

VALUES = run_values(TrialSpec(IDENTITY, 12.5, seed=7, replicate=2), Path("/a folder"))


def test_placeholders_are_filled_after_the_words_are_split() -> None:
    text = "torchrun 'my train.py' --at={switch_step}/{total_steps} {switch_percent} {output_dir}"
    words = ("torchrun", "my train.py", "--at=13/100", "12.5", "/a folder")
    assert CommandTemplate.parse(text).filled(VALUES) == words
    assert set(VALUES) == set(PLACEHOLDERS)
    environment = environment_of(VALUES)
    found = [environment[f"SYNCSWITCH_{name}"] for name in ("SWITCH_STEP", "OUTPUT_DIR", "SEED")]
    assert found == ["13", "/a folder", "7"]


@given(st.text(st.characters(exclude_characters="\0"), min_size=1))
def test_doubled_braces_are_braces(text: str) -> None:
    braced = text.replace("{", "{{").replace("}", "}}")
    template = CommandTemplate.parse(f"train {shlex.quote(braced)}")
    assert template.filled(VALUES) == ("train", text)
    assert not template.names_switch


@given(st.text())
def test_whatever_is_given_is_a_command_or_refused_in_one_line(text: str) -> None:
    with suppress(UserError):
        assert CommandTemplate.parse(text).filled(VALUES)[0]


def test_what_is_no_command_is_refused(said: Said) -> None:
    for text in (
        "",
        "  ",
        "'' x",
        "train 'x",
        "train {switch}",
        "train {}",
        "train {switch_step:03d}",
        "train {switch_step!r}",
        "train '{\"a\": 1}'",
        "train }",
        "{output_dir}/train",
    ):
        said.refusal("parameter-invalid", CommandTemplate.parse, text)


def test_the_name_is_that_of_the_script_or_of_the_program() -> None:
    for text, name in (
        ("torchrun --nproc-per-node 2 runs/train.py {switch_step}", "train"),
        ("sbatch --wait job.sbatch", "job"),
        ("/usr/bin/train --at {switch_step}", "train"),
    ):
        assert CommandTemplate.parse(text).default_name == name


TEXT = "python3 train.py --at {switch_step} --seed {seed} --out {output_dir}/x '--json={{}}'"
JOB = CommandJob(CommandTemplate.parse(TEXT), "train", 1000)


def test_what_cannot_be_run_is_refused(said: Said) -> None:
    for fields in (
        {"name": ""},
        {"name": "ж" * 101},
        *(
            {"name": name}
            for name in ("../../x", "/x", "a/b", ".", ".x", "a\0", "\udc80", "\x1b[2J", "x@current")
        ),
        {"name": " x"},
        {"total_steps": 1},
        {"timeout_seconds": 0.0},
        {"silence_seconds": float("nan")},
        {"metric_file": "metrics.jsonl"},
        {"metric_file": "{output_dir}/../m"},
        {"metric_file": "{output_dir}/"},
        {"metric_file": "{output_dir}/{epoch}"},
        {"metric_pattern": "x"},
        {"template": CommandTemplate(("./nowhere",))},
    ):
        said.refusal("parameter-invalid", replace, JOB, **fields)


@pytest.mark.parametrize(
    ("fields", "is_same"),
    [
        ({"name": "other"}, False),
        ({"total_steps": 999}, False),
        ({"workers": 2}, False),
        ({"protocols": ("ddp", "local-sgd")}, True),
        ({"template": CommandTemplate.parse("python3 train.py")}, False),
        ({"template": CommandTemplate.parse(f"{shutil.which('python3')}{TEXT[7:]}")}, True),
        ({"metric_pattern": "(?P<step>.)(?P<accuracy>.)"}, True),
        ({"metric_file": "{output_dir}/other"}, True),
        ({"timeout_seconds": 5.0}, True),
        ({"output_folder": Path("/elsewhere")}, True),
    ],
)
def test_what_is_declared_makes_another_job_and_how_it_is_read_does_not(
    fields: dict[str, Any], is_same: bool
) -> None:
    changed = replace(JOB, **fields).identity
    assert (changed.fingerprint == JOB.identity.fingerprint) == is_same


def test_the_policy_is_filled_in_with_a_folder_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{JOB.runs_folder.name}-1").mkdir()
    folder = f"{JOB.runs_folder.name}-2"
    words = f"python3 train.py --at 125 --seed 0 --out {folder}/x '--json={{}}'"
    assert command_with_policy(JOB, 12.5) == f"mkdir {folder} && {words}"
    # The environment says it where the command does not.
    job = replace(JOB, template=CommandTemplate.parse("python3 train.py"), name="-my job")
    folder = f"{job.runs_folder.name.removeprefix('-')}-1"
    assert folder.startswith("my-job-")
    assert command_with_policy(job, 12.5) == (
        f"mkdir {folder} && SYNCSWITCH_OUTPUT_DIR={folder} SYNCSWITCH_SEED=0"
        " SYNCSWITCH_SWITCH_PERCENT=12.5 SYNCSWITCH_SWITCH_STEP=125 python3 train.py"
    )


def test_what_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SYNCSWITCH_SWITCH_STEP", "0")
    monkeypatch.setenv("SYNCSWITCH_SEED", "7")
    monkeypatch.setenv("SYNCSWITCH_OUTPUT_DIR", str(tmp_path))
    assert (switch_step(5), seed(1), output_dir()) == (0, 7, tmp_path)


def test_a_script_on_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (switch_step(5), seed(), output_dir("runs")) == (5, 0, Path("runs"))
    report(100, 0.5)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(LookupError, match="set SYNCSWITCH_SWITCH_STEP, or call switch_step"):
        switch_step()


def test_reports_are_lines_that_the_trainer_reads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SYNCSWITCH_OUTPUT_DIR", str(tmp_path))
    report(0, 0.1)
    report(100, 0.5, seconds=2, loss=0.7)
    report(150, val_loss=0.7, f1=0.5)
    report(175, np.float32(0.5), grad_norm=math.inf, scale=math.nan)
    report(np.int64(200), math.nan, seconds=4)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines[:3]] == [
        {"step": 0, "accuracy": 0.1},
        {"step": 100, "accuracy": 0.5, "seconds": 2.0, "loss": 0.7},
        {"step": 150, "val_loss": 0.7, "f1": 0.5},
    ]
    # As in the file, only the metric and the loss tell that it diverged.
    found = [parse_json(line) for line in lines]
    assert [one is not None and one.diverged for one in found] == [False] * 4 + [True]


def test_it_is_light() -> None:
    code = (
        "import sys; from syncswitch.trainers.command import report;"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"tensorflow", "keras", "numpy", "click"} & set(done.stdout.split())
