"""Any training command as a trainer."""

from __future__ import annotations

from pathlib import Path

DEFAULT_FOLDER = Path("syncswitch-runs")
"""In the working folder."""

DEFAULT_METRIC_FILE = "{output_dir}/metrics.jsonl"

DEFAULT_SILENCE_SECONDS = 3600.0
