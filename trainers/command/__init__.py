"""Any training command as a trainer, and the functions that a training script may import.

Importing them is cheap, as they need the standard library alone:

```
from syncswitch.trainers.command import report, switch_step
```
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from syncswitch.storage.formats import KEY, LOOP_EVENT

__all__ = [
    "DEFAULT_FOLDER",
    "DEFAULT_METRIC_FILE",
    "DEFAULT_SILENCE_SECONDS",
    "output_dir",
    "report",
    "seed",
    "switch_step",
]

DEFAULT_FOLDER = Path("syncswitch-runs")  # folder of all runs, within the working folder
DEFAULT_METRIC_FILE = "{output_dir}/metrics.jsonl"

DEFAULT_SILENCE_SECONDS = 3600.0

_FILE = "metrics.jsonl"

LOOP_FILE = "loop.jsonl"
"""File, in the folder of a run's plan, to which a loop that guards its switch itself reports."""


def switch_step(default: int | None = None) -> int:
    """Returns the step at which this run switches, as the script counts steps.

    Args:
        default: The step to use when the script is not started by syncswitch.

    Raises:
        LookupError: It is not started by syncswitch, and there is no default.
    """
    return _number("SWITCH_STEP", "switch_step", default)


def seed(default: int = 0) -> int:
    """Returns the seed of this run, which is the same at all switch points of a replicate."""
    return _number("SEED", "seed", default)


def output_dir(default: str | Path = ".") -> Path:
    """Returns this run's own folder."""
    return Path(os.environ.get("SYNCSWITCH_OUTPUT_DIR") or default)


def report(
    step: int,
    accuracy: float | None = None,
    *,
    seconds: float | None = None,
    loss: float | None = None,
    **values: float,
) -> None:
    """Reports a test. A report of step 0 starts the clock of the training.

    If several processes report a step, the first report counts. Nothing is written when the script
    is not started by syncswitch.

    Args:
        step: Steps done.
        accuracy: Test accuracy, 0 to 1; NaN ends the run as diverged, as one of the loss or of the
            metric of `--metric-name` does. Other values may be anything.
        seconds: Training time so far; None to use syncswitch's clock.
        loss: Mean training loss since the last report.
        **values: Other measurements by name: the metric of `--metric-name`, and any others.
    """
    if "SYNCSWITCH_OUTPUT_DIR" not in os.environ:
        return
    told = {"accuracy": accuracy, "seconds": seconds, "loss": loss, **values}
    line = {name: float(value) for name, value in told.items() if value is not None}
    _append(output_dir() / _FILE, json.dumps({"step": int(step), **line}) + "\n")


def tell_run(plan: Path, **values: Any) -> None:
    """Reports that a loop guards its switch itself, an event of it, or its results."""
    line = {KEY: LOOP_EVENT.version, **values}
    _append(plan.with_name(LOOP_FILE), json.dumps(line, default=asdict) + "\n" if values else "")


def _append(path: Path, text: str) -> None:
    # In one piece, as other processes may write at the same time.
    with path.open("ab", buffering=0) as file:
        file.write(text.encode())


def _number(name: str, function: str, default: int | None) -> int:
    value = os.environ.get(f"SYNCSWITCH_{name}")
    if value:
        return int(value)
    if default is None:
        raise LookupError(
            f"{function}: this script was not started by syncswitch; set SYNCSWITCH_{name}, or call"
            f" {function}(default)"
        )
    return default
