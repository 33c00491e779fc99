"""`init`: a workload file that trains as it is."""

from __future__ import annotations

import json
from pathlib import Path

from command_line import Invoke, error_line

from syncswitch.trainers.job.loading import load_workload


def test_what_is_written_trains(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "my_job.py"
    result = invoke("init", str(file))
    assert result.exit_code == 0, result.stderr
    assert f"  syncswitch-search run {file}:workload " in result.stdout
    assert "syncswitch-run my_job.py:workload" in file.read_text()
    workload = load_workload(f"{file}:workload")
    assert (workload.name, workload.data_set) == ("my-job", "my-job-1")
    assert (workload.total_worker_steps, workload.evaluation_interval_worker_steps) == (1250, 31)
    simulated = ["--trainer", "simulated", "--profile", "sync-switch-resnet32", "--workers", "2"]
    swept = invoke("sweep", f"{file}:workload", "--at", "100", "--runs", "1", *simulated, "--json")
    assert swept.exit_code == 0, swept.stderr
    (row,) = json.loads(swept.stdout)
    assert row["mean_accuracy"] > 0.9
    again = invoke("init", str(file))
    assert again.exit_code == 2
    assert "already exists" in error_line(again)
