"""What a command cannot use: one line, exit status 2, what to do, and nothing is written."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from command_line import commands, database_file, error_line
from search_program import generated_job

from syncswitch.cli.group import failure_of
from syncswitch.cli.run.main import main as run
from syncswitch.cli.search.main import main
from syncswitch.searcher.backends.local import LocalTrainer
from syncswitch.storage.database.defaults import ENVIRONMENT_VARIABLE
from tests.program import TINY_WORKLOAD
from tests.wording import Said, sections


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
    [one for one in (*commands(run), *commands(main)) if not isinstance(one[1], click.Group)],
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

JSON = ["--json"]
CONFLICT = ("parameters-conflict", ["threshold", "threshold_runs"])
REFUSALS = Path(__file__).with_name("bad_input.txt")


@pytest.mark.parametrize("title", sections(REFUSALS), ids=lambda title: title[:80])
def test_what_does_not_fit_is_one_line_and_writes_nothing(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, title: str
) -> None:
    """A title holds the code of the error, which no rewording changes, and the command."""
    code, _, line = title.partition(": ")
    escaped = line.encode("latin-1").decode("unicode_escape")
    program, first, *others = shlex.split(escaped.replace("LONG", LONG))
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, url)
    if "digits" in (first, *others[:1]):  # another workload is loaded
        monkeypatch.setattr(LocalTrainer, "job", generated_job)
    before = set(tmp_path.iterdir())
    command = run if program == "syncswitch-run" else main
    done = CliRunner().invoke(command, [first, *others])
    assert done.exit_code == 2, done.output
    error = CliRunner().invoke(command, [first, *others], standalone_mode=False).exception
    assert error is not None
    assert failure_of(error).code == code
    said = Said(REFUSALS, title, [tmp_path])
    said(error_line(done).replace(LONG, "LONG"))
    said.end()
    assert not database_file(url).exists()
    assert set(tmp_path.iterdir()) - before <= {tmp_path / "__pycache__"}


def test_not_even_a_traceback_shows_the_password() -> None:
    words = ["status", "--debug", "--storage", "postgresql://me:hunter2/name"]
    done = CliRunner().invoke(main, words)
    assert "Traceback" in done.stderr
    assert "hunter2" not in done.output


@pytest.mark.parametrize(
    ("words", "code", "parameters"),
    [
        ("policy lookup digits", "policy-not-found", []),
        ("policy lookup digits --workers 0", "usage-invalid", ["workers"]),
        ("trials digits", "database-not-found", []),
        ("sweep digits --at 100,101", "parameter-invalid", ["at"]),
        ("run digits --threshold-runs 3 --threshold 0.1", *CONFLICT),
        ("trials --storage postgresql://nobody@127.0.0.1:1/none", "database-unusable", []),
    ],
)
def test_an_error_is_json_where_the_result_would_be(
    url: str, monkeypatch: pytest.MonkeyPatch, words: str, code: str, parameters: list[str]
) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, url)
    plain, done = (CliRunner().invoke(main, [*shlex.split(words), *more]) for more in ([], JSON))
    assert done.exit_code == plain.exit_code
    assert done.stderr == plain.stderr
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["parameters"]) == (code, parameters)
    assert error_line(plain) == f"error: {error['message']}"
