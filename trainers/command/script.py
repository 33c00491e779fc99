"""Functions with which a training script asks and tells; standard library only, fast to import."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

_FILE = "metrics.jsonl"

LOOP_FILE = "loop.jsonl"
"""Beside the plan of a run: what a loop tells that goes back to its switch by itself."""


def switch_step(default: int | None = None) -> int:
    """The step at which this run switches, in steps of the script.

    Args:
        default: Where the script runs on its own; the environment of a run says otherwise.

    Raises:
        LookupError: The script runs on its own, and there is no default.
    """
    return _number("SWITCH_STEP", "switch_step", default)


def seed(default: int = 0) -> int:
    """The seed of this run; the same at all switch points of a replicate."""
    return _number("SEED", "seed", default)


def output_dir(default: str | Path = ".") -> Path:
    """A folder of this run's own."""
    return Path(os.environ.get("SYNCSWITCH_OUTPUT_DIR") or default)


def report(
    step: int,
    accuracy: float | None = None,
    *,
    seconds: float | None = None,
    loss: float | None = None,
    **values: float,
) -> None:
    """Tells how the training does, after each test; step 0 begins its clock.

    Where several processes report, what is said first of a step counts. Nothing is written where
    the script runs on its own.

    Args:
        step: Steps done.
        accuracy: 0 to 1; a NaN ends the run as diverged.
        seconds: Training time so far; None to leave the clock to syncswitch.
        loss: Mean training loss since the last report.
        **values: What else was measured, by name: the metric of `--metric-name`, and others beside
            it.
    """
    if "SYNCSWITCH_OUTPUT_DIR" not in os.environ:
        return
    told = {"accuracy": accuracy, "seconds": seconds, "loss": loss, **values}
    values = {name: float(value) for name, value in told.items() if value is not None}
    line: dict[str, object] = {name: one for name, one in values.items() if math.isfinite(one)}
    if len(line) < len(values):
        line["diverged"] = True
    _append(output_dir() / _FILE, json.dumps({"step": int(step), **line}) + "\n")


def tell_run(plan: Path, **values: Any) -> None:
    """Tells whoever started the run: what happened to it, and at its end its record.

    Args:
        plan: The file that it got.
        **values: As JSON; nothing says that the loop has taken its guard over.
    """
    _append(plan.with_name(LOOP_FILE), json.dumps(values) + "\n" if values else "")


def _append(path: Path, text: str) -> None:
    # In one piece, though others write as well.
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
