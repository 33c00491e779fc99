"""Any training command as a trainer; and what its script may import, light as it is.

```
from syncswitch.trainers.command import report, switch_step
```
"""

from __future__ import annotations

from pathlib import Path

from syncswitch.trainers.command.script import output_dir, report, seed, switch_step

DEFAULT_FOLDER = Path("syncswitch-runs")
"""In the working folder."""

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
