from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any, get_args

import pytest

from syncswitch.storage.errors import WorkloadError
from syncswitch.trainers.job.workload import Momentum, Workload
from tests.trainers.jobs import DENSE


class TestFields:
    @pytest.mark.parametrize(
        "changes",
        [
            {"total_worker_steps": 0},
            {"total_worker_steps": 10.5},
            {"batch_size": 0},
            {"batch_size": -4},
            {"evaluation_interval_worker_steps": 0},
            {"learning_rate": 0.0},
            {"learning_rate": -0.1},
            {"learning_rate": float("nan")},
            {"learning_rate": float("inf")},
            {"momentum": 1.0},
            {"momentum": -0.1},
            {"momentum": float("nan")},
            {"learning_rate_boundaries": ((200, 0.1), (100, 0.01))},
            {"learning_rate_boundaries": ((100, 0.1), (100, 0.01))},
            {"learning_rate_boundaries": ((0, 0.1),)},
            pytest.param(
                {"learning_rate_boundaries": ((100, float("nan")),)},
            ),
            {"batch_after_switch": "local"},
            {"batch_after_switch": 8},
            {"momentum_after_switch": "none"},
            {"momentum_after_switch": None},
            {"momentum_stage_worker_steps": 0},
            {"momentum_stage_worker_steps": 2.5},
            {"largest_scaling": 0},
            {"largest_scaling": -8},
            {"largest_scaling": 2.5},
            {"largest_scaling": "8"},
        ],
        ids=str,
    )
    def test_what_makes_no_sense_is_refused(self, changes: dict[str, Any]) -> None:
        with pytest.raises(WorkloadError) as error:
            replace(DENSE, **changes)
        (field,) = changes
        assert field in str(error.value)
        assert "dense-digits" in str(error.value)
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            (
                {"learning_rate": lambda: None},
                ["learning_rate is a schedule", "learning_rate_boundaries"],
            ),
            (
                {"optimizer": lambda: None, "momentum_after_switch": "zero"},
                ["momentum_after_switch", "optimizer"],
            ),
            (
                {"momentum_after_switch": "scaled", "momentum_stage_worker_steps": 2_000},
                ["momentum_stage_worker_steps", "ramped and additive", "scaled"],
            ),
        ],
    )
    def test_fields_that_exclude_each_other_are_refused(
        self, changes: dict[str, Any], words: list[str]
    ) -> None:
        with pytest.raises(WorkloadError) as error:
            replace(DENSE, **changes)
        for word in (*words, "dense-digits"):
            assert word in str(error.value)
        assert "\n" not in str(error.value)

    def test_each_momentum_and_a_schedule_are_allowed(self) -> None:
        for variant in get_args(Momentum):
            assert replace(DENSE, momentum_after_switch=variant, largest_scaling=1)
        assert replace(DENSE, learning_rate=lambda: None, learning_rate_boundaries=())

    def test_the_limits_are_allowed(self) -> None:
        workload = replace(DENSE, total_worker_steps=1, batch_size=1, momentum=0.0)
        assert isinstance(workload, Workload)


def test_describing_a_workload_does_not_import_tensorflow() -> None:
    """So that looking up a policy takes milliseconds and not seconds."""
    code = (
        "import sys\n"
        "import syncswitch.trainers.job.schedule, syncswitch.trainers.trainer\n"
        "from syncswitch.trainers.job.loading import BUILT_IN, load_workload\n"
        "for name in BUILT_IN: load_workload(name)\n"
        "heavy = {'tensorflow', 'keras', 'optuna', 'sqlalchemy'}\n"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert result.stdout.strip() == "[]"
