"""The launcher of another package: Kubernetes Jobs, on a fake API server that runs them here."""

from __future__ import annotations

import configparser
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_kubernetes import FakeKubernetes
from tests.processes import until
from tests.program import TINY_WORKLOAD, assert_refused, run

PACKAGE = Path(__file__).parents[1] / "examples" / "kubernetes_launcher"
IMAGE = "--trainer", "kubernetes", "--kubernetes-image", "registry.example.com/job:1"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Has the package of the example installed for the programs that are started here."""
    install(tmp_path / "site", "kubernetes = syncswitch_kubernetes:KubernetesCluster")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}:{PACKAGE}")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    (tmp_path / "job.py").write_text(TINY_WORKLOAD)
    return tmp_path


@pytest.fixture
def cluster(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKubernetes]:
    with FakeKubernetes() as fake:
        monkeypatch.setenv("KUBECONFIG", str(fake.configuration(folder)))
        yield fake


def install(site: Path, entry_point: str) -> None:
    described = site / "syncswitch_kubernetes-0.1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: syncswitch-kubernetes\n")
    (described / "entry_points.txt").write_text(f"[syncswitch.trainers]\n{entry_point}\n")


def test_its_entry_point_is_the_one_of_the_tests() -> None:
    project = configparser.ConfigParser()
    project.read(PACKAGE / "pyproject.toml")
    points = project['project.entry-points."syncswitch.trainers"']
    assert dict(points) == {"kubernetes": '"syncswitch_kubernetes:KubernetesCluster"'}


@pytest.mark.slow
def test_a_run_survives_the_loss_of_a_pod_and_leaves_nothing(
    folder: Path, cluster: FakeKubernetes
) -> None:
    done = run(
        *("syncswitch-run", "job.py:tiny", *IMAGE, "--chief-address", "127.0.0.1"),
        *("--workers", 2, "--switch-at", 50, "--inject", "kill:worker=1,at=25%", "--json"),
        folder=folder,
    )
    assert done.returncode == 0, done.stderr
    phases = json.loads(done.stdout)["phases"]
    assert [(one["protocol"], one["end_worker_step"]) for one in phases] == [
        ("bsp", 80),
        ("asp", 160),
    ]
    parts = [one["metadata"]["name"].split("-", 2)[2] for one in cluster.created]
    assert parts == ["ps-0-1", "worker-0-2", "worker-1-3", "worker-1-4"]
    leaves_nothing(cluster)


@pytest.mark.slow
def test_a_part_that_ends_says_why(folder: Path, cluster: FakeKubernetes) -> None:
    image = folder / "image"
    image.write_text("#!/bin/sh\necho No module named syncswitch >&2\nexit 1\n")
    image.chmod(0o755)
    cluster.python = str(image)
    done = run(
        *("syncswitch-search", "run", "job.py:tiny", *IMAGE, "--chief-address", "127.0.0.1"),
        *("--workers", 1),
        folder=folder,
    )
    assert done.returncode == 1
    assert "ended; its last output: No module named syncswitch" in done.stderr
    leaves_nothing(cluster)


def leaves_nothing(cluster: FakeKubernetes) -> None:
    """Parts end with their chief, and nothing stays of them."""
    until(lambda: all(process.poll() is not None for process in cluster.pods.values()), 30)
    cluster.expire()
    assert (cluster.pods, cluster.secrets) == ({}, {})


def test_what_is_wrong_is_one_line(folder: Path) -> None:
    refused = run("syncswitch-search", "run", "job.py:tiny", *IMAGE, folder=folder)
    assert_refused(refused, "no Kubernetes cluster is known", "KUBECONFIG")
    injected = "--inject", "hang:worker=1,at=25%"
    refused = run(
        *("syncswitch-run", "job.py:tiny", *IMAGE, "--switch-at", 50, *injected), folder=folder
    )
    assert_refused(refused, "kubernetes has no process to hang")


def test_a_package_that_fails_costs_nothing_else(folder: Path) -> None:
    for entry_point, problem in (
        (
            "broken = not_there:Kind",
            "trainer 'broken': loading not_there:Kind failed with ModuleNotFoundError",
        ),
        (
            "local = syncswitch_kubernetes:KubernetesLauncher",
            "is not a subclass of syncswitch.plugins.TrainerChoice",
        ),
    ):
        site = folder / "site" / "syncswitch_kubernetes-0.1.0.dist-info"
        (site / "entry_points.txt").write_text(f"[syncswitch.trainers]\n{entry_point}\n")
        done = run("syncswitch-run", "--help", folder=folder)
        assert problem in done.stderr
