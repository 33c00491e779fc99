"""What a command cannot use: one line, exit status 2, what to do, and nothing is written."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from command_line import database_file, error_line
from search_program import generated_job

from syncswitch.cli.run.main import main as run
from syncswitch.cli.search.main import main
from syncswitch.searcher.backends.local import LocalTrainer
from syncswitch.storage.database.defaults import ENVIRONMENT_VARIABLE
from tests.program import TINY_WORKLOAD


def commands(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """The commands of a program, each with its words."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, (*path, name))


def refused(kind: click.ParamType) -> list[str]:
    """Values outside a type; none where only the command itself can tell."""
    if isinstance(kind, click.Choice):
        return ["luck", ""]
    if isinstance(kind, (click.IntRange, click.FloatRange)):
        wrong = ["many", "", "nan"]
        if kind.min is not None:
            wrong.append(str(kind.min if kind.min_open else kind.min - 1))
        if kind.max is not None:
            wrong += [str(kind.max + 1), "9" * 400]
        return wrong
    return ["many", ""] if kind in (click.INT, click.FLOAT) else []


@pytest.mark.parametrize(
    ("path", "command"),
    [*commands(run), *commands(main)],
    ids=lambda value: " ".join(value) or "run" if isinstance(value, tuple) else "",
)
def test_every_option_refuses_what_it_cannot_take(
    path: tuple[str, ...], command: click.Command
) -> None:
    program = main if path else run

    def line(*words: str) -> str:
        done = CliRunner().invoke(program, [*path, *words], prog_name="program")
        assert done.exit_code == 2, (words, done.output)
        return error_line(done)

    how = f"(see {' '.join(('program', *path))} --help)"
    assert line("--nonsense").startswith("error: No such option")
    for option in command.params:
        if not isinstance(option, click.Option) or option.is_flag:
            continue
        flag = max(option.opts, key=len)
        for value in refused(option.type):
            said = line(flag, value)
            assert "Invalid value for" in said, (flag, value)
            assert flag in said
            assert said.endswith(how)


LONG = "x" * 300
COMMAND = "--trainer command --command 'true {switch_step}'"
NINE = "--command sh --total-steps 9"
SIMULATED = "--trainer simulated --workers 2"
AT_FIVE = "--switch-at 5"

FILES = {
    "odd_names.py": "def __getattr__(name):\n    raise RuntimeError('boo')\n",
    "too_much.py": (
        "from dataclasses import replace\n"
        "from syncswitch.trainers.workloads.digits import workload\n"
        "batch = replace(workload, name='batch', batch_size=10**9)\n"
        "larger = replace(workload, name='larger', batch_size=1201)\n"
    ),
    "too_long.py": (
        "from dataclasses import replace\n"
        "from syncswitch.trainers.workloads.digits import workload\n"
        "steps = replace(workload, total_worker_steps=10**30)\n"
    ),
    "odd.py": "class Odd(BaseException):\n    pass\nraise Odd('boo')\n",
    "small.py": TINY_WORKLOAD,
    "low.json": '{"compute_seconds": -1}',
    "huge.json": '{"compute_seconds": 1e308}',
    "mute.py": (
        "class Mute(Exception):\n    def __str__(self):\n        raise RuntimeError\nraise Mute\n"
    ),
}

SEARCHES = [
    ("--tensorboard logs --halvings 0", "--halvings is 0"),
    ("--runs 0", "--runs is 0"),
    ("--runs 10001", "--runs is 10001; allowed: a whole number, 1 to"),
    ("--threshold 0", "--threshold is 0"),
    ("--threshold 1", "--threshold is 1"),
    ("--threshold nan", "--threshold is nan"),
    ("--threshold-runs 2", "--threshold-runs is 2; allowed: a whole number, 3 to 10"),
    ("--threshold-runs 3 --threshold 0.1", "--threshold and --threshold-runs both say how much"),
    ("--protocols any --protocols bsp,asp", "any already names several pairs; leave it"),
    ("--protocols asp,bsp --protocols bsp,asp", "--protocols begin with asp and bsp: "),
    ("--protocols any --dry-run", "--dry-run forecasts the search of one pair; give it"),
    ("--target-accuracy 92", "--target-accuracy is 92:"),
    ("--protocols bsp,xyz", "no protocol 'xyz'"),
    ("--protocols bsp", "--protocols is 'bsp'"),
    ("--seed -1", "--seed is -1"),
    ("--protocols asp,bsp --online elastic", "--online is 'elastic': it acts while"),
    ("--inject mild", "No such option"),
    ("--strategy paper --budget 5", "--budget is not for the strategy paper"),
    ("--strategy paper --no-guard", "--no-guard is not for the strategy paper"),
    ("--baseline-runs 2", "is not for the strategy adaptive; leave it out, or give --strategy p"),
    ("--budget nan", "--budget is nan"),
    ("--least-runs 0", "--least-runs is 0"),
    ("--least-runs 6", "--least-runs is 6; allowed: at most the 5 runs"),
    (
        "--min-kept-share 0.5",
        "--min-kept-share is 0.5; allowed: a share above 0.5 and below 1, such as 0.95",
    ),
    (
        "--min-kept-share 2 --no-guard",
        "--min-kept-share is 2; allowed: a share above 0.5 and below 1, such as 0.95",
    ),
    (
        "--min-kept-share nan",
        "--min-kept-share is nan; allowed: a share above 0.5 and below 1, such as 0.95",
    ),
    (
        "--min-kept-share 0.9",
        "--min-kept-share says how many trainings must keep the accuracy without a guard",
    ),
    ("--expected-runs 0", "--expected-runs is 0; allowed: a whole number, 1 to 1000000"),
    (f"--expected-runs {'9' * 30}", "allowed: a whole number, 1 to 1000000"),
    ("--target-accuracy 0.9 --target-runs 0", "--target-runs is 0"),
    ("--target-runs 3", "--target-runs says how many runs stand behind"),
    ("--strategy paper --target-accuracy 0.9 --baseline-runs 2", "--baseline-runs says how often"),
    ("--dry-run", "give --first-seconds and --second-seconds"),
    ("--dry-run --first-seconds 5", "give --first-seconds and --second-seconds"),
    ("--dry-run --first-seconds -1 --second-seconds 1", "is -1.0: give seconds"),
    ("--first-seconds 5", "need --dry-run"),
    ("--command sh", "--command needs --trainer command, and this is --trainer local"),
    ("--recordings x", "--recordings needs --trainer replay"),
    ("--trainer replay --recordings sqlite:///no.db", "no database at no.db"),
    ("--trainer replay --recordings no.db", "is not a database URL"),
]
BY_COMMAND = [
    ("", "the trainer command needs your training command; add --command 'PROGRAM"),
    ("--command 'train {switch_step}'", "needs the steps of a whole training; add --total"),
    ("--command 'nowhere x' --total-steps 9", "'nowhere', which is not a program here"),
    ("--command 'sh {x}' --total-steps 9", "there is no placeholder {x}; known: "),
    ('--command "sh \'" --total-steps 9', "cannot be split into words"),
    ("--command ' ' --total-steps 9", "--command is empty; give your training"),
    ("--command sh --total-steps 1", "--total-steps is 1: give the steps"),
    (
        f"{NINE} --metric-name loss",
        "--metric-name is 'loss': whether more of it is better is not known",
    ),
    (f"{NINE} --metric-name step --metric-goal min", "step, seconds, diverged mean"),
    (f"{NINE} --metric-name '\x1b[2J' --metric-goal min", r"--metric-name is '\x1b[2J': give"),
    (f"{NINE} --metric-name m --metric-goal min --metric-unit '\x07'", r"--metric-unit is '\x07'"),
    (f"{NINE} --metric-unit km", "--metric-unit is 'km': an accuracy has none"),
    (f"{NINE} --protocols a", "two different names"),
    (f"{NINE} --protocols a,A", "two different names"),
    (f"{NINE} --protocols 'a b,c'", "two different names"),
    (f"{NINE} --silence 0", "--silence is 0; allowed"),
    (f"{NINE} --online greedy", "no cluster of syncswit"),
    (f"{NINE} --launcher processes", "--launcher needs"),
    ("--command 'sh {seed}' --total-steps 9 --share-prefix", "--share-prefix needs"),
]
TRAININGS = [
    ("digits --learn --policy 1", "--learn and --policy both say when to switch"),
    (f"digits --learn {AT_FIVE}", "--learn and --switch-at both say when to switch"),
    ("digits --learn --no-guard", "--learn needs the guard; leave out --no-guard"),
    (f"digits --protocol bsp {AT_FIVE}", "--switch-at and --protocol both say when"),
    ("digits --protocol bulk", "no protocol 'bulk'"),
    (f"digits {AT_FIVE} -o model.h5", ".keras"),
    (f"digits {AT_FIVE} -o no/such/folder/m.keras", "no/such/folder"),
    (f"digits --policy {LONG}", "File name too long"),
    (f"{LONG}.py:x", "File name too long"),
    (f"digits {AT_FIVE} -o {LONG}.keras", "too long"),
    (f"digits {AT_FIVE} --checkpoints {LONG}", "too long"),
    (f"digits {AT_FIVE} --profile uniform", "--profile needs --trainer simulated, and this"),
    (f"digits {AT_FIVE} {SIMULATED} --launcher processes", "--launcher needs --trainer local"),
    (f"digits {AT_FIVE} {SIMULATED} --profile no", "profile 'no' cannot be read"),
    (f"digits {AT_FIVE} {SIMULATED} --switch restart", "has no processes to restart"),
    (f"too_much.py:batch {AT_FIVE}", "batch_size is 1,000,000,000, and there are 1,200 examples"),
    (f"too_much.py:larger {AT_FIVE} {SIMULATED}", "batch_size is 1,201, and there are 1,200 exa"),
    (
        f"job {COMMAND} --total-steps {'9' * 25} {AT_FIVE}",
        "give the steps of a whole training as the command counts them, 2 to 1000000000000000",
    ),
    (
        f"job {COMMAND} --total-steps 9 --output m.keras",
        "--output cannot be used with --trainer command, which has no cluster and saves its own",
    ),
    (f"job {COMMAND} --total-steps 9 --resume", "whose checkpoints are its own: start it again"),
    (f"job {COMMAND} --total-steps 9 {AT_FIVE} --step-name seconds", "give the key under which"),
    (
        f"job {COMMAND} --total-steps 9 {AT_FIVE} --step-name iter --metric-pattern x",
        "has no group named step",
    ),
    (f"job {COMMAND} --total-steps 9 --launcher processes", "--launcher needs --tra"),
    (f"job {COMMAND} --total-steps 9 --learn --no-guard", "--learn needs the guard;"),
    (f"job {COMMAND} --total-steps 9 {AT_FIVE} --policy 1", "both say when to"),
]
OTHERS = [
    ("run nothing", "no workload 'nothing'"),
    (f"run too_much.py:larger {SIMULATED} --protocols ssp:-1,asp", "LEAD must be a whole"),
    (f"run too_much.py:larger {SIMULATED} --protocols bsp,bsp", "two different protocols"),
    (f"run small.py:tiny {SIMULATED} --profile low.json", "compute_seconds is -1: "),
    (f"run small.py:tiny {SIMULATED} --profile huge.json", "compute_seconds is 1e+308: "),
    ("run small.py:tiny --trainer simulated --workers 200", "than two rounds of 200 workers"),
    (
        "run small.py:tiny --trainer simulated --workers 6 --protocols bsp,ds-sync:4",
        "give one of 1, 2, 3, 6",
    ),
    ("trials --events --evaluations --json", "are two tables; give one of them"),
    ("policy import", "Missing argument 'FILE...'"),
    ("policy diff a@1", "Missing argument 'B'"),
    ("run odd.py:x", "importing odd.py failed with Odd: boo;"),
    ("run mute.py:x", "importing mute.py failed with Mute;"),
    ("run 'dig\udcffits'", r"the argument 'dig\udcffits' is not UTF-8 text"),
    ("run odd_names.py:x", "has no 'x' (it holds no Workload; RuntimeError: boo)"),
    ("run too_long.py:steps", "give a whole number, 1 to 1000000000000000"),
    ("run --trainer simulated", "no WORKLOAD is named"),
    ("sweep digits --at 100,101", "--at is '100,101': give 1 to 30 percents from 0"),
    ("sweep digits --at half", "--at is 'half': give"),
    ("sweep digits --at nan", "--at is 'nan': give"),
    ("sweep digits --workers 4,8", "'4,8' is not a valid integer"),
    ("sweep digits --inject ' Kill:chief,at=5%'", "cannot be used in a sweep, whose runs"),
    ("sweep digits --target-accuracy 0", "--target-accuracy is 0; allowed: above 0 and"),
    ("policy import /dev/zero", "/dev/zero: it is not a regular file"),
    ("policy import pipe", "pipe: it is not a regular file"),
    ("import pipe", "pipe: it is not a regular file"),
    ("profile show pipe", "it is not a regular file"),
    ("profile times nope", "profile 'nope' cannot be read"),
    ("profile times uniform --at 10,200", "--at holds '200'"),
    ("profile times uniform --at x", "--at holds 'x'"),
    ("profile times uniform --protocols ssp:3 --workers 1", "needs 2 workers"),
    ("profile times uniform --protocols bsp,nonsense", "no protocol 'nonsense'"),
    ("profile calibrate x --server-bandwidth 1", "give --parameters"),
    (f"uses import {LONG}", f"File name too long: '{LONG}'; give a shorter name"),
    ("init workload.txt", "FILE is 'workload.txt'; give a name that ends in .py"),
    ("trials --json --format csv", "--json and --format csv contradict each other"),
    ("trials -o table", "--output goes with --format csv, json or parquet"),
    ("trials --evaluations", "--evaluations goes with --format csv, json or parquet"),
]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        *((f"run digits {words}", said) for words, said in SEARCHES),
        *((f"run --trainer command {words}", said) for words, said in BY_COMMAND),
        *((f"syncswitch-run {words}", said) for words, said in TRAININGS),
        *OTHERS,
    ],
    ids=lambda value: value[:60],
)
def test_what_does_not_fit_is_one_line_and_writes_nothing(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: str
) -> None:
    first, second, *others = shlex.split(words)
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, url)
    if second == "digits":  # another workload is loaded
        monkeypatch.setattr(LocalTrainer, "job", generated_job)
    before = set(tmp_path.iterdir())
    if first == "syncswitch-run":
        done = CliRunner().invoke(run, [second, *others])
    else:
        done = CliRunner().invoke(main, [first, second, *others])
    assert done.exit_code == 2, done.output
    assert said in error_line(done)
    assert not database_file(url).exists()
    assert set(tmp_path.iterdir()) - before <= {tmp_path / "__pycache__"}


def test_not_even_a_traceback_shows_the_password() -> None:
    words = ["status", "--debug", "--storage", "postgresql://me:hunter2/name"]
    done = CliRunner().invoke(main, words)
    assert "Traceback" in done.stderr
    assert "hunter2" not in done.output
