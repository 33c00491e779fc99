"""A model that was trained is saved, and counted once, whatever else cannot be written."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from zipfile import ZipFile, is_zipfile

import pytest
from click.testing import CliRunner, Result

from syncswitch.cli.run.main import main as run
from syncswitch.searcher.training import train
from syncswitch.storage import frames
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.uses.spool import take_in
from syncswitch.trainers.model.kept import kept_for_the_next
from syncswitch.trainers.trainer import Observer, Trainer
from tests import program
from tests.searcher.command_line import Invoke
from tests.tiny_job import write_tiny_job
from tests.warm_program import Fork

JOB = ("--trainer", "simulated", "--workers", "2")
OUTPUTS = ("checkpoints", "database", "uses", "tensorboard", "mlflow")


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory, mlflow_template: Path) -> Iterator[Path]:
    """A folder with a job, a database, a policy file and an empty store of MLflow.

    What is compiled is kept meanwhile.
    """
    folder = tmp_path_factory.mktemp("searched")
    job, url = write_tiny_job(folder), f"sqlite:///{folder}/syncswitch.db"
    shutil.copy(mlflow_template, folder / "mlflow.db")
    plan = ("--strategy", "paper", "--halvings", "1", "--runs", "1", "--threshold", "0.9")
    export = ("policy", "export", "tiny", "-o", f"{folder}/policy.json")
    with kept_for_the_next():
        for words in (("run", job, *plan, *JOB), export):
            Invoke().succeeds(*words, "--storage", url)
        with closing(sqlite3.connect(folder / "syncswitch.db")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # it is copied as a file
        yield folder


class Disk:
    """A small one of its own, at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        self.is_own = not self._mount("-t", "tmpfs", "-o", "size=4m", "tmpfs").returncode

    def _mount(self, *options: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["mount", *options, self.path], capture_output=True, check=False)

    def _needs_own(self) -> None:
        if not self.is_own:
            pytest.skip("only root may mount a disk")

    def fill(self) -> None:
        self._needs_own()
        with (self.path / "filling").open("wb", buffering=0) as file:
            for size in (4096, 1):
                with suppress(OSError):
                    while file.write(bytes(size)):
                        pass

    def lock(self) -> None:
        self._needs_own()
        assert not self._mount("-o", "remount,ro").returncode

    def lose(self) -> None:
        for path in self.path.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            path.write_text("no folder")

    def heal(self) -> None:
        if self.is_own:
            self._mount("-o", "remount,rw")
            (self.path / "filling").unlink(missing_ok=True)

    def close(self) -> None:
        if self.is_own:
            subprocess.run(["umount", "--lazy", self.path], check=True)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = Disk(tmp_path / "disk")
    yield made
    made.close()


@pytest.fixture
def strike(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Has a fault come when the next training is about to begin."""

    def arrange(fault: Callable[[], None]) -> None:
        real = train.logged

        def logged(*arguments: Any) -> Trainer:
            monkeypatch.setattr(train, "logged", real)
            fault()
            return real(*arguments)

        monkeypatch.setattr(train, "logged", logged)

    return arrange


def trained(searched: Path, places: dict[str, Path], *options: str) -> Result:
    """Trains with the policy file; each output has its place."""
    for place in places.values():
        place.mkdir(exist_ok=True)
    shutil.copy(searched / "syncswitch.db", places["database"])
    shutil.copy(searched / "policy.json", places["uses"])
    shutil.copy(searched / "mlflow.db", places["mlflow"])
    words = [
        *(f"{searched}/tiny.py:workload", *JOB, "--policy", str(places["uses"] / "policy.json")),
        *("--storage", url_of(places), "--checkpoints", str(places["checkpoints"] / "own")),
        *("--tensorboard", str(places["tensorboard"] / "logs")),
        *("--mlflow", f"sqlite:///{places['mlflow']}/mlflow.db", "-o", "m.keras", *options),
    ]
    return CliRunner().invoke(run, words)


def url_of(places: dict[str, Path]) -> str:
    return f"sqlite:///{places['database']}/syncswitch.db"


def counted(places: dict[str, Path]) -> int:
    """Uses in the database, once those that wait have been taken in."""
    with open_database(url_of(places), create=False) as database:
        for path in (Path("m.uses.jsonl"), places["uses"] / "policy.uses.jsonl"):
            assert take_in(database, path).kept == ()
        return len(frames.uses(database))


CASES = [
    *itertools.product(itertools.combinations(OUTPUTS, 1), (Disk.fill, Disk.lock, Disk.lose)),
    *itertools.product((OUTPUTS,), (Disk.fill, Disk.lose)),
]


@pytest.mark.parametrize(
    ("struck", "fault"), CASES, ids=[f"{fault.__name__} {'+'.join(s)}" for s, fault in CASES]
)
def test_the_model_is_saved_and_counted_once(
    searched: Path,
    disk: Disk,
    strike: Callable[[Callable[[], None]], None],
    struck: tuple[str, ...],
    fault: Callable[[Disk], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    strike(lambda: fault(disk))
    places = {one: (disk.path if one in struck else Path.cwd()) / one for one in OUTPUTS}
    done = trained(searched, places)
    assert done.exit_code == 0, done.output
    assert is_zipfile("m.keras")
    said = [*caplog.messages, *done.stderr.splitlines()]
    for output, words in (
        ("checkpoints", "no checkpoint can be written to"),
        ("tensorboard", "the TensorBoard log in"),
        ("database", "this run waits in"),
        ("mlflow", "MLflow has no copy of this run"),
    ):
        assert sum(words in line for line in said) == (output in struck), said
    disk.heal()
    if "database" in struck and fault is Disk.lose:
        (waiting,) = Path.cwd().rglob("*.uses.jsonl")
        assert len(waiting.read_text().splitlines()) == 1
    else:
        assert counted(places) == 1
    assert not list(Path.cwd().glob("tiny-checkpoints"))


class Failing(Observer):
    """Fails in the method that it is made for."""

    def __init__(self, method: str) -> None:
        self.method = method

    def __getattribute__(self, name: str) -> Any:
        if name == object.__getattribute__(self, "method"):
            raise OSError(5, "the terminal is gone")
        return object.__getattribute__(self, name)


@contextmanager
def failing(method: str) -> Iterator[Observer]:
    if method == "begin":
        raise OSError(5, "the terminal is gone")
    yield Failing(method)
    if method == "end":
        raise OSError(5, "the terminal is gone")


@pytest.mark.parametrize("method", ["begin", "on_progress", "on_evaluation", "on_event", "end"])
def test_no_display_costs_a_model(searched: Path, disk: Disk, method: str) -> None:
    said: list[str] = []
    done = train.train(
        f"{searched}/tiny.py:workload",
        trainer="simulated",
        workers=2,
        switch_at=50,
        storage="sqlite:///own.db",
        observer=lambda identity: failing(method),
        tell=said.append,
    )
    assert is_zipfile(done.model_path)
    assert done.record.worker_steps == 48
    # Beside what the run has taught.
    (line,) = [one for one in said if "OSError" in one]
    assert line.endswith(": OSError: [Errno 5] the terminal is gone")


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_report_that_cannot_be_written_does_not_change_the_status(
    searched: Path, disk: Disk, options: tuple[str, ...]
) -> None:
    words = [f"{searched}/tiny.py:workload", *JOB, "--switch-at", "50", *options]
    code = f"import sys; sys.argv[1:] = {words!r}; {program.code('syncswitch-run')}"
    with open("/dev/full", "w") as full, open("errors", "w+b") as errors:
        descriptors = tuple(os.dup(one.fileno()) for one in (full, full, errors))
        process = Fork(code, ["-c"], Path.cwd(), program.environment(), descriptors)
        assert process.wait(60) == 0, Path("errors").read_text()
    assert is_zipfile("tiny.keras")
    said = "the model is saved as tiny.keras; its report fails: OSError: [Errno 28]"
    assert said in Path("errors").read_text()


@pytest.mark.parametrize("is_shared", [False, True], ids=["alone", "with-checkpoints"])
def test_a_model_without_room_is_saved_later(
    searched: Path, disk: Disk, strike: Callable[[Callable[[], None]], None], is_shared: bool
) -> None:
    places = {one: Path.cwd() / one for one in OUTPUTS}
    old = disk.path / "m.keras"
    with ZipFile(old, "w") as file:
        file.writestr("config.json", "{}")
    before = old.read_bytes()
    if is_shared:
        places["checkpoints"] = disk.path / "checkpoints"
    strike(disk.fill)
    done = trained(searched, places, "-o", str(old))
    assert done.exit_code == 1, done.output
    said = done.stderr.splitlines()[-1]
    assert said.startswith(f"error: the model cannot be saved as {old} (No space left on device);")
    # What it measured is recorded, though its model could not be saved.
    assert (old.read_bytes(), counted(places)) == (before, 1)
    disk.heal()
    _, folder, resume = shlex.split(said[said.index("--checkpoints") : said.index(" saves it")])
    again = trained(searched, places, "-o", str(old), "--checkpoints", folder, resume)
    assert again.exit_code == 0, again.output
    assert old.read_bytes() != before
    assert is_zipfile(old)
    assert (disk.path / "m-1.keras").read_bytes() == before
    assert f"an earlier run in {old} is kept as {disk.path / 'm-1.keras'}" in again.stderr
    assert (counted(places), Path(folder).exists()) == (1, False)
