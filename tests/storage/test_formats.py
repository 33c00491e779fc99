"""What becomes of a version that is stated, or is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from syncswitch.storage import formats
from syncswitch.storage.database.inspection import FORMER_REVISIONS, REVISION
from syncswitch.storage.errors import TooNewError
from syncswitch.storage.formats import Format


def test_all_versions_up_to_ours_are_read_and_one_that_is_not_stated_is_the_first() -> None:
    assert [Format(3).check(stated, "it") for stated in (None, 1, 2, 3)] == [1, 1, 2, 3]


def test_a_later_one_is_one_line_that_says_what_to_do() -> None:
    with pytest.raises(TooNewError) as caught:
        Format(2).check(3, "the plan /p.json")
    assert str(caught.value) == (
        "the plan /p.json was written by a newer syncswitch: its schema version is 3;"
        " allowed: 1 to 2; update syncswitch"
    )


@pytest.mark.parametrize("stated", [0, -1, True, "1", 1.0, [1]])
def test_what_is_no_version_is_not_taken_for_one(stated: object) -> None:
    with pytest.raises(ValueError, match="schema_version is"):
        Format(2).check(stated, "it")


def test_the_page_for_users_states_the_version_of_each() -> None:
    page = (Path(__file__).parents[2] / "docs/formats.md").read_text()
    stated = re.findall(r"^\| ([^|]+) \| (\d+) \|", page, re.MULTILINE)
    ours = [one.version for one in vars(formats).values() if isinstance(one, Format)]
    assert [int(version) for _, version in stated] == [
        *(one.version for one in (formats.POLICY, formats.USE, formats.PLAN)),
        *(one.version for one in (formats.LOOP_EVENT, formats.CHECKPOINT, formats.LOOP_STATE)),
    ]
    assert len(stated) == len(ours)
    first, *_, last = FORMER_REVISIONS
    assert f"| database | revision {REVISION} |" in page
    assert f"revisions {first} to {last} are updated when opened" in page
