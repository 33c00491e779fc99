"""The command line: results, errors in one line, exit statuses, and what it must not import."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from command_line import LEAST, OTHER, QUICK, Invoke, commands, database_file, elsewhere, error_line
from generated_trainer import GeneratedTrainer, identity

from syncswitch.cli.panels import PanelCommand
from syncswitch.cli.run.main import main as run_main
from syncswitch.cli.search.launch.run import chosen_pairs, run
from syncswitch.cli.search.main import main
from syncswitch.searcher.backends.base import TrainableJob
from syncswitch.searcher.backends.local import LocalTrainer
from syncswitch.searcher.backends.replay import RecordedRuns
from syncswitch.searcher.backends.simulated import SimulatedCluster
from syncswitch.searcher.strategies.registry import STRATEGIES
from syncswitch.storage.database.defaults import ENVIRONMENT_VARIABLE
from syncswitch.storage.errors import RetryableError, UserError
from syncswitch.trainers.job.loading import load_workload
from syncswitch.trainers.trainer import Trainer
from tests.wording import Said


def test_run_says_how_to_use_a_version_that_is_not_the_current_one(invoke: Invoke) -> None:
    def last_words(*arguments: str) -> list[str]:
        return shlex.split(invoke("run", "my job.py:it", *arguments).stdout.splitlines()[-1])

    expected = ["syncswitch-run", "my job.py:it"]
    assert last_words(*LEAST) == expected
    assert last_words(*OTHER) == expected
    assert last_words(*LEAST) == [*expected, "--policy", "1"]
    invoke("policy", "alias", "generated", "current", "1")
    assert last_words(*LEAST) == expected
    assert last_words(*OTHER) == [*expected, "--policy", "2"]
    # syncswitch-run takes the protocols from the policy.
    assert last_words(*LEAST, "--protocols", "asp,bsp") == expected


def test_a_search_with_a_target_marks_its_cost_as_estimated(invoke: Invoke, said: Said) -> None:
    said(invoke.succeeds("run", "digits", *LEAST, "--target-accuracy", "0.95").stdout)


def test_diverged_switch_points_and_no_switch_at_all(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GENERATED_DIVERGES_BELOW_PERCENT", "99")
    result = invoke("run", "digits", *OTHER)
    assert "1 diverged" in result.stdout
    assert "Train generated with BSP for all of its 3,000 worker-steps" in result.stdout
    monkeypatch.setenv("GENERATED_DIVERGES_BELOW_PERCENT", "101")
    result = invoke("run", "digits", *OTHER, "--seed", "1")
    assert result.exit_code == 2
    assert "lower the learning rate" in result.stderr.splitlines()[-1]
    assert "baseline diverged" in invoke("status").stdout


def test_a_policy_is_to_be_used_under_the_conditions_of_its_search(invoke: Invoke) -> None:
    chosen = ["--online", "greedy", "--switch", "restart"]
    result = invoke.succeeds("run", "digits", *LEAST, *chosen)
    assert result.stdout.rstrip().endswith("syncswitch-run digits --online greedy --switch restart")
    # It is another search than the one without.
    said = invoke("run", "digits", *LEAST, "--baseline-runs", "2").stderr
    assert "BSP alone, run 2 of 2:" in said
    assert " switch at 50 %, run 1 of 1:" in said


def test_a_folder_for_checkpoints_that_cannot_be_made_is_one_line(
    invoke: Invoke, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    result = invoke("run", "digits", "--checkpoints", str(tmp_path / "file" / "folder"))
    assert result.exit_code == 2
    assert "--no-share-prefix" in error_line(result)


def test_a_folder_that_no_database_can_name_is_said_before_the_search_begins(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / os.fsdecode(b"caf\xe9")
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.delenv("SYNCSWITCH_CHECKPOINTS")
    result = invoke("run", "digits", *LEAST, "--share-prefix")
    assert result.exit_code == 2
    assert error_line(result).endswith(
        "caf\\udce9/syncswitch-checkpoints': its path is not UTF-8 text; name another with"
        " --checkpoints, or give --no-share-prefix"
    )
    assert "no search here" in invoke("status").stdout


def test_run_prints_the_table_and_the_policy_in_words_and_json(invoke: Invoke, said: Said) -> None:
    result = invoke.succeeds("run", "digits", *QUICK)
    said(result.stdout, result.stderr)

    again = invoke("run", "digits", *QUICK, "--json")
    assert again.stderr.strip() == "this search is finished, with 8 runs"
    content = json.loads(again.stdout)
    assert (content["policy"]["switch_percent"], content["policy"]["version"]) == (12.5, 1)
    cost = content["search"]
    assert cost["trials"] == 8
    assert cost["cost_bsp_multiples"] == pytest.approx(2 * (1 + 0.7 + 0.55 + 0.475))
    assert cost["cost_is_estimated"] is False
    assert cost["wall_seconds"] > 0
    assert [s["switch_percent"] for s in content["switch_points"]] == [100, 50, 25, 12.5]
    assert all(s["accepted"] and s["runs"] == 2 for s in content["switch_points"])


@pytest.mark.parametrize(
    ("options", "strategy", "is_guarded", "percent"),
    [
        ("--strategy paper", "paper", False, 12.5),
        ("--guard", "adaptive", True, 12.5),
        ("--no-guard", "adaptive", False, 25.0),
    ],
)
def test_every_strategy_finds_its_answer_and_says_how_sure_it_is(
    invoke: Invoke, options: str, strategy: str, is_guarded: bool, percent: float, said: Said
) -> None:
    command = ("run", "digits", "--halvings", "4", *options.split())
    said(invoke.succeeds(*command).stdout)
    policy = invoke.answer(*command)["policy"]
    assert (policy["switch_percent"], policy["strategy"]) == (percent, strategy)
    assert policy["guarded"] == is_guarded
    (search,) = invoke.answer("status")
    assert (search["strategy"], search["most_runs"] is None) == (strategy, strategy != "paper")


def test_the_help_of_an_option_names_the_strategies_that_have_it() -> None:
    fields_of = {
        name: {field.name for field in fields(strategy)} for name, strategy in STRATEGIES.items()
    }
    names = "|".join(STRATEGIES)
    said, true = {}, {}
    for option in run.params:
        owners = {name for name in STRATEGIES if option.name in fields_of[name]}
        listed = re.search(
            rf"\(((?:{names})(?:, (?:{names}))*)\)", getattr(option, "help", None) or ""
        )
        if listed and owners:
            said[option.name], true[option.name] = set(listed[1].split(", ")), owners
    assert {"target_runs", "baseline_runs", "guarded"} <= set(said)
    assert said == true


@pytest.mark.parametrize("there", ["no file", "an empty file", "another search"])
def test_a_workload_that_no_trainer_takes_writes_nothing(
    invoke: Invoke, url: str, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    if there == "an empty file":
        database_file(url).touch()
    if there == "another search":
        invoke("run", "digits", *LEAST)
    before = invoke("status", "--json").stdout
    monkeypatch.setattr(
        LocalTrainer, "job", lambda *_: TrainableJob(identity(name="chosen"), idle, "digits")
    )
    result = invoke("run", "digits", *QUICK)
    assert result.exit_code == 2
    assert "the chosen trainer" in error_line(result)
    assert invoke("status", "--json").stdout == before
    assert database_file(url).exists() == (there != "no file")
    assert (there != "an empty file") or database_file(url).read_bytes() == b""


def test_the_first_run_is_made_by_the_trainer_that_was_opened_first(
    invoke: Invoke, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[GeneratedTrainer] = []

    def open_trainer() -> Trainer:
        assert opened or not database_file(url).exists()
        opened.append(GeneratedTrainer())
        return opened[-1]

    monkeypatch.setattr(
        LocalTrainer, "job", lambda *_: TrainableJob(identity(), open_trainer, "digits")
    )
    for _ in range(2):  # the second one is finished, and needs no trainer
        invoke.succeeds("run", "digits", *OTHER)
        assert [(len(trainer.runs), trainer.closed) for trainer in opened] == [(3, 1)]


def test_a_cluster_that_is_lost_at_its_start_is_tried_again(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [1, 2]

    def open_trainer() -> Trainer:
        if failures:
            failures.pop()
            raise RetryableError("no server started")
        return GeneratedTrainer()

    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setattr(
        LocalTrainer, "job", lambda *_: TrainableJob(identity(), open_trainer, "digits")
    )
    invoke.succeeds("run", "digits", *LEAST)


def test_a_trainer_that_was_opened_for_nothing_is_closed(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = GeneratedTrainer()

    def refuse(*_: object) -> None:
        raise UserError("no reporter")

    monkeypatch.setattr("syncswitch.cli.search.launch.making.reporting", refuse)
    monkeypatch.setattr(
        LocalTrainer, "job", lambda *_: TrainableJob(identity(), lambda: trainer, "digits")
    )
    assert "no reporter" in error_line(invoke("run", "digits", *QUICK))
    assert trainer.closed == 1


def idle() -> Trainer:
    raise UserError("the chosen trainer")


def test_status_and_trials(invoke: Invoke) -> None:
    assert "no database" in error_line(invoke("status"))
    invoke("run", "generated", *LEAST)
    (search,) = invoke.answer("status")
    assert (search["state"], search["finished_runs"], search["most_runs"]) == ("done", 2, 2)
    assert "done" in invoke("status", "generated").stdout
    assert "no search of other" in invoke("status", "other").stdout


def test_help_of_every_command(invoke: Invoke) -> None:
    helps: dict[tuple[str, ...], str] = {}
    for path, command in commands(main):
        helps[path] = invoke.succeeds(*path, "--help").stdout
        assert isinstance(command, click.Group) or "--debug" in helps[path]
        if path:
            above = helps[path[:-1]]
            assert f"{path[-1]} " in above
            assert command.get_short_help_str(200) in " ".join(above.split())


@pytest.mark.parametrize("command", ["run", "sweep", "syncswitch-run"])
def test_help_in_panels_fits_a_screen_and_names_every_option(command: str) -> None:
    is_run = command == "syncswitch-run"
    found = run_main if is_run else main.get_command(click.Context(main), command)
    words = [] if is_run else [command]
    program = run_main if is_run else main
    brief, whole = (
        CliRunner().invoke(program, [*words, flag], prog_name="x").stdout
        for flag in ("--help", "--help-all")
    )
    assert len(brief.splitlines()) <= 64
    assert max(map(len, brief.splitlines())) <= 80
    assert isinstance(found, PanelCommand)
    alone = {option.name for option in found.ungrouped_options}
    assert alone - {"version"} == {"debug", "help_all"}
    for option in found.params:
        if isinstance(option, click.Option):
            flag = max(option.opts, key=len)
            assert re.search(rf"{flag}\b", brief), flag
            # Lines may end at a hyphen.
            assert "".join(str(option.help).split()) in "".join(whole.split()), flag


def test_one_policy_and_why_the_others_were_dropped(invoke: Invoke, said: Said) -> None:
    words = ["generated", "--protocols", "bsp,asp", "--protocols", "bsp,ssp:3", *OTHER]
    done = invoke.succeeds("run", *words)
    # The generated second protocols are equally fast; BSP alone is trained once.
    said(done.stdout, *(line for line in done.stderr.splitlines() if line.endswith(":")))
    policies = invoke.answer("policy", "list")
    assert [(one["second_protocol"], one["version"]) for one in policies] == [("asp", 1)]

    found = invoke.answer("run", *words)["pairs"]
    assert [one["protocols"] for one in found] == [["bsp", "asp"], ["bsp", "ssp:3"]]
    assert found[0]["dropped"] is None
    assert found[1]["dropped"].startswith("given up after 2 runs: ")


def test_no_command_shows_the_password_of_its_database(
    invoke: Invoke, postgresql_url: str, tmp_path: Path
) -> None:
    mark = "&" if "?" in postgresql_url else "?"
    url = f"{postgresql_url}{mark}password=hunter2&sslpassword=hunter2"
    page = tmp_path / "report.html"
    shown = ""
    for words in (
        ["policy", "lookup", "generated"],
        ["run", "generated", *LEAST],
        ["run", "generated", *LEAST, "--json"],
        ["status"],
        ["policy", "show", "generated"],
        ["policy", "lookup", "other"],
        ["report", "generated", "-o", str(page)],
        ["db", "check"],
        ["db", "upgrade"],
        ["run", "generated", "--trainer", "replay", "--recordings", url],
    ):
        done = invoke(*words, "--storage", url)
        shown += done.stdout + done.stderr
    assert "password=***" in shown
    assert "hunter2" not in shown
    assert "hunter2" not in page.read_text()


def test_what_init_writes_trains(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "my_job.py"
    result = invoke.succeeds("init", str(file))
    assert f"  syncswitch-search run {file}:workload " in result.stdout
    assert "syncswitch-run my_job.py:workload" in file.read_text()
    workload = load_workload(f"{file}:workload")
    assert (workload.name, workload.data_set) == ("my-job", "my-job-1")
    simulated = ["--trainer", "simulated", "--profile", "sync-switch-resnet32", "--workers", "2"]
    (swept,) = invoke.answer("sweep", f"{file}:workload", "--at", "100", "--runs", "1", *simulated)
    assert swept["mean_accuracy"] > 0.9
    assert "already exists" in error_line(invoke("init", str(file)))


def test_any_is_each_second_protocol_with_the_rate_of_the_workload() -> None:
    seconds = ["asp", "qsr:8:0.16:semi-sync", "local-sgd:4:semi-sync", "selsync:0.3"]
    seconds += ["ssp:3", "dssp:3-15", "gba:3"]
    found = chosen_pairs(SimulatedCluster(), ["any"], "breast-cancer", 8)
    assert found == tuple(("bsp", second) for second in seconds)
    # Nobody knows the rates of recorded runs.
    seconds.remove("qsr:8:0.16:semi-sync")
    found = chosen_pairs(RecordedRuns("recorded.db"), ["any"], "breast-cancer", 8)
    assert found == tuple(("bsp", second) for second in seconds)


# In one process, as its start takes longest: what one has imported, those after it may.
EACH = """
import json, os, sys
sys.modules |= {"pandas": None, "pyarrow": None}
from syncswitch.cli.search.main import main
for words, environment, heavy, status in json.loads(sys.argv[1]):
    os.environ |= environment
    try:
        main(words, prog_name="syncswitch-search")
    except SystemExit as exit:
        found = [name for name in heavy.split() if sys.modules.get(name)]
        assert (exit.code, found) == (status, []), (words, exit.code, found)
    for name in environment:
        del os.environ[name]
"""
TAB = {
    "_SYNCSWITCH_SEARCH_COMPLETE": "bash_complete",
    "COMP_WORDS": "syncswitch-search trials gen",
    "COMP_CWORD": "2",
}
OFTEN = "alembic keras numpy optuna pandas psutil pydantic rich scipy sklearn tensorflow"
HELP = "tensorflow keras optuna alembic rich"
READS = "tensorflow keras optuna alembic sqlalchemy.orm sqlalchemy.dialects.postgresql"


@pytest.mark.usefixtures("one_version")
def test_commands_import_nothing_heavy(url: str, folder: Path) -> None:
    replay = ["run", "generated", "--trainer", "replay", "--recordings", url]
    replay += ["--storage", elsewhere(folder), "--strategy", "paper", "--halvings", "2"]
    asked = [
        (["--help"], {}, f"{OFTEN} sqlalchemy", 0),
        (["policy", "lookup", "generated"], {}, f"{OFTEN} {READS}", 0),
        (["run", "--help"], {}, HELP, 0),
        (["policy", "lookup", "--help"], {}, HELP, 0),
        ([], TAB, READS, 0),
        (["policy", "lookup", "other", "--workers", "8"], {}, READS, 1),
        (["trials"], {}, "tensorflow keras", 0),
        (["trials", "--json"], {}, "tensorflow keras", 0),
        (["trials", "--format", "csv"], {}, "tensorflow keras", 0),
        (["switch-points", "--json"], {}, "tensorflow keras", 0),
        # Nothing of the workload is loaded.
        ([*replay, "--runs", "1"], {}, "tensorflow keras", 0),
    ]
    done = subprocess.run(
        [sys.executable, "-c", EACH, json.dumps(asked)],
        capture_output=True,
        text=True,
        env={**os.environ, ENVIRONMENT_VARIABLE: url},
    )
    assert done.returncode == 0, done.stderr
    assert "plain,generated" in done.stdout.splitlines()


def test_each_run_of_a_search_has_a_folder(invoke: Invoke, tmp_path: Path) -> None:
    found = invoke.answer("run", "digits", *QUICK, "--tensorboard", str(tmp_path / "logs"))
    (group,) = (tmp_path / "logs").iterdir()
    assert group.name == found["policy"]["study"]
    assert sorted(path.parent.name for path in group.glob("*/events.out.tfevents.*")) == [
        f"switch-{percent}-run-{run}" for percent in (100, 12.5, 25, 50) for run in (1, 2)
    ]


@pytest.mark.usefixtures("our_tables")
def test_without_the_package_nothing_is_begun(
    invoke: Invoke, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    before = database_file(url).read_bytes()
    result = invoke("run", "digits", *QUICK, "--tensorboard", str(tmp_path / "logs"))
    assert result.exit_code == 2
    assert "pip install 'syncswitch[tensorboard]'" in error_line(result)
    assert database_file(url).read_bytes() == before


COMMANDS = {
    "report": ["report", "generated"],
    "policy": ["policy", "export", "generated"],
    "csv": ["trials", "--format", "csv"],
    "json": ["trials", "--format", "json"],
    "parquet": ["trials", "--format", "parquet"],
}


@pytest.mark.usefixtures("one_version")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_is_overwritten_only_by_the_command_that_wrote_it(
    invoke: Invoke, url: str, tmp_path: Path, command: str
) -> None:
    database, script, own = database_file(url), tmp_path / "train.py", tmp_path / "output"
    script.write_text("import os\n")
    before = database.read_bytes()
    for path in (database, script):
        line = error_line(invoke(*COMMANDS[command], "-o", str(path)))
        assert f"{path} exists, and is not a file of the kind that is to be written" in line
    assert database.read_bytes() == before
    assert script.read_text() == "import os\n"
    for _ in range(2):
        invoke.succeeds(*COMMANDS[command], "-o", str(own))
        assert own.stat().st_size > 0
