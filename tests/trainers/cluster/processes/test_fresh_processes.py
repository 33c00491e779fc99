"""Parts that are programs of their own from the start, as GPUs need it.

What is planned for GPUs is in test_placement.py. Here the same path runs on CPUs: the environment
says which GPUs there would be, and the steps stay on CPU:0.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from syncswitch.storage.records.job import RunConditions
from syncswitch.trainers.cluster.processes.launcher import LocalLauncher
from syncswitch.trainers.cluster.processes.placement import place_on_gpus
from syncswitch.trainers.cluster.processes.process_trainer import ProcessTrainer
from tests.trainers.cluster.engines import all_gone, family
from tests.trainers.cluster.processes.test_process_trainer import reference_of
from tests.trainers.jobs import BRIEF, spec_of

pytestmark = pytest.mark.slow


def seen_gpus(trainer: ProcessTrainer) -> dict[str, str]:
    """`CUDA_VISIBLE_DEVICES` of each part, as it was when it began, with its share of threads."""
    found = {}
    for name, process in family(trainer).items():
        if "syncswitch.trainers.cluster.exchange.parts" in process.cmdline():
            environment = process.environ()
            assert "worker" not in name or environment["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"
            for of in ("INTRAOP", "INTEROP"):
                # One worker has all cores.
                assert environment[f"TF_NUM_{of}_THREADS"] == str(os.cpu_count())
            found[name] = environment["CUDA_VISIBLE_DEVICES"]
    return found


def test_each_part_begins_with_its_own_environment(tmp_path: Path) -> None:
    """A replacement has the same environment."""
    # A third one would take as long again to import TensorFlow.
    placement = replace(place_on_gpus(1, ["7"], 0.5), has_gpus=False)
    expected = {"ps-0": "-1", "worker-0": "7"}
    with ProcessTrainer(reference_of(BRIEF), 1, LocalLauncher(placement)) as trainer:
        processes = list(family(trainer).values())
        assert seen_gpus(trainer) == expected
        files = [one.path for one in family(trainer)["worker-0"].memory_maps()]
        assert any("/tensorflow/" in path for path in files)
        conditions = RunConditions(injections=("kill:worker=0,at=20%",))
        record = trainer.train(spec_of(BRIEF, 1, 25.0, conditions=conditions))
        assert record.worker_steps == BRIEF.total_worker_steps
        kinds = Counter(event.kind for event in record.events)
        assert kinds == {"injected": 1, "lost": 1, "returned": 1, "switched": 1}
        assert seen_gpus(trainer) == expected
        processes += family(trainer).values()
    assert all_gone(processes)
