"""From what a run leaves behind to its record."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from syncswitch.storage.records.trial import Evaluation, TrialSpec
from syncswitch.trainers.run.record import trial_record
from tests.storage.conftest import IDENTITY

NOW = datetime.now(timezone.utc)
TESTS = tuple(
    Evaluation(step, step / 10, accuracy, 0.1)
    for step, accuracy in zip(range(550, 900, 50), (0.1, 0.6, 0.7, 0.7, 0.7, 0.7, 0.7), strict=True)
)


def test_a_fork_converges_to_the_mean_of_five_tests_inherited_ones_included() -> None:
    whole = TrialSpec(IDENTITY, 100.0, seed=1)
    fork = replace(whole, inherited_evaluations=TESTS[:5])
    own = TESTS[5:]
    result: dict[str, Any] = {
        "worker_steps": 850,
        "evaluations": own,
        "phases": (),
        "stopped_early": True,
        "training_seconds": 85.0,
        "inherited_seconds": 75.0,
    }
    record = trial_record(fork, NOW, **result)
    assert record.evaluations == own
    assert record.converged_accuracy == pytest.approx(0.7)
    assert record.converged
    fewer = trial_record(replace(fork, inherited_evaluations=TESTS[1:3]), NOW, **result)
    assert fewer.converged_accuracy == pytest.approx((0.6 + 3 * 0.7) / 4)
    assert not fewer.converged
