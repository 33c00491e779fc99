from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncswitch.storage.errors import UserError
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.command.template import (
    PLACEHOLDERS,
    CommandTemplate,
    environment_of,
    run_values,
)
from tests.trainers.command.test_report_log import IDENTITY

VALUES = run_values(TrialSpec(IDENTITY, 12.5, seed=7, replicate=2), Path("/a folder"))


def test_placeholders_are_filled_after_the_words_are_split() -> None:
    template = CommandTemplate.parse(
        "torchrun 'my train.py' --at={switch_step}/{total_steps} {switch_percent} {output_dir}"
    )
    assert template.filled(VALUES) == (
        "torchrun",
        "my train.py",
        "--at=13/100",
        "12.5",
        "/a folder",
    )


def test_every_placeholder_is_in_the_environment_too() -> None:
    assert set(VALUES) == set(PLACEHOLDERS)
    environment = environment_of(VALUES)
    assert environment["SYNCSWITCH_SWITCH_STEP"] == "13"
    assert environment["SYNCSWITCH_OUTPUT_DIR"] == "/a folder"
    assert (environment["SYNCSWITCH_SEED"], environment["SYNCSWITCH_REPLICATE"]) == ("7", "2")


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--command is empty"),
        ("  ", "--command is empty"),
        ("'' x", "--command is empty"),
        ("train 'x", "cannot be split into words: No closing quotation"),
        ("train {switch}", r"there is no placeholder \{switch\}; known: \{switch_percent\}"),
        ("train {}", r"there is no placeholder \{\}"),
        ("train {switch_step:03d}", "there is no placeholder"),
        ("train {switch_step!r}", "there is no placeholder"),
        ("train '{\"a\": 1}'", "there is no placeholder"),
        ("train }", "a brace stands alone"),
        ("{output_dir}/train", "the program itself is the same for every run"),
    ],
)
def test_what_is_no_command_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        CommandTemplate.parse(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("torchrun --nproc-per-node 2 runs/train.py {switch_step}", "train"),
        ("sbatch --wait job.sbatch", "job"),
        ("/usr/bin/train --at {switch_step}", "train"),
    ],
)
def test_the_name_is_that_of_the_script(text: str, name: str) -> None:
    assert CommandTemplate.parse(text).default_name == name


def test_where_the_program_lies_makes_no_other_job() -> None:
    here, there = CommandTemplate.parse("/a/train {seed}"), CommandTemplate.parse("/b/train {seed}")
    assert here.what == there.what != CommandTemplate.parse("train {replicate}").what
