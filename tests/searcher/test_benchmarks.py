"""The benchmarks of searches, tiny, and what they take for the truth."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import (
    command_jobs,
    evidence,
    foreign,
    guard,
    learning,
    parallel_searches,
    second_phases,
    strategies,
    trust,
)
from benchmarks.console import parser
from benchmarks.contenders import REFERENCE, answer_without_noise, contenders, judged
from benchmarks.problems import (
    GeneratedProblem,
    command_problems,
    earliest_acceptable,
    generated_problem,
    is_acceptable,
    recorded_jobs,
)
from benchmarks.recorded_jobs import (
    OWN_MOMENTUM_JOBS,
    SEMI_SYNC_JOBS,
    guarded_jobs,
    parsed,
    trust_jobs,
)
from benchmarks.recorded_jobs import write_job as write_recording
from reproduction.simulator import search_with


@pytest.fixture(autouse=True)
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """To start one takes longer than what it has to do."""

    def threads(count: int, **_: object) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(count)

    for module in (command_jobs, learning, parallel_searches, strategies, trust):
        monkeypatch.setattr(module, "ProcessPoolExecutor", threads)


def run(module: Any, *words: object) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [module.__name__, *map(str, words), "--processes", "1"])
        module.main()


def test_strategies(capsys: pytest.CaptureFixture[str], tmp_path: Path, published: Path) -> None:
    file, few = tmp_path / "scores.json", ("--problems", 2, "--gp-problems", 0, "--simulations", 2)
    run(strategies, *few, "--logs", published, "--json", file)
    report, out = json.loads(file.read_text()), capsys.readouterr().out
    jobs = ("generated jobs", "resnet32-cifar10-8", "resnet32-cifar10-16")
    assert list(report) == [f"{job}, {kind}" for job in jobs for kind in strategies.KINDS]
    for heading, found in report.items():
        assert heading in out
        assert all(one["problems"] == 2 for one in found["strategies"])


def test_several_clusters(tmp_path: Path, published: Path) -> None:
    file, few = tmp_path / "rows.json", ("--problems", 1, "--simulations", 1, "--clusters", 1, 2)
    run(parallel_searches, *few, "--logs", published, "--json", file)
    rows = [(row["strategy"], row["clusters"]) for row in json.loads(file.read_text())]
    assert rows == 3 * [(name, n) for name in parallel_searches.STRATEGIES for n in (1, 2)]


def write_job(path: Path) -> None:
    """A job of six seeds whose ASP part costs six points from 12.5 % on."""
    settings = np.array([100, 50, 25, 12.5, 6.25, 3.125, 1.5625, 0])
    steps = np.arange(1, 41) * 10
    shape = (6, len(settings), len(steps))
    share = settings / 100
    total = np.broadcast_to(10 * (share + 0.4 * (1 - share)), shape[:2])
    noise = 0.002 * np.arange(6).reshape(6, 1, 1)
    loss = np.where(settings < 20, 0.06, 0.0).reshape(1, -1, 1)
    np.savez(
        path,
        settings=settings,
        chance=0.1,
        curve=np.broadcast_to(0.95 + noise - loss, shape),
        seconds=total[:, :, None] * steps / steps[-1],
        total=total,
        first=np.broadcast_to(10 * share, shape[:2]),
        diverged=np.zeros(shape[:2], dtype=bool),
        eval_at=steps,
    )


def test_trust(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_job(tmp_path / "step.npz")
    (job,) = trust_jobs(tmp_path)
    assert [job.kept_share(percent) for percent in (100.0, 25.0, 12.5)] == [1.0, 1.0, 0.0]
    assert (job.is_good(25.0), job.is_good(12.5)) == (True, False)
    assert job.problem(0).best_percent == 25.0
    # A replicate has the same seed at every switch point.
    for number in range(5):
        problem = job.problem(number)
        runs = [problem.run_at(percent, 0) for percent in (100.0, 50.0)]
        assert len({run.accuracy for run in runs if run is not None}) == 1
    run(trust, "--jobs", tmp_path, "--searches", 1)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    best = next(row for row in rows if row[:3] == ["knows", "the", "truth"])
    assert best[3:] == ["1", "0.00", "100.0", "100.0", "100.0", "0.550", "0.550"]
    assert {"adaptive", "paper"} <= {row[0] for row in rows if row}


def test_guard(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_job(tmp_path / "step.npz")
    (job,) = guarded_jobs(tmp_path)
    # Flat curves: the six points that are lost leave no trace in the run's own tests.
    lost = guard.watched(job, 12.5, 3)
    assert (lost.lost, lost.alarmed_at) == (pytest.approx(5.9), None)
    assert lost.bare == lost.guarded == (pytest.approx(0.475), False)
    fallen = job.curves.copy()
    fallen[3, 3, 10:] -= 0.2
    seen = guard.watched(replace(job, curves=fallen), 12.5, 3)
    # The last level that is low has begun a fifth of the job before.
    assert seen.alarmed_at == pytest.approx(0.45, abs=0.05)
    assert seen.guarded[1]
    assert guard.shares([lost, seen]) == (0, pytest.approx(float("nan"), nan_ok=True), 2, 0.5, 0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["guard", "--jobs", str(tmp_path), "--percents", "12.5"])
        guard.main()
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert next(row for row in rows if row[:1] == ["step"])[1:5] == ["0", "-", "6", "0.0"]


def test_what_recorded_jobs_bear_in_a_second_phase(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(tmp_path / "step.npz")
    file = tmp_path / "phases.json"
    monkeypatch.setattr(second_phases, "FILE", file)
    monkeypatch.setattr(sys, "argv", ["x", "--recordings", f"asp={tmp_path}", "--write"])
    second_phases.main()
    (phase,) = json.loads(file.read_text())["phases"]
    (job,) = trust_jobs(tmp_path)
    assert phase["percents"] == sorted(job.percents)
    kept, times = phase["jobs"]["step"].values()
    assert kept == pytest.approx([job.kept_share(percent) for percent in phase["percents"]])
    assert times == pytest.approx([job.time(percent) for percent in phase["percents"]], abs=1e-4)
    assert capsys.readouterr().out.count("│ step ") == 1


@pytest.mark.skipif(not SEMI_SYNC_JOBS.is_dir(), reason="the recordings are not here")
def test_the_installed_file_has_what_the_recordings_say() -> None:
    for phase, folder in zip(
        json.loads(second_phases.FILE.read_text())["phases"],
        (OWN_MOMENTUM_JOBS, SEMI_SYNC_JOBS),
        strict=True,
    ):
        assert phase == second_phases.phase(phase["second_protocol"], trust_jobs(folder))


def test_a_recording_says_what_its_second_phase_does(tmp_path: Path) -> None:
    write_job(tmp_path / "step.npz")
    (job,) = guarded_jobs(tmp_path, "own-optimizer")
    written = replace(job, decays=(120, 180))
    write_recording(tmp_path / "step.npz", written)
    (again,) = guarded_jobs(tmp_path, "same")  # the option is for those that do not say
    assert again.job.momentum_after_switch == "own-optimizer"
    assert (again.decays, again.steps, again.grid) == ((120, 180), written.steps, written.grid)
    np.testing.assert_allclose(again.curves, written.curves, rtol=1e-6)
    np.testing.assert_allclose(again.job.accuracies, written.job.accuracies, rtol=1e-6)


def test_the_repository_brings_the_recordings_of_all_its_jobs() -> None:
    found = {one.job.name: one for one in guarded_jobs(evidence.FOLDER)}
    assert found.keys() == evidence.JOBS.keys()
    for name, job in found.items():
        made = evidence.JOBS[name].workload
        rule = "own" if made.optimizer is None else "own-optimizer"
        assert job.job.momentum_after_switch == rule
        assert (job.job.percents, job.steps[-1]) == (
            (100.0, 50.0, 25.0, 12.5, 6.25, 3.125, 0.0),
            made.total_worker_steps,
        )
        assert job.decays == tuple(at for at, _ in made.learning_rate_boundaries)
    assert sum(path.stat().st_size for path in evidence.FOLDER.iterdir()) < 200_000
    # A search that asks for more runs of BSP than were recorded takes them again.
    assert learning.search_then_use(found["letters"], 0, 30).search_cost > 1


def test_jobs_whose_workers_keep_a_momentum_of_their_own_are_searched_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list[tuple[bool, float]]()

    def noting(strategy: Any, run_at: Any) -> Any:
        found.append((strategy.owns_momentum, min(strategy.grid())))
        return search_with(strategy, run_at)

    monkeypatch.setattr("benchmarks.contenders.search_with", noting)
    adaptive = next(one for one in contenders() if one.names == ("adaptive",))
    folder = tmp_path / "own-momentum"  # its name says nothing
    folder.mkdir()
    write_job(folder / "step.npz")
    for rule in ([], ["own"], ["semi-sync"]):
        words = ["x", "--jobs", str(folder), *["--momentum-after-switch"] * len(rule), *rule]
        monkeypatch.setattr(sys, "argv", words)
        options = parsed(parser(None, jobs=tmp_path))
        (job,) = trust_jobs(options.jobs, options.momentum_after_switch)
        adaptive.search(job.problem(0), False)
    assert found == [(False, 1.5625), (True, 0.0), (True, 0.0)]


def test_command_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    run(command_jobs, "--repeats", 1, "--expected-runs", 4)
    out = capsys.readouterr().out
    for name, job in command_problems(0).items():
        assert name in out
        runs = [job.run_at(100.0, replicate).accuracy for replicate in range(300)]
        assert np.std(runs) == pytest.approx(job.standard_deviation, rel=0.15)
        assert np.mean(runs) == pytest.approx(job.target_accuracy, abs=job.standard_deviation / 5)
    amp = command_problems(0)["knee 75, 0.006"]
    kept = [round(amp.kept_share(percent), 2) for percent in (75.0, 50.0, 25.0)]
    assert kept == [0.95, 0.25, 0.0]


def test_learning(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    write_job(tmp_path / "step.npz")
    (job,) = guarded_jobs(tmp_path)
    band = job.band([2, 3])
    assert (band.target_accuracy, band.runs) == (pytest.approx(0.955), 2)
    # What fails goes on from its switch to the next one; the alarm comes with the last test.
    failed, kept = job.train(12.5, 3, band, (25.0, 50.0)), job.train(25.0, 3, band)
    assert (failed.kept, failed.false_alarms) == (True, 0)
    assert failed.failed == ((12.5, pytest.approx(0.896)),)
    assert failed.alarmed_after == (pytest.approx(1.0),)
    assert failed.time == pytest.approx(0.875 * 0.4 + 0.55)
    twice = job.train(6.25, 3, band, (12.5, 25.0, 50.0))
    assert [percent for percent, _ in twice.failed] == [6.25, 12.5]
    assert twice.time == pytest.approx(0.9375 * 0.4 + 0.875 * 0.4 + 0.55)
    assert failed.observed == kept.observed
    assert failed.observed.accuracy == pytest.approx(0.956)
    assert (kept.failed, kept.time) == ((), pytest.approx(0.55))
    assert job.train(12.5, 3, None, (25.0,)).observed.accuracy == pytest.approx(0.896)
    stated, *true = learning.generated_shares(3, expected_runs=6)
    assert 0.3 < stated < 1
    assert all(0 <= share <= 1 for share in true)
    run(learning, "--jobs", tmp_path, "--repeats", 1, "--expected-runs", 10, "--generated", 1)
    out = capsys.readouterr().out
    assert "Of 1 generated jobs, each learnt in 10 trainings," in out
    for rule in learning.RULES:
        line = next(one for one in out.splitlines() if one.strip().startswith(f"{rule}  "))
        time, kept_percent, *_ = line.strip().removeprefix(rule).split()
        # This job loses its accuracy with a switch before 25 %, which no guard takes back here.
        assert kept_percent == ("0.0" if rule == "always 6.25 %" else "100.0")
        assert time == "1.000" if rule == "BSP alone" else float(time) >= 0.55


# Loses beta where it is at 10 %: half an octave below its knee.
PLAIN = GeneratedProblem(
    number=1,
    knee_percent=10 * 2**0.5,
    slope=0.02,
    bend=0.0,
    standard_deviation=0.0,
    ratio=0.2,
    diverges_below_percent=0.0,
)


def test_the_truth_of_a_plain_curve() -> None:
    assert PLAIN.best_percent == pytest.approx(10)
    assert earliest_acceptable(PLAIN) == 12.5
    # Multiples of 100/64: the search in finer steps ends just above 10.
    assert answer_without_noise(PLAIN) == pytest.approx(10.9375)
    assert PLAIN.policy_seconds(10.0) == pytest.approx(0.28)
    diverging = replace(PLAIN, diverges_below_percent=30.0)
    assert (diverging.best_percent, earliest_acceptable(diverging)) == (30.0, 50.0)
    bent = replace(PLAIN, bend=0.01)  # one octave is all it may lose
    assert (bent.best_percent, earliest_acceptable(bent)) == (50.0, 50.0)
    easy = replace(PLAIN, knee_percent=1.0)
    assert easy.best_percent == earliest_acceptable(easy) == easy.grid[0]


@given(st.integers(0, 10_000))
def test_the_best_switch_is_where_acceptable_ones_begin(number: int) -> None:
    problem = generated_problem(number)
    best = problem.best_percent
    assert is_acceptable(problem, best * (1 + 1e-6))
    assert best == problem.grid[0] or not is_acceptable(problem, best * (1 - 1e-6))
    assert earliest_acceptable(problem) == min(p for p in problem.grid if p >= best * (1 - 1e-6))
    assert best * (1 - 1e-6) <= answer_without_noise(problem) <= best + 100 / 64


def test_the_published_runs_say_what_the_paper_says(published: Path) -> None:
    answers = {setup: job.problem(0) for setup, job in recorded_jobs(published).items()}
    assert {setup: p.best_percent for setup, p in answers.items()} == {
        "resnet32-cifar10-8": 6.25,
        "resnet32-cifar10-16": 50.0,
    }
    assert all(answer_without_noise(p) == p.best_percent for p in answers.values())
    # 5 runs of each switch point are recorded, so no draw changes what they cost; published 12.71.
    paper = next(c for c in contenders() if c.names == (REFERENCE,))
    ((_, outcome),) = judged(paper, answers["resnet32-cifar10-8"], False)
    assert outcome.cost == pytest.approx(12.71, rel=0.005)


FOREIGN = """
import sys
switch, seed = map(int, sys.argv[1:])
for step in range(0, 100, 5):
    best = 0.9 if switch >= 20 else 0.8
    print("at", step, min(best, step / 40) + seed % 7 / 9999, (step + 3 * min(step, switch)) / 10)
"""


@pytest.mark.slow
def test_a_script_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "before.py").write_text(FOREIGN.replace("best = 0.9 if switch >= 20 else 0.8", ""))
    (tmp_path / "script.py").write_text(FOREIGN)
    files = [tmp_path / "script.py", "--original", tmp_path / "before.py"]
    job = ("--total-steps", 100, "--arguments", "{switch_step} {seed}")
    size = f"--expected-runs 1 --runs 1 --points 100 25 12.5 --json {tmp_path}/found.json".split()
    pattern = r"at (?P<step>\S+) (?P<accuracy>\S+) (?P<seconds>\S+)"
    words = [*files, *job, *size, "--", "--metric-pattern", pattern]
    monkeypatch.setattr(sys, "argv", ["foreign", *map(str, words)])
    foreign.main()
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["answer"], found["best"][1]) == (25.0, 25.0)
    assert found["lines"] == "1 added, 1 removed of 6"
    assert [row["keeps_accuracy"] for row in found["truth"]] == [True, True, False]
    uses = found["after the search"]
    assert (uses["kept"], uses["switches"]) == (1, [25.0])
    assert uses["shares"] == pytest.approx([0.44], abs=0.02)
    assert found["from nothing"]["kept"] == 1
