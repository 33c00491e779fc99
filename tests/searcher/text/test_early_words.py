"""What is said of a search before it costs anything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from syncswitch.searcher.strategies.adaptive.strategy import AdaptiveStrategy
from syncswitch.searcher.text.early_words import too_short
from tests.identities import GENERATED


@pytest.mark.parametrize(
    ("worker_steps", "workers", "settings", "expected"),
    [
        (3000, 4, 5, None),
        (128, 4, 5, None),
        (64, 4, 5, "3.125 and 6.25 % of this job's 64 worker-steps are one switch, after 4, as a"),
        (64, 4, 4, None),
        (1000, 16, 8, "0.390625 and 0.78125 and 1.5625 % of this job's 1,000 worker-steps are one"),
        (64, 1, 5, None),
    ],
)
def test_switch_points_of_a_short_job(
    worker_steps: int, workers: int, settings: int, expected: str | None
) -> None:
    job = replace(GENERATED, total_worker_steps=worker_steps, workers=workers)
    strategy = AdaptiveStrategy(settings=settings)
    found = too_short(job, strategy)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert found.startswith(expected)
