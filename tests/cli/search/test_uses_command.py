"""`syncswitch-search uses`, and what `policy` says of the later runs with one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Invoke, error_line, export
from generated_trainer import GeneratedTrainer, identity
from searches import policies_of

from syncswitch.storage.database.engine import open_database
from syncswitch.storage.records.guard import GuardOutcome
from syncswitch.storage.records.policy import PolicyUse, TimingPolicy, whole_use
from syncswitch.storage.records.trial import RunConditions, TrialRecord, TrialSpec
from syncswitch.storage.uses.spool import spool_use
from syncswitch.storage.uses.store import record_use
from tests.storage.conftest import sent_back


def use(policy: TimingPolicy, number: int, **measured: object) -> PolicyUse:
    trained: TrialRecord = GeneratedTrainer(noise=0).train(
        TrialSpec(identity(), policy.switch_percent, number)
    )
    found = whole_use(policy, f"use-{number}", replace(trained, **measured))  # type: ignore[arg-type]
    assert found is not None
    return found


@pytest.fixture
def policy(one_version: None, url: str) -> TimingPolicy:
    (found,) = policies_of(url)
    return found


@pytest.fixture
def used(policy: TimingPolicy, url: str) -> TimingPolicy:
    """A policy that was used: kept, lost, and kept after its guard went back."""
    with open_database(url, create=False) as database:
        record_use(database, use(policy, 0, guard=GuardOutcome(policy.switch_percent)))
        record_use(database, use(policy, 1, converged_accuracy=0.5))
        record_use(database, use(policy, 2, guard=sent_back(25.0, 37.5, held_percent=50.0)))
    return policy


def test_a_policy_says_how_it_has_done(used: TimingPolicy, invoke: Invoke) -> None:
    gain = used.measured.baseline_seconds / used.measured.training_seconds
    kept = f"2 kept the accuracy, {gain:.2f} times as fast"
    words = f"Used in 3 runs: {kept}; the guard went back once."
    for command in ("lookup", "show"):
        result = invoke("policy", command, "generated")
        assert words in result.stdout.splitlines()
    shown = invoke.answer("policy", "show", "generated")["uses"]
    assert shown["last_ended_at"].endswith("+00:00")
    assert [shown[name] for name in ("uses", "kept", "alarms", "kept_after_alarm")] == [3, 2, 1, 1]
    assert shown["speed_up"] == pytest.approx(gain)
    assert "3 runs: 2 kept the accuracy" in invoke("status", "generated", "--once").stdout
    assert "3 (2 kept)" in invoke("status", "--once").stdout
    (document,) = invoke.answer("status")
    # They are nobody's trials.
    assert (document["finished_runs"], document["uses"]["uses"]) == (len(used.evidence), 3)


def test_the_list(used: TimingPolicy, invoke: Invoke, url: str) -> None:
    lines = invoke("uses", "list").stdout.splitlines()
    assert len(lines) == 2 + 3
    names = ["workload", "version", "seed", "accuracy", "kept", "seconds", "guard", "held", "ended"]
    assert lines[0].split() == names
    today = str(use(used, 0).record.ended_at.date())
    kept = f"{use(used, 0).record.converged_accuracy:.4f}"
    seconds, held = f"{used.measured.training_seconds:.1f}", [f"{used.switch_percent:g}", "%"]
    assert [line.split() for line in lines[2:]] == [
        ["generated", "1", "0", kept, "yes", seconds, "quiet", *held, today],
        ["generated", "1", "1", "0.5000", "no", seconds, "off", *held, today],
        ["generated", "1", "2", kept, "yes", seconds, "alarmed", "50", "%", today],
    ]
    conditions = RunConditions(injections=("kill:ps,at=60%",))
    with open_database(url, create=False) as database:
        spec = replace(use(used, 3).record.spec, conditions=conditions)
        record_use(database, use(used, 3, spec=spec))
    assert "kill:ps" in invoke("uses", "list", "generated").stdout
    assert "Used in 3 runs" in invoke("policy", "lookup", "generated").stdout


@pytest.mark.usefixtures("used")
def test_the_list_for_programs(invoke: Invoke, tmp_path: Path) -> None:
    documents = invoke.answer("uses", "list")
    assert [one["use_id"] for one in documents] == ["use-0", "use-1", "use-2"]
    assert [one["kept"] for one in documents] == [True, False, True]
    known = ("failed_percents", "held_percent", "guard_alarm", "guard_lost_seconds")
    why = "25 %: it fails; 37.5 %: it fails"
    assert [documents[2][name] for name in known] == ["25, 37.5", 50.0, why, 3.5]
    assert (documents[1]["failed_percents"], documents[1]["guard_lost_seconds"]) == (None, None)
    path = tmp_path / "uses.csv"
    written = invoke("uses", "list", "--format", "csv", "-o", str(path))
    assert written.stderr == f"uses written to {path}\n"
    assert path.read_text().splitlines()[0].split(",") == list(documents[0])
    assert "--output goes with" in error_line(invoke("uses", "list", "-o", str(path)))


def test_of_what_nobody_used_nothing_is_said_until_waiting_uses_are_taken_in(
    policy: TimingPolicy, invoke: Invoke, tmp_path: Path
) -> None:
    assert "used" not in invoke("policy", "lookup", "generated").stdout.lower()
    assert invoke.answer("policy", "show", "generated")["uses"]["uses"] == 0
    listed = invoke("uses", "list", "generated")
    nothing = "no later runs with a policy of generated here; syncswitch-run makes them\n"
    assert listed.stdout == nothing

    path = tmp_path / "job.uses.jsonl"
    spool_use(path, use(policy, 0))
    spool_use(path, use(replace(policy, study="elsewhere"), 1))
    result = invoke.succeeds("uses", "import", str(path))
    first, second = result.stdout.splitlines()
    assert first == f"{path}: 1 imported, 0 already there"
    assert second.startswith(f"- line 2 of {path} stays there: the policy of 'generated'")
    again = invoke.answer("uses", "import", str(path))
    assert [one["recorded"] for one in again] == [0]
    missing = invoke("uses", "import", str(tmp_path / "none.jsonl"))
    assert "there is no file" in error_line(missing)
    # A policy file brings those that wait beside it.
    file = export(invoke, path.with_name("job.json"))
    spool_use(path, use(policy, 2))
    assert f"1 later run imported from {path}" in invoke("policy", "import", str(file)).stderr
    assert "Used in 2 runs: 2 kept" in invoke("policy", "lookup", "generated").stdout


def test_no_file_of_others_is_touched_by_an_import(
    policy: TimingPolicy, invoke: Invoke, url: str, tmp_path: Path
) -> None:
    names = ("a.uses.jsonl", "notes.txt", "empty", "folder")
    waiting, notes, empty, folder = (tmp_path / name for name in names)
    own = Path(url.removeprefix("sqlite:///"))
    notes.write_text("my notes\n")
    folder.mkdir()
    empty.touch()
    spool_use(waiting, use(policy, 0))
    others = [str(notes), str(own), str(empty), str(folder)]
    result = invoke("uses", "import", *others, str(waiting))
    assert (result.exit_code, result.stdout.count("1 imported")) == (2, 1)
    refused = [result.stderr.count(f"{one} has no run with a policy") for one in others]
    assert refused == [1, 1, 1, 0]
    assert f"{folder}: Is a directory" in result.stderr
    assert (notes.read_text(), empty.exists(), waiting.exists()) == ("my notes\n", True, False)
    assert len(invoke.answer("uses", "list")) == 1
    # Nor is what happens to lie beside a policy file, which is taken in all the same.
    file = export(invoke, tmp_path / "job.json")
    (tmp_path / "job.uses.jsonl").write_text("mine")
    told = invoke.succeeds("policy", "import", str(file)).stderr
    assert "job.uses.jsonl has no run with a policy" in told
    assert (tmp_path / "job.uses.jsonl").read_text() == "mine"
