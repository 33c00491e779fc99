"""Everything that is said of a training command: in its own words, and with its metric's values."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from syncswitch.cli.run.main import main as train
from syncswitch.cli.search.main import main as search
from tests import program
from tests.searcher.command_line import Invoke, error_line
from tests.trainers.command.programs import command
from tests.wording import Said

# Less is better, and a switch before step 20 costs 0.1.
LOSES = """
import json, math, sys
folder, switch, seed = sys.argv[1:]
with open(folder + "/metrics.jsonl", "a") as results:
    for step in range(0, 101, 5):
        loss = 0.43 + 2 * math.exp(-step / 8) + int(seed) % 7 / 10000 + 0.1 * (int(switch) < 20)
        seconds = (step + 3 * min(step, int(switch))) / 10
        print(json.dumps({"step": step, "seconds": seconds, "val_loss": loss}), file=results)
"""
pytestmark = pytest.mark.slow

METRIC = ("--metric-name", "val_loss", "--metric-goal", "min")
# Words for clusters, and names in capitals of what has none.
FOREIGN = re.compile(r"worker(?!s'? N)|staleness|\bFIRST\b|\bSECOND\b|protocol alone|ms\.")


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return shlex.join(command(tmp_path, LOSES, "{output_dir}", "{switch_step}", "{seed}").words)


@pytest.fixture
def job(text: str) -> tuple[str, ...]:
    return ("--trainer", "command", "--command", text, "--total-steps", "100", *METRIC)


def test_no_word_is_about_clusters_and_no_loss_is_negated(
    job: tuple[str, ...], sqlite_url: str
) -> None:
    found = Invoke(program=search, SYNCSWITCH_STORAGE=sqlite_url)
    trained = Invoke(program=train, SYNCSWITCH_STORAGE=sqlite_url)
    done = found.succeeds("run", "losing", *job, "--threshold", "0.05", "--halvings", "2")
    said = [done]
    assert "Train `losing` the first way for 25 % of its 100 steps, then the second" in done.stdout
    assert "The first way alone reached 0.43" in done.stdout
    assert "the first way alone, run 1: val_loss 0.43" in done.stderr
    # What trains with the guard comes first, and can be pasted as it is.
    how = done.stdout.partition("use it with:\n")[2].splitlines()
    name, *words = shlex.split(how[0])
    assert (name, how[1]) == ("syncswitch-run", "or by itself, without a guard:")
    said.append(trained.succeeds(*words))
    assert "losing with policy version 1: val_loss 0.43" in said[-1].stdout

    looks = (
        ("policy", "list"),
        ("policy", "lookup", "losing"),
        ("policy", "show", "losing", "--why"),
        ("policy", "export", "losing", "-o", "losing.json"),
        ("policy", "revise", "losing"),
        ("uses", "list"),
        ("trials", "losing"),
        ("switch-points", "losing"),
        ("status", "losing", "--once"),
        ("sweep", "losing", *job, "--policy", "losing", "--runs", "1"),
    )
    said += [found.succeeds(*words) for words in looks]
    for one in said:
        text = (one.stdout + one.stderr).replace("--workers", "").replace(job[3], "")
        assert not FOREIGN.search(text), text

    documents = [
        *(found.answer(*words) for words in looks if words[1] not in ("export", "revise")),
        found.answer("run", "losing", *job, "--threshold", "0.05", "--halvings", "2"),
        trained.answer("losing", *job),
    ]
    for document in documents:
        text = json.dumps(document)
        assert re.search(r'value": (\[)?0\.\d', text), text
        assert not re.search(r'accurac(y|ies)": (\[)?-', text), text
    assert documents[-1]["value"] == pytest.approx(0.43, abs=0.01)
    assert documents[1]["band"]["curve"][-1]["value"] > 0.4


def test_a_policy_of_another_command_says_what_differs(
    job: tuple[str, ...], sqlite_url: str, said: Said
) -> None:
    run = Invoke("losing", *job, "--storage", sqlite_url, program=train)
    run.succeeds("--learn")
    for changes in (
        "--total-steps 200",
        "--workers 2",
        "--protocols a,b",
        "--metric-goal max",
        "--command 'true {seed}'",
        "--workers 2 --protocols a,b",
    ):
        done = run(*shlex.split(changes), "--no-learn")
        assert done.exit_code == 2
        said(error_line(done))
    told = run.succeeds("--workers", "2").stderr.splitlines()
    said(*(line for line in told if "begins its own" in line))


def test_the_same_failure_is_shown_once(tmp_path: Path) -> None:
    fails = "import sys\nprint('began as', sys.argv[1])\nraise ValueError('no GPU')"
    words = shlex.join(command(tmp_path, fails, "{output_dir}", "{switch_step}").words)
    job = ("--trainer", "command", "--command", words, "--total-steps", 100, "--parallel-runs", 2)
    done = program.run("syncswitch-search", "run", *job, folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("ValueError: no GPU") == 1
    assert done.stderr.count("it printed the same as before") >= 3
    assert done.stderr.splitlines()[-1].startswith("error: gave up after 3 failures in a row (the")
