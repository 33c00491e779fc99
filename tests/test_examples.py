"""The examples run as their pages say, in a tiny version."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.command.job import CommandJob
from syncswitch.trainers.command.template import CommandTemplate
from syncswitch.trainers.command.trainer import CommandTrainer

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
def test_pytorch_goes_from_ddp_to_local_sgd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="the example needs PyTorch: syncswitch[ddp-example]")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    script = EXAMPLES / "ddp_post_local_sgd" / "train.py"
    text = (
        f"'{sys.executable}' -m torch.distributed.run --standalone --local-addr 127.0.0.1"
        f" --nproc-per-node {{workers}} '{script}' --start-local-sgd {{switch_step}}"
        " --total-steps {total_steps} --seed {seed} --results {output_dir}/metrics.jsonl"
    )
    job = CommandJob(
        CommandTemplate.parse(text),
        name="ddp",
        total_steps=40,
        workers=2,
        protocols=("ddp", "local-sgd"),
        output_folder=tmp_path / "runs",
    )
    record = CommandTrainer(job).train(TrialSpec(job.identity, 50.0, seed=1))
    assert [e.worker_step for e in record.evaluations] == [10, 20, 30, 40]
    phases = [(phase.protocol, phase.end_worker_step) for phase in record.phases]
    assert phases == [("ddp", 20), ("local-sgd", 40)]
    assert record.final_accuracy > 0.3
