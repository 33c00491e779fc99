"""The manifests for platforms: what they say is right, and starts a cluster that trains."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.private_network import free_ports
from syncswitch.trainers.cluster.processes.tf_config import parse_tf_config
from tests.manifests import read_manifests, tf_configs_of
from tests.program import TINY_WORKLOAD, code
from tests.test_docs import parse
from tests.warm_program import WarmProcess

PLATFORMS = Path(__file__).parents[1] / "examples" / "platforms"
TF_JOB, RAY_JOB, SBATCH = (PLATFORMS / n for n in ("tfjob.yaml", "rayjob.yaml", "train.sbatch"))

# Runs a command once for each task, on "nodes" of this machine, and says whose line is whose.
SRUN = r"""#!/bin/bash
set -o pipefail
label=cat
while [[ $1 == --* ]]; do [[ $1 == --label ]] && label=label; shift; done
label() { sed "s/^/$SLURM_PROCID: /"; }
for ((task = SLURM_NTASKS - 1; task >= 0; task--)); do
    export SLURM_PROCID=$task SLURMD_NODENAME=node$((task / 2))
    "$@" | $label &
    pids+=($!)
done
worst=0
for pid in "${pids[@]}"; do wait "$pid" || worst=$?; done
exit $worst
"""

# Says what it was given; task 4 is killed the first time.
RECORD = r"""#!/bin/bash
echo "$TF_CONFIG" "$SYNCSWITCH_SECRET" > "found-$SLURM_PROCID"
if ((SLURM_PROCID == 4)) && ! [[ -e killed ]]; then touch killed; kill -9 $$; fi
exit "${2:-0}"
"""

Configs = Mapping[tuple[str, int], Mapping[str, Any]]


def sbatch(
    folder: Path, *arguments: str, tasks: int = 6, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs the script as Slurm would, in a job of so many tasks."""
    for name, text in (("srun", SRUN), ("record", RECORD)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return subprocess.run(
        [str(SBATCH), *arguments],
        cwd=folder,
        env={
            "PATH": f"{folder}:{os.environ['PATH']}",
            "SLURM_NTASKS": str(tasks),
            "SLURM_JOB_ID": "123456",
            **(environment or {}),
        },
        capture_output=True,
        text=True,
        timeout=60,
    )


def slurm_configs(folder: Path) -> dict[tuple[str, int], dict[str, Any]]:
    done = sbatch(folder, "record", "x")
    assert done.returncode == 0, done.stderr
    found = {}
    secrets = set()
    for path in folder.glob("found-*"):
        text, secret = path.read_text().rsplit(" ", 1)
        config = json.loads(text)
        found[config["task"]["type"], config["task"]["index"]] = config
        secrets.add(secret)
    assert len(secrets) == 1
    assert re.fullmatch(r"[0-9a-f]{64}\n", secrets.pop())
    return found


def tf_job_configs() -> dict[tuple[str, int], dict[str, Any]]:
    return tf_configs_of(read_manifests(TF_JOB)["TFJob"])


def test_kubeflow_starts_a_cluster_that_we_understand() -> None:
    job = read_manifests(TF_JOB)["TFJob"]
    configs = tf_job_configs()
    assert {role for role, _ in configs} == {"chief", "ps", "worker"}
    for (role, number), config in configs.items():
        read = parse_tf_config(json.dumps(config))
        assert (read.job, read.task, read.workers, read.servers) == (role, number, 4, 2)
    for replicas in job["tfReplicaSpecs"].values():
        (container,) = replicas["template"]["spec"]["containers"]
        parse(*container["command"])
        assert {"SYNCSWITCH_SECRET", "SYNCSWITCH_STORAGE"} == {e["name"] for e in container["env"]}


def test_the_ray_cluster_has_room_for_the_search() -> None:
    job = read_manifests(RAY_JOB)["RayJob"]
    options = parse(*shlex.split(job["entrypoint"])).params
    cluster = job["rayClusterSpec"]
    (group,) = cluster["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    cpus = group["replicas"] * float(group["rayStartParams"]["num-cpus"])
    assert container["resources"]["requests"]["cpu"] == group["rayStartParams"]["num-cpus"]
    needed = options["workers"] * options["cpus_per_worker"]
    needed += options["parameter_servers"] * options["cpus_per_ps"]
    assert options["parallel_runs"] * needed <= cpus
    pinned = (PLATFORMS.parents[1] / "constraints.txt").read_text()
    assert f"\nray=={cluster['rayVersion']}\n" in pinned
    claimed = read_manifests(TF_JOB)["PersistentVolumeClaim"]["name"]
    for pod in (cluster["headGroupSpec"], group):
        (volume,) = pod["template"]["spec"]["volumes"]
        assert volume["persistentVolumeClaim"]["claimName"] == claimed


class TestSlurm:
    def test_each_task_is_a_part(self, tmp_path: Path) -> None:
        configs = slurm_configs(tmp_path)
        assert (tmp_path / "killed").exists(), "and was started again"
        port = 20_000 + 3456
        cluster = {
            "chief": [f"node0:{port}"],
            "ps": [f"node0:{port + 1}", f"node1:{port + 2}"],
            "worker": [f"node1:{port + 3}", f"node2:{port + 4}", f"node2:{port + 5}"],
        }
        parts = {(role, n) for role, all_of_it in cluster.items() for n in range(len(all_of_it))}
        assert configs.keys() == parts
        assert all(config["cluster"] == cluster for config in configs.values())
        for config in configs.values():
            parse_tf_config(json.dumps(config))

    def test_what_a_part_says_itself_is_final(self, tmp_path: Path) -> None:
        assert sbatch(tmp_path, "record", "x", "2").returncode == 2

    @pytest.mark.parametrize(("tasks", "servers"), [(3, "2"), (6, "0")])
    def test_there_has_to_be_one_of_each(self, tmp_path: Path, tasks: int, servers: str) -> None:
        environment = {"PARAMETER_SERVERS": servers}
        done = sbatch(tmp_path, "record", tasks=tasks, environment=environment)
        assert done.returncode == 2
        assert done.stderr == (
            f"--ntasks is {tasks}: give 1, the parameter servers ({servers}) and the workers\n"
        )


@pytest.mark.slow
@pytest.mark.parametrize("platform", ["slurm", "kubeflow"])
def test_its_cluster_trains(platform: str, tmp_path: Path) -> None:
    configs = slurm_configs(tmp_path) if platform == "slurm" else tf_job_configs()
    (tmp_path / "job.py").write_text(TINY_WORKLOAD)
    train = ("job.py:tiny", "--switch-at", "50", "--resume")
    if platform == "slurm":
        assert "syncswitch-run my_workload.py:workload --resume" in SBATCH.read_text()
    parts = played_here(configs, tmp_path, *train)
    out, err = parts["chief", 0].communicate()
    for process in parts.values():
        process.send_signal(signal.SIGTERM)
    for part, process in parts.items():
        _, own = process.communicate() if part != ("chief", 0) else ("", err)
        assert process.returncode == 0, own
    assert (tmp_path / "tiny.keras").exists(), out


def played_here(
    configs: Configs, folder: Path, *arguments: str
) -> dict[tuple[str, int], WarmProcess]:
    """The parts of a cluster as processes of this machine, with its addresses for theirs."""
    text = json.dumps(configs["chief", 0]["cluster"])
    theirs = sorted(set(re.findall(r"[\w.-]+:\d+", text)))
    ours = dict(zip(theirs, (f"127.0.0.1:{port}" for port in free_ports(len(theirs))), strict=True))

    def start(config: Mapping[str, Any]) -> WarmProcess:
        here = re.sub(r"[\w.-]+:\d+", lambda found: ours[found[0]], json.dumps(config))
        lines = [
            "import os",
            f"os.environ['TF_CONFIG'] = {here!r}",
            "os.environ['SYNCSWITCH_SECRET'] = 'of this test alone'",
            code("syncswitch-run"),
        ]
        return WarmProcess("\n".join(lines), *arguments, folder=folder)

    return {part: start(config) for part, config in configs.items()}


def test_every_file_is_of_the_platforms_that_the_page_tells_of() -> None:
    page = (PLATFORMS.parents[1] / "docs" / "howto" / "platforms.md").read_text()
    for path in PLATFORMS.iterdir():
        assert f"examples/platforms/{path.name}" in page
    assert yaml.safe_load(RAY_JOB.read_text())["kind"] in page
