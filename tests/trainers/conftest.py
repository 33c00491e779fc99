"""Trainers of this process, and Keras, which the tests import late."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from syncswitch.storage.database.engine import open_database
from syncswitch.storage.importing import import_runs, read_table
from syncswitch.trainers.replay import Recording, read_recording

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture(scope="session")
def cluster_of() -> Iterator[Callable[..., Any]]:
    """Makes in-process cluster trainers; the same one again for the same arguments."""
    from syncswitch.trainers.cluster.chief.trainer import ClusterTrainer

    trainers: dict[Any, Any] = {}

    def make(workload: Any, workers: int) -> Any:
        # Equal workloads share a trainer; functions are equal to themselves alone.
        key = (workload, workers)
        if key not in trainers:
            trainers[key] = ClusterTrainer(workload, workers)
        return trainers[key]

    yield make
    for trainer in trainers.values():
        trainer.close()


@pytest.fixture
def make_trainer(cluster_of: Callable[..., Any]) -> Callable[..., Any]:
    """What the tests of clusters train with; folders of other trainers have their own."""
    return cluster_of


@pytest.fixture(scope="session")
def authors(tmp_path_factory: pytest.TempPathFactory, published: Path) -> dict[int, Recording]:
    """The authors' runs by the number of workers."""
    url = f"sqlite:///{tmp_path_factory.mktemp('paper')}/paper.db"
    with open_database(url, create=True) as database:
        import_runs(database, read_table(published / "runs.csv"))
        return {
            workers: read_recording(
                database, f"resnet32-cifar10-{workers}", workers=None, protocols=("bsp", "asp")
            )
            for workers in (8, 16)
        }
