"""What is said of jobs while little is known: the first trainings, and ends played by a command."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from syncswitch.cli.run.main import main
from syncswitch.searcher.api import train
from syncswitch.searcher.strategies.baseline import measured_threshold
from syncswitch.searcher.training.uses import RunRecorder
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.trial import Evaluation, TrialRecord
from syncswitch.trainers.model.kept import kept_for_the_next
from syncswitch.trainers.trainer import Observer, Verdict
from tests.searcher.command_line import Invoke, database_file
from tests.tiny_job import write_tiny_job
from tests.trainers.command.programs import command
from tests.wording import Said

TOTAL = 200
# Twice as fast after its switch; its curve rises to the end that the test has for it.
PLAYS = """
import json, sys
folder, switch, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
name, end, slope = {name!r}, {end}, {slope}
seconds = 0.0
with open(folder + "/metrics.jsonl", "w") as results:
    for step in range(0, 201, 10):
        value = end + slope * max(0.0, 1 - step / 100)
        line = {{"step": step, "seconds": seconds, name: value}}
        print(json.dumps(line), file=results, flush=True)
        seconds += 10.0 if step < switch else 4.0
"""

Job = Callable[..., Invoke]


@pytest.fixture
def job(tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job by the end of its runs, an expression of `switch` in steps and `seed`."""
    monkeypatch.chdir(tmp_path)

    def made(
        end: str, *words: str, name: str = "accuracy", slope: float = -0.5, resumes: bool = False
    ) -> Invoke:
        code = PLAYS.format(name=name, end=end, slope=slope)
        text = "env FROM={resume_from} " * resumes + shlex.join(
            command(tmp_path, code, "{output_dir}", "{switch_step}", "{seed}").words
        )
        known = ("job", "--trainer", "command", "--command", text, "--total-steps", str(TOTAL))
        return Invoke(*known, *words, "--storage", sqlite_url, program=main)

    return made


def used(sqlite_url: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = Invoke("uses", "list", "--storage", sqlite_url).answer()
    return found


def said_by(run: Invoke, *words: str) -> str:
    done = run.succeeds(*words)
    return " ".join((done.stderr + done.stdout).split())


LOSSES = "[2.3774, 2.4019, 2.4195, 2.40, 2.4177, 2.42][seed] + (0.04 if switch < 200 else 0)"


def test_a_run_is_held_to_the_mean_of_all_first_way_runs_wherever_it_is_said(
    job: Job, sqlite_url: str
) -> None:
    metric = ("--metric-name", "val_loss", "--metric-goal", "min")
    run = job(LOSSES, *metric, "--learn", "--expected-runs", "30", name="val_loss", slope=2.0)
    for _ in range(3):
        run.succeeds()
    done = [run.answer() for _ in range(3)]
    assert all(report["switch_percent"] < 100 for report in done)
    mean = (2.3774 + 2.4019 + 2.4195) / 3
    # The fifth use ended with more than the threshold above the first run, and less above the mean.
    assert done[1]["value"] - 2.3774 > done[1]["policy"]["threshold"]
    for report in done:
        assert (report["target_value"], report["target_runs"]) == (pytest.approx(mean), 3)
        assert report["reaches_target"] is True
        assert report["guard"]["state"] == "quiet"
    # The first three, which measured the threshold, are judged by it as well.
    assert [use["kept"] for use in used(sqlite_url)] == [True] * 6
    assert {round(use["target_value"], 6) for use in used(sqlite_url)} == {round(mean, 6)}
    assert f"target {mean:.4f}" in said_by(run, "--seed", "3")


@pytest.mark.parametrize(
    "end",
    [
        # The guard lets it through, and says why.
        "0.9 if switch == 200 else 0.8864",
        # It changes the target, and names that of its alarm.
        "[0.9, 0.88][seed] if switch == 200 else 0.86",
    ],
)
def test_a_run_says_what_its_guard_did_and_why(job: Job, end: str, said: Said) -> None:
    run = job(end, "--learn", "--expected-runs", "30")
    run.succeeds()
    done = run.succeeds()
    said(*(line for line in done.stdout.splitlines() if "/" not in line))


NOISY = "[0.955, 0.852, 0.729, 0.90, 0.86, 0.80, 0.93, 0.84, 0.77, 0.88][seed % 10]"


def test_noise_is_measured_said_and_sends_no_run_back_again_and_again(
    job: Job, sqlite_url: str
) -> None:
    run = job(NOISY, "--learn", "--expected-runs", "30")
    said = [said_by(run) for _ in range(8)]
    found = used(sqlite_url)
    failed = [use["failed_percents"] or "" for use in found]
    # The first runs are sent back, as nobody knows yet how much runs differ.
    assert [bool(one) for one in failed] == [number in {1, 2} for number in range(8)]
    assert not any("," in one for one in failed)
    spread = "runs of the first way alone differ by more than the 0.01 that may be lost: by chance"
    assert [spread in words for words in said] == [number in {1, 2} for number in range(8)]
    assert "a threshold of 0.15 to accept it everywhere, or measure one with 3" in said[2]
    low = next(number for number in range(3, 8) if not found[number]["kept"])
    assert "the guard let it pass, as runs without a switch differ as much by chance" in said[low]


def test_a_threshold_of_the_users_own_is_that_of_the_policies_to_come(
    job: Job, sqlite_url: str
) -> None:
    run = job(NOISY, "--learn", "--expected-runs", "30")
    assert run.answer("--threshold", "0.2")["policy"]["threshold"] == 0.2
    assert run.answer()["policy"]["threshold"] == 0.2
    assert "the accepted 0.3" in said_by(run, "--threshold", "0.3")
    assert run.answer()["policy"]["threshold"] == 0.3
    assert all(use["kept"] for use in used(sqlite_url))


def test_runs_that_measure_the_threshold_of_an_accuracy_measure_that_of_the_policies_to_come(
    job: Job, sqlite_url: str
) -> None:
    run = job(NOISY, "--learn", "--expected-runs", "40")
    measured, wanted = [0.955, 0.852, 0.729, 0.90], ("--threshold-runs", "4")
    said = [said_by(run, *wanted) for _ in range(4)]
    assert "uses the first way alone: it is one of the 4 runs that measure the target" in said[0]
    judged = "This is one of the 4 runs without a switch that measure the target, and how much"
    assert all(judged in words and "About" not in words for words in said)
    threshold = measured_threshold(measured, 1.0, 4)
    assert "judging by the first 4 runs with the first way alone, 1 in 20 is worse" in said[3]
    later = [run.answer(*words)["policy"] for words in (wanted, ())]
    assert [(one["threshold"], one["threshold_runs"]) for one in later] == [(threshold, 4)] * 2
    assert not any(use["failed_percents"] for use in used(sqlite_url))


def test_runs_that_are_there_measure_the_threshold_at_once(job: Job) -> None:
    run = job(NOISY, "--learn", "--expected-runs", "30")
    for _ in range(3):
        assert run.answer()["policy"]["threshold"] == 0.01
    policy = run.answer("--threshold-runs", "3")["policy"]
    assert policy["threshold"] == measured_threshold([0.955, 0.852, 0.729], 1.0)
    assert policy["target_accuracy"] == pytest.approx((0.955 + 0.852 + 0.729) / 3)


def test_a_threshold_that_no_run_learns_with_is_an_error(job: Job, said: Said) -> None:
    run = job("0.9")
    for words in (
        "--threshold 2 --switch-at 50",
        "--threshold 2 --no-learn",
        "--threshold 2 --learn",
        "--threshold-runs 5 --no-learn",
        "--threshold-runs 5 --threshold 0.1",
        "--threshold-runs 101 --learn",
    ):
        done = run(*words.split())
        assert done.exit_code == 2
        said(done.stderr)


# A switch at 75 % loses nothing, of those at 50 % one in four keeps the accuracy, and earlier none.
AMP = """(
    0.92 + [0.0, 0.002, -0.002, 0.001][seed % 4] - (
        0.0 if switch >= 150
        else [0.014, 0.006, 0.017, 0.019][seed % 4] if switch >= 100
        else [0.025, 0.03, 0.035, 0.04][seed % 4]
    )
)"""


@pytest.mark.parametrize(
    ("resumes", "expected_runs"), [(False, "10"), (True, "30")], ids=["begins anew", "goes back"]
)
def test_no_policy_is_published_that_its_own_figures_condemn(
    job: Job, sqlite_url: str, resumes: bool, expected_runs: str
) -> None:
    run = job(AMP, "--learn", "--expected-runs", expected_runs, resumes=resumes)
    for _ in range(8):
        run.succeeds()
    with open_database(sqlite_url, create=False) as database:
        versions = [entry.policy for entry in PolicyRegistry(database).entries()]
    for policy in versions:
        assert policy.promise.delivered_share is not None
        assert policy.promise.baseline_kept_share is not None
        assert policy.promise.delivered_share >= policy.promise.baseline_kept_share - 0.05
    newest = max(versions, key=lambda one: one.version)
    assert newest.switch_percent >= 75
    assert all(use["kept"] for use in used(sqlite_url)[-3:])


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Invoke]:
    """Trains a job of which nothing is known; what is compiled is kept meanwhile."""
    monkeypatch.chdir(tmp_path)
    simulated = ("--trainer", "simulated", "--workers", "2")
    with kept_for_the_next():
        yield Invoke(write_tiny_job(tmp_path), *simulated, program=main)


def test_the_first_training_needs_no_search_and_says_what_is_not_known(tiny: Invoke) -> None:
    first = said_by(tiny)
    assert (
        "this run, with seed 0, switches to ASP at 12.5 %, which should be fastest for the 3"
        " runs to come, judging by 7 recorded jobs. No run of BSP alone has measured a target"
        " yet, so it is guarded by its own evaluations; a failed switch costs what was trained"
        " after it."
    ) in first
    expected = "Expected from those jobs, not measured on this one: "
    # Before the run; in its closing lines its own pace counts.
    assert first.count(expected) == 1
    rests_on = "by other jobs and these runs, none of them with BSP alone."
    # What is expected is said once, so no two figures of one run contradict each other.
    measured = "No run of BSP alone has measured a target of this job yet."
    assert (first.count(rests_on), first.count(measured)) == (0, 1)
    assert "; target" not in first
    why = said_by(Invoke("policy", "show", "tiny", "--why"))
    assert "No target is measured: no run of BSP alone tells it yet." in why
    assert "before the first run from 7 recorded jobs (digits with four networks" in why
    again = said_by(tiny)
    assert expected not in again
    assert (again.count(rests_on), again.count(measured)) == (1, 1)
    assert again.count(" of the time of BSP alone") == 1
    assert "judging by 7 recorded jobs and its own runs." in again
    use, _ = Invoke("uses", "list").answer()
    assert (use["kept"], use["target_accuracy"]) == (None, None)


def test_a_few_trainings_buy_no_run_of_the_first_protocol_alone_and_many_do(tiny: Invoke) -> None:
    for _ in range(3):
        few = tiny.answer()
        assert few["switch_percent"] < 50
        assert few["reaches_target"] is None
        assert few["policy"]["target_accuracy"] is None
        assert few["time_to_accuracy_seconds"] is None
    fourth = said_by(tiny, "--expected-runs", "40")
    assert "uses BSP alone: it measures the target for the 36 runs after it" in fourth
    assert "the target is measured: BSP alone reached an accuracy of" in fourth
    assert tiny.answer("--expected-runs", "40")["policy"]["target_accuracy"] is not None
    uses = Invoke("uses", "list").answer()
    assert len(uses) == 5
    # The runs before it are judged by the target, too.
    assert all(isinstance(use["kept"], bool) for use in uses)


def test_a_metric_without_a_usual_threshold_takes_the_gain_at_once(
    tiny: Invoke, tmp_path: Path
) -> None:
    path = tmp_path / "tiny.py"
    path.write_text(path.read_text().replace('name="tiny",', 'name="tiny",\n    metric="loss",'))
    first = said_by(tiny)
    little = "its own evaluations, which without a threshold notice little but a run that diverges"
    assert f"yet, so it is guarded by {little};" in first
    by_chance = "no worse than BSP's own models are by chance (how much that is, is not"
    assert first.count(by_chance) == 1
    assert tiny.answer()["switch_percent"] < 100
    for words in ("policy show tiny --why", "policy list", "report tiny -o report.html"):
        Invoke().succeeds(*words.split())
    assert [use["kept"] for use in Invoke("uses", "list").answer()] == [None, None]
    third = said_by(tiny, "--expected-runs", "100")
    assert "uses BSP alone: it is one of the 3 runs that measure the target, and how much" in third


def test_who_wants_the_first_protocol_alone_gets_it(tiny: Invoke) -> None:
    first = said_by(tiny, "--switch-at", "100")
    assert "with BSP alone as you asked: accuracy" in first
    assert ", which is the target of later runs." in first
    again = said_by(tiny)
    assert "No run of BSP alone" not in again
    assert "target" in again
    switched = tiny.answer("--switch-at", "50")
    assert (switched["policy"], switched["reaches_target"]) == (None, True)
    assert switched["target_runs"] == 1
    found = Invoke("uses", "list").answer()
    assert all(isinstance(use["kept"], bool) for use in found)
    assert [use["switch_percent"] for use in found][::2] == [100, 50]
    why = said_by(Invoke("policy", "show", "tiny", "--why"))
    assert "No target is measured" not in why


def test_a_switch_of_the_users_own_begins_a_job_that_bsp_alone_goes_on_with(tiny: Invoke) -> None:
    first = said_by(tiny, "--switch-at", "50")
    assert "No run of BSP alone has measured a target of this job yet." in first
    second = said_by(tiny, "--protocol", "bsp", "--no-guard")
    assert ", which is the target of later runs." in second
    tiny.succeeds("--switch-at", "75", "--inject", "straggler:worker=1,at=1%,for=15%,delay=2ms")
    found = Invoke("uses", "list").answer()
    assert [use["kept"] for use in found][:2] == [True, True]
    assert [use["switch_percent"] for use in found] == [50, 100, 75]
    # Another protocol in the first phase is another job, which nobody wants to learn.
    tiny.succeeds("--protocol", "asp")
    assert len(Invoke("uses", "list").answer()) == 3


def test_a_first_run_that_diverged_is_recorded_and_the_next_one_knows_it(
    job: Job, sqlite_url: str
) -> None:
    run = job("float('nan') if seed == 0 else 0.9", "--learn", "--expected-runs", "3")
    first = run("--seed", "0")
    assert first.exit_code == 1
    assert "this run is recorded as one that diverged with the first way alone; the next one" in (
        " ".join(first.stderr.split())
    )
    (use,) = used(sqlite_url)
    assert (use["diverged"], use["kept"], use["seed"]) == (True, False, 0)
    shown = said_by(Invoke("policy", "show", "job", "--storage", sqlite_url))
    assert "Used in 1 run" in shown, shown
    second = run.answer()
    assert (second["seed"], second["policy"]["version"]) == (1, 1)
    assert [one["diverged"] for one in used(sqlite_url)] == [True, False]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("options", [("--learn",), ("--switch-at", "50")])
def test_a_run_waits_whose_database_fails_at_its_end(
    job: Job, sqlite_url: str, options: tuple[str, ...], known: bool, monkeypatch: Any
) -> None:
    place, run = database_file(sqlite_url), job("0.9")
    aside = place.with_name("aside.db")
    if known:
        run.succeeds("--switch-at", "25", "--seed", "7")
    fails = RunRecorder.times_alone  # the last thing before the training

    def failing(recorder: RunRecorder, identity: Any) -> list[float]:
        found = fails(recorder, identity)
        if place.exists():
            place.rename(aside)
        place.mkdir()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(RunRecorder, "times_alone", failing)
        done = run.succeeds(*options, "--seed", "1")
    (line,) = (one for one in done.stderr.splitlines() if "this run waits in" in one)
    assert "job.uses.jsonl to be recorded (" in line
    assert "error:" not in done.stderr
    place.rmdir()
    if aside.exists():
        aside.rename(place)
    assert "job.uses.jsonl: 1" in said_by(run, "--learn", "--seed", "2")
    assert sorted(use["seed"] for use in used(sqlite_url)) == [1, 2, *[7] * known]


def long_tiny_job(folder: Path) -> str:
    """So many tests that the guard has nothing to see, and room for local SGD."""
    reference = write_tiny_job(folder)
    text = (folder / "tiny.py").read_text()
    text = text.replace("total_worker_steps=48", "total_worker_steps=2800")
    for short, long in (
        ("worker_steps=8,", "worker_steps=200,"),
        ("(80,", "(1200,"),
        ("60", "1000"),
    ):
        text = text.replace(short, long)
    (folder / "tiny.py").write_text(text)
    return reference


def test_the_first_training_looks_for_the_fastest_second_phase_and_later_ones_use_it(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of eight links is slow: who sends a model for each gradient waits for it."""
    monkeypatch.chdir(tmp_path)
    reference = long_tiny_job(tmp_path)
    cluster = ("--trainer", "simulated", "--profile", "bottleneck", "--workers", "8")
    run = Invoke(reference, *cluster, "--storage", sqlite_url, program=main)
    first = said_by(run)
    assert (
        "this run, with seed 0, tries ASP, and QSR:8:0.4:semi-sync where that may be faster, at"
        " 6.25 % and goes on with whichever of them and BSP is fastest here; a switch there should"
        " be fastest for the 3 runs to come"
    ) in first
    chosen = "QSR:8:0.4:semi-sync does the rest, the fastest here: a worker-step takes 0."
    assert f"chosen at worker-step 368: {chosen}" in first
    assert "on this one: a model within 0.01" in first  # nothing is expected of the time
    why = said_by(Invoke("policy", "show", "tiny", "--why", "--storage", sqlite_url))
    assert f"A run compared the protocols at its switch: {chosen}" in why
    again = run.answer()
    assert [phase["protocol"] for phase in again["phases"]] == ["bsp", "qsr:8:0.4:semi-sync"]
    # Who has measured the target first has not chosen either.
    other = Invoke(reference, *cluster, "--storage", f"sqlite:///{tmp_path}/other.db", program=main)
    other.succeeds("--switch-at", "100")
    looked = said_by(other)
    assert "tries ASP, and QSR:8:0.4:semi-sync where that may be faster, at " in looked
    assert " % and goes on with the fastest, or BSP, as that may save later runs more" in looked
    assert other.answer()["second_protocol"] == "qsr:8:0.4:semi-sync"


def test_a_first_run_that_was_killed_goes_on_as_it_began_whatever_was_learnt_meanwhile(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then there is a policy, with the protocols that another run has chosen."""

    class Killed(Observer):
        @override
        def on_evaluation(self, evaluation: Evaluation) -> Verdict:
            if evaluation.worker_step >= 1400:
                raise KeyboardInterrupt
            return Verdict.CONTINUE

    monkeypatch.chdir(tmp_path)
    reference = long_tiny_job(tmp_path)

    def trained(seed: int | None, folder: str, url: str, **fields: Any) -> TrialRecord:
        return train(
            reference,
            trainer="simulated",
            trainer_options={"profile": "bottleneck"},
            workers=8,
            seed=seed,
            storage=url,
            output=tmp_path / f"{folder}.keras",
            checkpoints=tmp_path / folder,
            tell=lambda said: None,
            **fields,
        ).record

    expected = trained(5, "whole", f"sqlite:///{tmp_path}/whole.db")
    assert [phase.protocol for phase in expected.phases] == ["bsp", "qsr:8:0.4:semi-sync"]
    with pytest.raises(KeyboardInterrupt):
        trained(5, "killed", sqlite_url, observer=Killed())
    meanwhile = trained(6, "other", sqlite_url)
    assert meanwhile.spec.identity.protocols == expected.spec.identity.protocols
    record = trained(None, "killed", sqlite_url, resume=True)
    assert record.spec.seed == 5
    assert [event for event in record.events if event.kind != "resumed"] == list(expected.events)
    ends = [
        [(one.worker_step, one.accuracy) for one in each.evaluations] for each in (record, expected)
    ]
    assert ends[0] == ends[1]
    assert record.spec.identity == expected.spec.identity
    assert [use["seed"] for use in used(sqlite_url)] == [6, 5]
