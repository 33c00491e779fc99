"""Each benchmark of training runs, tiny: what it measures is not looked at here."""

from __future__ import annotations

import json
import math
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from benchmarks import (
    choices,
    detector,
    disturbed,
    evidence,
    first_trainings,
    guard,
    panel,
    protocols,
    real_size,
    scale,
    scale_rows,
    second_phase,
    simulator,
    sizes,
    stragglers,
    trainings,
    which_one,
)
from benchmarks.real_size_jobs import FASHION, clothes
from benchmarks.recorded_jobs import guarded_jobs
from syncswitch.storage.records.trial import TrialSpec
from syncswitch.trainers.job.embeddings import embeddings_of
from syncswitch.trainers.job.keras_parts import build_model
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.model.function import ModelFunction
from syncswitch.trainers.simulated.trainer import simulated_identity
from tests.trainers.cluster.launchers import all_gone

ROOT = Path(__file__).parents[2]
Play = Callable[..., str]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Play:
    """Plays a benchmark in this process, which has TensorFlow; gives what it prints."""
    from syncswitch.trainers.simulated import trainer

    # A call that computes several gradients takes seconds to compile.
    monkeypatch.setattr(trainer, "_MOST_AT_ONCE", 1)

    def main(module: ModuleType, *arguments: object) -> str:
        monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, arguments)])
        module.main()
        return capsys.readouterr().out

    return main


def ended(code: str) -> subprocess.CompletedProcess[str]:
    """A program that shall end itself."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("size", sizes.PARAMETERS)
def test_sizes_are_what_they_are_called(size: str, keras: Any) -> None:
    # The largest would be built for seconds: another layer more is as many parameters more.
    model = build_model(load_workload(sizes.WORKLOADS["17m" if size == "100m" else size]))
    another = sizes.WIDTH * (sizes.WIDTH + 1)
    expected = model.count_params() + (5 * another if size == "100m" else 0)
    expected += sum((table.rows - 1) * table.width for table in embeddings_of(model))
    assert sizes.PARAMETERS[size] == expected


def test_rows_of_one_process_about_sizes_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    short = replace(sizes.digits_cnn, evaluation_interval_worker_steps=8)
    monkeypatch.setattr(sizes, "digits_cnn", short)
    for row in ("BSP, threads of one process", "one process, not distributed"):
        assert scale_rows.ROWS[row]("14k", 0.01) > 0


def test_sizes_of_models_are_compared_and_a_row_that_does_not_end_gives_no_figure(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("--sizes", "14k", "--rows", scale_rows.LOOPBACK, "--seconds", 0.1, "--rounds", 2)
    lines = play(scale, *arguments).splitlines()
    assert lines[0].strip() == "13,706 parameters, 4 workers, 0.1 s each"
    row = next(line for line in lines if line.startswith("│"))
    name, per_second, gigabytes, *ratios = (cell.strip() for cell in row.split("│")[1:-1])
    bytes_per_second = float(per_second.replace(",", "")) * 8 * 13_706
    assert name == scale_rows.LOOPBACK
    assert bytes_per_second == pytest.approx(float(gigabytes) * 1e9, rel=0.02)
    assert ratios == ["-", "1.00"]
    monkeypatch.setattr(scale, "START_SECONDS", 0.0)
    out = play(scale, "--sizes", "17m", "--seconds", "0.001", "--rows", "ASP, processes")
    assert "│ ASP, processes │      no figure │" in out
    assert out.endswith("\nASP, processes: error: ASP, processes is not done after 0.02 s; ended\n")


def test_what_takes_too_long_ends_with_one_line_and_all_its_processes() -> None:
    done = ended("""
        import subprocess, time
        from benchmarks.console import at_most
        with at_most(60):
            pass
        child = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL)
        print(child.pid, flush=True)
        with at_most(0.5, "this"):
            time.sleep(600)
    """)
    assert done.returncode == 1
    assert done.stderr == "error: this is not done after 0.5 s; ended\n"
    with suppress(psutil.NoSuchProcess):
        assert all_gone([psutil.Process(int(done.stdout))])


def test_gradients_of_simulated_training(play: Play) -> None:
    out = play(simulator, "--rounds", 1, "--gradients", 8, "--workers", 1024)
    assert [out.count(f" {name} ") for name in ("1,024 workers", simulator.ALONE)] == [2, 2]


def test_protocols(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    out = play(protocols, "--seeds", 1, "--worker-steps", 32)
    assert all(out.count(f"│ {name} ") == 1 for name in protocols.ALONE)
    assert out.count(" of 1 ") == len(protocols.ALONE) + 3
    monkeypatch.setattr(protocols, "ON_CLICKS", ("bsp", "gba:3"))
    out = play(protocols, "--job", "clicks", "--seeds", 1, "--worker-steps", 16)
    rows = [out.count(f"│ {name} ") for name in ("bsp", "gba:3", "bsp,gba:3")]
    assert (rows, out.count(" of 1 ")) == ([3, 2, 1], 6)


def test_the_second_phase(play: Play) -> None:
    job, length = "batchnorm:2", ("--seeds", 1, "--percents", 50, "--worker-steps", 8)
    given = ("own", "same", "qsr:2:RATE:semi-sync:growing")
    out = play(second_phase, "--jobs", job, "--cluster", "threads", *length, "--rules", *given)
    rules = [out.count(f"│ {job} │ {rule} ") for rule in ("-", *given)]
    assert (rules, out.count(" of 1 ")) == ([1, 1, 1, 1], 4)


def test_the_panel(play: Play, tmp_path: Path) -> None:
    file = tmp_path / "panel.jsonl"
    seconds = ("asp", "local-sgd:2:semi-sync")
    given = ("--jobs", "rings", "--percents", 50, "--scalings", 3, "--seeds", 1, "--file", file)
    given += ("--seconds", *seconds)
    out = play(panel, *given, "--worker-steps", 32)
    ways = ("BSP", *(f"{second}, 50 %" for second in seconds), "BSP, rate x 3")
    assert [out.count(f"│ rings │ {way} ") for way in ways] == [1, 1, 1, 1]
    keys = [json.loads(line)["key"].split() for line in file.read_text().splitlines() if line]
    assert [(name, percent) for name, _, percent, _ in keys] == [
        ("rings", "100"),
        ("rings", "50"),
        ("rings", "50"),
        ("rings", "100"),
    ]
    assert play(panel, *given, "--worker-steps", 32) == out


def test_the_guard_of_the_panel(play: Play, tmp_path: Path) -> None:
    """From a file of trainings; here of friedman, which ends at an error of 2, and of two more."""
    file, profile = tmp_path / "panel.jsonl", trainings.CLUSTERS["paper"]()
    values = {  # of the job and switch point, for seeds 0 and 1; of 25 % seed 2 is missing
        ("friedman", 100.0): [-2.06, -2.04, -2.05],
        ("friedman", 25.0): [-2.04, -2.08],
        ("rings", 100.0): [0.6],
        ("residual-sgd", 100.0): [math.nan],
        ("residual-sgd", 25.0): [0.98],
    }
    with file.open("w") as lines:
        for (name, percent), ends in values.items():
            job = panel.JOBS[name]
            identity = simulated_identity(job.workload, job.workers, ("bsp", "asp"), profile)
            W = job.workload.total_worker_steps
            for seed, end in enumerate(ends):
                tests = [(W * at // 16, 10.0 * at, end - 0.1 * (16 - at)) for at in range(1, 17)]
                made = trainings.Training(end, math.isnan(end), 160.0, 40.0, tests, 0.0)
                key = f"{name} {identity.key} {percent:g} {seed}"
                lines.write(json.dumps({"key": key, "training": asdict(made)}) + "\n")
    (job,) = panel.jobs_to_replay(file, [25.0])
    assert (job.job.name, job.job.percents, job.curves.shape) == ("friedman", (100, 25), (2, 2, 16))
    assert (job.metric.goal, job.decays, job.job.owns_optimizer) == ("min", (), True)
    assert job.job.accuracies.tolist() == [[-2.06, -2.04], [-2.04, -2.08]]
    # Both still rise fast at their half, and the second one ends at 3 thresholds below.
    arguments = ("--panel", file, "--percents", 25)
    rows = [line.split() for line in play(guard, *arguments, "--lost", 2).splitlines()]
    assert next(row for row in rows if row[:1] == ["friedman"])[1:6] == [
        "1",
        "0.0",
        "1",
        "0.0",
        "0.0",
    ]
    with pytest.raises(SystemExit, match="has no job with all of these percents, and with BSP"):
        play(guard, "--panel", file, "--percents", 12.5)


def test_every_job_of_the_panel_has_data_for_its_model() -> None:
    # Pictures of clothes come from a package of Debian's.
    jobs = panel.JOBS | evidence.JOBS
    for name in sorted(name for name in jobs if "clothes" not in name):
        workload = jobs[name].workload
        function = ModelFunction(workload, workload.load_data())
        rows = sum(table.rows for table in function.embeddings)
        assert function.parameters.size + rows > 800, name


def test_evidence(play: Play, tmp_path: Path) -> None:
    file = tmp_path / "evidence.jsonl"
    arguments = ("--jobs", "clouds", "--seeds", 2, "--percents", 50, 0, "--worker-steps", 32)
    out = play(evidence, *arguments, "--file", file, "--folder", tmp_path)
    assert out.count("equal, ") == 2
    (job,) = guarded_jobs(tmp_path)
    assert (job.job.name, job.job.momentum_after_switch) == ("clouds", "own-optimizer")
    assert (job.job.percents, job.steps) == ((100.0, 50.0, 0.0), (32,))
    made = [json.loads(line)["training"] for line in file.read_text().splitlines() if line]
    assert job.job.seconds.T.ravel() == pytest.approx([one["seconds"] for one in made])
    assert job.curves.shape == (2, 3, 1)
    # Nothing is trained again.
    before = file.read_text()
    assert play(evidence, *arguments, "--file", file, "--folder", tmp_path) == out
    assert file.read_text() == before


def test_real_size(play: Play, tmp_path: Path) -> None:
    """Each way once; the pictures need a package of Debian's."""
    file = tmp_path / "real_size.jsonl"
    arguments = ("--seeds", 1, "--workers", 2, "--worker-steps", 16, "--file", file)
    out = play(real_size, *arguments, "--fashion", tmp_path)
    said = f"clothes-resnet is left out: there is no {tmp_path}/train-images"
    assert "".join(said.split()) in "".join(out.split())  # wherever lines break
    assert [line.split()[3:5] for line in out.splitlines() if "│ language" in line] == [
        ["BSP", "│"], ["from", "nothing"], ["QSR", "│"],
    ]  # fmt: skip
    assert len([line for line in file.read_text().splitlines() if line]) == 3


@pytest.mark.skipif(not FASHION.is_dir(), reason=f"needs Fashion-MNIST in {FASHION}")
def test_the_residual_network_trains_on_all_pictures() -> None:
    data = clothes().load_data()
    assert (len(data.train_inputs), len(data.test_inputs)) == (60_000, 10_000)
    assert ModelFunction(clothes(), data).parameters.size > 15_000


@pytest.mark.slow
def test_which_one(play: Play, tmp_path: Path) -> None:
    file = tmp_path / "trainings.jsonl"
    length = ("--seeds", 1, "--repeats", 1, "--expected-runs", 1, 3, "--worker-steps", 160)
    arguments = ("--file", file, "--clusters", "paper", "--jobs", "breast-cancer", *length)
    out = play(which_one, *arguments)
    made = [json.loads(line) for line in file.read_text().splitlines() if line]
    fixed = choices.fixed_choices(load_workload("breast-cancer,total_worker_steps=160"))
    # BSP alone is one of both, and one is a first training.
    assert len(made) == len(choices.GRID) + len(fixed)
    assert len({one["key"] for one in made}) == len(made)
    assert all(out.count(f"  {name} ") >= 2 for name in (*fixed, *which_one.RULES))
    assert "BSP                                    100 %: 1.00" in out
    alone = play(which_one, *arguments, "--from-nothing")
    named = (which_one.FROM_NOTHING, "BSP ")
    assert [f"  {name} " in alone for name in named] == [True, False]
    # One that was cut is made again, and no other.
    file.write_text(file.read_text()[:-100])
    assert play(which_one, *arguments) == out
    again = [line for line in file.read_text().splitlines() if line]
    assert [json.loads(line) for line in (*again[:-2], again[-1])] == made


@pytest.mark.slow
def test_first_trainings(play: Play, tmp_path: Path) -> None:
    file = tmp_path / "made.json"
    out = play(
        first_trainings,
        *("--jobs", "breast-cancer", "--turns", 1, "--workers", 2, "--json", file),
        *("--chosen-by", 1, "--judged-by", "breast-cancer", "--judged-steps", 60),
        *("--delay-seconds", 0.005, "--slowdown", 2),
    )
    assert [line.split(":")[0] for line in out.splitlines()] == [
        "breast-cancer",
        "wire, breast-cancer",
        "worker, breast-cancer",
    ]
    made = json.loads(file.read_text())
    assert Counter(one["situation"] for one in made) == {"none": 2, "wire": 4, "worker": 4}
    alone = [one for one in made if one["how"] == "bsp"]
    assert [[phase[:2] for phase in one["phases"]] for one in alone[1:]] == [[["bsp", 60]]] * 2
    # Each message waits, at least to the worker, for the parameters and with the gradient.
    assert alone[1]["seconds"] > 60 / 2 * 4 * 0.005


def test_a_relay_passes_everything_on_later_and_ends_as_its_ends_do() -> None:
    content = os.urandom(3_000_000)
    with socket.create_server(("127.0.0.1", 0)) as target:
        relay = disturbed.Relay(target.getsockname(), 0.05)
        with socket.create_connection(relay.address) as here:
            there, _ = target.accept()
            start = time.monotonic()
            sender = threading.Thread(target=here.sendall, args=(content,))
            sender.start()
            assert there.recv(1) == content[:1]
            assert time.monotonic() - start >= 0.05
            received = bytearray(content[:1])
            while len(received) < len(content):
                received += there.recv(1 << 20)
            assert received == content
            sender.join()
            start = time.monotonic()
            there.sendall(b"back")
            assert here.recv(9) == b"back"
            assert time.monotonic() - start >= 0.05
            there.close()
            assert here.recv(1) == b""
        relay.close()


@pytest.mark.parametrize("workers", [1, 4])
def test_only_late_gradients_are_compensated(workers: int) -> None:
    job = "breast-cancer,total_worker_steps=64,momentum_after_switch=same"
    spec = TrialSpec(trainings.identity_of(job, workers, "paper"), 0, 0)
    found = []
    for compensates in (False, True):
        with trainings.open_trainer(job, workers, "paper", compensates) as trainer:
            found.append(trainer.train(spec).evaluations)
    assert (found[0] == found[1]) is (workers == 1)


def test_stragglers(play: Play) -> None:
    arguments = ("--workload", "tests.trainers.jobs:BRIEF", "--workers", 3)
    out = play(stragglers, *arguments, "--scenarios", "moderate", "--seeds", 1)
    assert all(f" moderate      {online}" in out for online in ("none", "greedy", "elastic"))
    out = play(detector, "--runs", 1, "--rounds", 30, "--processes", 1)
    assert all(f"stragglers: {number}" in out for number in (1, 2))


def test_local_sgd_in_pytorch(play: Play) -> None:
    pytest.importorskip("torch", reason="needs PyTorch, which is in the extra lightning")
    from benchmarks import pytorch_local_sgd

    given = ("--seeds", 1, "--steps", 8, "--percents", 50, "--periods", 2)
    out = play(pytorch_local_sgd, *given, "--ways", "averaged:2", "kept:1")
    for job in pytorch_local_sgd.JOBS:
        assert [line.split()[1:10] for line in out.splitlines() if f" {job} " in line][1:] == [
            [job, "│", "50", "%", "│", "2", "│", way, "│"] for way in ("averaged:2", "kept:1")
        ]


@pytest.mark.parametrize("job", ["digits", "friedman"])
def test_local_sgd_averaged_after_each_step_is_bsp_in_pytorch(job: str) -> None:
    """With SGD exactly; Adam's mean second moments are not those of the mean gradient."""
    pytest.importorskip("torch", reason="needs PyTorch, which is in the extra lightning")
    from benchmarks.pytorch_local_sgd import JOBS, trained

    data = JOBS[job].data()
    bsp, early = (trained(JOBS[job], data, 12, at, "averaged:1", 1, 0) for at in (12, 4))
    assert (bsp == pytest.approx(early, abs=1e-4)) is (job == "digits")
