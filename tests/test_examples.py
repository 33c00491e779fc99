"""The examples run as their pages say, in a tiny version."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.command.job import CommandJob, CommandTemplate
from syncswitch.trainers.command.trainer import CommandTrainer

EXAMPLES = Path(__file__).parents[1] / "examples" / "pytorch"


@pytest.mark.slow
@pytest.mark.timeout(900)  # each of its six processes loads PyTorch
@pytest.mark.parametrize(
    ("name", "second", "package"),
    [
        ("post_local_sgd", "local-sgd", "torch"),
        ("powersgd", "powersgd", "torch"),
        ("accelerate_local_sgd", "local-sgd", "accelerate"),
        ("local_sgd_loop", "local-sgd", "torch"),
        ("torchft_local_sgd", "local-sgd", "torchft"),
        ("torchft_diloco", "diloco", "torchft"),
        ("lightning_local_sgd", "local-sgd", "lightning"),
    ],
)
def test_pytorch_switches_at_the_step_that_it_is_told(
    name: str, second: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for needed in (package, "sklearn"):
        pytest.importorskip(needed, reason="the examples need pytorch-examples and torchft")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    text = (
        f"'{sys.executable}' -m torch.distributed.run --standalone --local-addr 127.0.0.1"
        f" --nproc-per-node {{workers}} '{EXAMPLES / name}.py' --total-steps {{total_steps}}"
        " --first-decay 100 --link-mbit 0"
    )
    job = CommandJob(
        CommandTemplate.parse(text),
        name=name,
        total_steps=40,
        workers=2,
        protocols=("ddp", second),
        output_folder=tmp_path / "runs",
    )
    records = [
        CommandTrainer(job).train(TrialSpec(job.identity, percent, seed=1))
        for percent in (100.0, 50.0)
    ]
    whole, switched = ([one.accuracy for one in record.evaluations] for record in records)
    assert [one.worker_step for one in records[1].evaluations] == [10, 20, 30, 40]
    assert switched[:2] == whole[:2]
    assert switched[2:] != whole[2:]
    assert min(whole[-1], switched[-1]) > 0.3
