"""Any training command as a trainer, and the functions that a training script may import.

Importing them is cheap, as they need the standard library alone:

```
from syncswitch.trainers.command import report, switch_step
```
"""

from __future__ import annotations

from pathlib import Path

from syncswitch.trainers.command.script import output_dir, report, seed, switch_step

DEFAULT_FOLDER = Path("syncswitch-runs")
"""Folder of all runs, within the working folder."""

DEFAULT_METRIC_FILE = "{output_dir}/metrics.jsonl"

DEFAULT_SILENCE_SECONDS = 3600.0

__all__ = [
    "DEFAULT_FOLDER",
    "DEFAULT_METRIC_FILE",
    "DEFAULT_SILENCE_SECONDS",
    "output_dir",
    "report",
    "seed",
    "switch_step",
]
