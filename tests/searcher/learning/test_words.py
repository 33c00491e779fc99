from __future__ import annotations

import pytest

from syncswitch.searcher.learning.words import uses_sentence, uses_text
from syncswitch.storage.uses.summary import UseSummary


@pytest.mark.parametrize(
    ("uses", "kept", "alarms", "speed_up", "expected"),
    [
        (0, 0, 0, None, "not used yet"),
        (41, 39, 0, 1.43, "used 41 times, 39 kept, 1.43 times as fast"),
        (41, 39, 2, 1.43, "used 41 times, 39 kept, 1.43 times as fast; the guard went back twice"),
        (1, 0, 1, None, "used once, 0 kept; the guard went back once"),
        (1234, 1200, 0, None, "used 1,234 times, 1,200 kept"),
    ],
)
def test_in_a_few_words(
    uses: int, kept: int, alarms: int, speed_up: float | None, expected: str
) -> None:
    summary = UseSummary(uses, kept, alarms, 0, None, speed_up, None)
    assert uses_text(summary) == expected
    assert uses_sentence(summary) == f"{expected[0].upper()}{expected[1:]}."
