"""Any training command of the user's, as a trainer: started, read while it runs, ended."""

from __future__ import annotations

from pathlib import Path

DEFAULT_FOLDER = Path("syncswitch-runs")
"""In the working folder."""

DEFAULT_METRIC_FILE = "{output_dir}/metrics.jsonl"

DEFAULT_SILENCE_SECONDS = 3600.0
