from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from typing import Any, get_args

from syncswitch.trainers.job.workload import Momentum
from tests.trainers.jobs import DENSE
from tests.wording import Said

WRONG: dict[str, list[Any]] = {
    "name": ["", "../../x", "a\0", "\udc80", "x@current", None],
    "total_worker_steps": [0, 10.5],
    "batch_size": [0, -4],
    "evaluation_interval_worker_steps": [0],
    "learning_rate": [0.0, -0.1, math.nan, math.inf],
    "momentum": [1.0, -0.1, math.nan],
    "learning_rate_boundaries": [
        ((200, 0.1), (100, 0.01)),
        ((100, 0.1), (100, 0.01)),
        ((0, 0.1),),
        ((100, math.nan),),
    ],
    "batch_after_switch": ["local", 8],
    "momentum_after_switch": ["none", None],
    "momentum_stage_worker_steps": [0, 2.5],
    "largest_scaling": [0, -8, 2.5, "8"],
}


def test_what_makes_no_sense_is_refused(said: Said) -> None:
    for changes in (
        *({field: value} for field, values in WRONG.items() for value in values),
        {"learning_rate": print},
        {"optimizer": print, "momentum_after_switch": "zero"},
        {"momentum_after_switch": "scaled", "momentum_stage_worker_steps": 2_000},
    ):
        said.refusal("workload-unsuitable", replace, DENSE, **changes)


def test_each_momentum_a_schedule_and_the_limits_are_allowed() -> None:
    for variant in get_args(Momentum):
        replace(DENSE, momentum_after_switch=variant, largest_scaling=1)
    replace(DENSE, learning_rate=print, learning_rate_boundaries=())
    replace(DENSE, total_worker_steps=1, batch_size=1, momentum=0.0)


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
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
