"""Servers that are programs of their own from the start, as GPUs need it.

What is planned for GPUs is in test_placement.py. Here the same path runs on CPUs: the environment
says which GPUs there would be, and the steps stay on CPU:0.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from syncswitch.storage.records.job import RunConditions
from syncswitch.trainers.cluster.processes.process_trainer import ProcessTrainer
from syncswitch.trainers.cluster.servers.placement import CPU, place_on_gpus
from tests.private_network import needs_private_network
from tests.trainers.cluster.aborted_chiefs import aborted_chiefs
from tests.trainers.cluster.processes.test_process_trainer import all_gone, family, reference_of
from tests.trainers.jobs import BRIEF, spec_of

pytestmark = [pytest.mark.slow, needs_private_network()]


def seen_gpus(trainer: ProcessTrainer) -> dict[tuple[str, str], str]:
    """`CUDA_VISIBLE_DEVICES` of each server, by job and number, as it was when it began."""
    found = {}
    for process in family(trainer):
        words = process.cmdline()
        if "syncswitch.trainers.cluster.servers.server" in words:
            environment = process.environ()
            assert environment["TF_FORCE_GPU_ALLOW_GROWTH" if "worker" in words else "PATH"]
            found[words[4], words[5]] = environment["CUDA_VISIBLE_DEVICES"]
    return found


def test_each_server_begins_with_its_own_environment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And a lost one comes back with it."""
    # A third server would take as long again to import TensorFlow.
    placement = replace(place_on_gpus(1, ["7"], 0.5), step_device=CPU)
    expected = {("ps", "0"): "-1", ("worker", "0"): "7"}
    trainer = ProcessTrainer(reference_of(BRIEF), 1, placement)
    processes = family(trainer)
    try:
        assert seen_gpus(trainer) == expected
        conditions = RunConditions(injections=("kill:worker=0,at=20%",))
        # Where TensorFlow does not get over a call to a dying server, another chief goes on.
        checkpoints = {"checkpoint_percents": (10.0, 100.0), "checkpoint_directory": tmp_path}
        record = trainer.train(spec_of(BRIEF, 1, 25.0, conditions=conditions, **checkpoints))
        assert record.worker_steps == BRIEF.total_worker_steps
        kinds = {event.kind for event in record.events}
        if not aborted_chiefs(caplog):
            assert {"lost", "returned"} <= kinds or "resumed" in kinds
        assert seen_gpus(trainer) == expected
        processes += [one for one in family(trainer) if one not in processes]
    finally:
        trainer.close()
    assert all_gone(processes)
