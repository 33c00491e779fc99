"""Uses that wait in a file: none is lost, and none is counted twice."""

from __future__ import annotations

import fcntl
import json
import math
import multiprocessing
import os
import signal
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, make_url, text

from syncswitch.storage import frames
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.errors import RetryableError, UserError
from syncswitch.storage.records.guard import FailedSwitch, GuardOutcome
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import Evaluation, RunEvent
from syncswitch.storage.uses import spool
from syncswitch.storage.uses.spool import TakenIn, spool_beside, spool_use, take_in
from syncswitch.storage.uses.store import uses as stored_uses
from tests.storage.conftest import IDENTITY, POLICY, both_databases
from tests.storage.uses.conftest import use_of


@pytest.fixture
def spool_path(folder: Path) -> Path:
    return folder / "digits.uses.jsonl"


def ids(database: Database) -> list[str]:
    return list(frames.uses(database)["use_id"])


def test_a_policy_file_has_its_spool_beside_it() -> None:
    assert spool_beside(Path("shared/digits.json")) == Path("shared/digits.uses.jsonl")


@both_databases
def test_uses_come_into_the_database_as_if_they_had_gone_there(
    database: Database, used_policy: TimingPolicy, spool_path: Path
) -> None:
    curve = (Evaluation(500, 1.5, 0.8, math.nan), Evaluation(1000, 2.5, 0.9, math.inf))
    events = (RunEvent("alarmed", 700, 2.5, "it said \udcff\n", 1, 0.5),)
    failed = FailedSwitch(12.5, "below \udcff", 700, 2.5, 1.25, 0.8)
    guard = GuardOutcome(50.0, (failed, replace(failed, switch_percent=25.0, accuracy=None)))
    uses = [
        use_of(used_policy),
        use_of(used_policy, 1, evaluations=curve, events=events, guard=guard),
    ]
    for use in uses:
        spool_use(spool_path, use)
    assert spool_path.read_bytes().count(b"\n") == 2
    assert take_in(database, spool_path) == TakenIn(recorded=2)
    assert not spool_path.exists()
    trials = frames.trials(database)
    assert list(trials["use_id"]) == ["use-0", "use-1"]
    assert list(trials["guard"]) == ["off", "alarmed"]
    (_, stored) = stored_uses(database, IDENTITY.fingerprint)
    expected = [replace(one, alarm="below ?") for one in guard.failed]
    assert list(stored.failed_switches) == expected
    assert list(frames.evaluations(database)["accuracy"]) == [0.8, 0.9] * 2
    assert list(frames.events(database)["reason"]) == ["it said ?\n"]
    assert take_in(database, spool_path) == TakenIn()


def test_a_line_that_is_not_whole_stays_with_a_word(
    database: Database, used_policy: TimingPolicy, spool_path: Path
) -> None:
    spool_use(spool_path, use_of(used_policy, 0))
    whole = spool_path.read_bytes()
    spool_path.write_bytes(whole + whole[:200])  # whoever wrote the second was killed
    (word,) = take_in(database, spool_path).kept
    assert word == f"line 2 of {spool_path} stays there: it is torn or altered"
    assert spool_path.read_bytes() == whole[:200]
    spool_use(spool_path, use_of(used_policy, 1))  # begins on a line of its own
    taken = take_in(database, spool_path)
    assert (taken.recorded, len(taken.kept)) == (1, 1)
    assert spool_path.read_bytes() == whole[:200] + b"\n"
    assert ids(database) == ["use-0", "use-1"]


@pytest.mark.parametrize("line", ["[]", "{}", "[" * 100_000, '{"use_id": 3}', "\0"])
def test_what_is_no_use_stays(database: Database, spool_path: Path, line: str) -> None:
    spool_path.write_text(f"{line}\n")
    assert len(take_in(database, spool_path).kept) == 1
    assert spool_path.read_text() == f"{line}\n"


def test_a_use_of_a_policy_that_is_not_here_stays_until_it_is(
    database: Database, used_policy: TimingPolicy, spool_path: Path
) -> None:
    other = replace(used_policy, study="elsewhere")
    spool_use(spool_path, use_of(other, 0))
    spool_use(spool_path, use_of(used_policy, 1))
    taken = take_in(database, spool_path)
    assert taken.recorded == 1
    assert "study 'elsewhere'" in taken.kept[0]
    assert "policy import FILE" in taken.kept[0]
    assert (spool_path.read_bytes().count(b"\n"), ids(database)) == (1, ["use-1"])


def test_an_impossible_value_keeps_nobody_else_out(
    database: Database, used_policy: TimingPolicy, spool_path: Path
) -> None:
    spool_use(spool_path, use_of(used_policy, 0, converged_accuracy=1e301))
    spool_use(spool_path, use_of(used_policy, 1))
    taken = take_in(database, spool_path)
    assert (taken.recorded, len(taken.kept)) == (1, 1)
    assert "refuses these values" in taken.kept[0]


def _killed(work: Callable[[], object]) -> None:
    """Does a work in a process of its own, which kills itself in the course of it."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


@both_databases
def test_whoever_is_killed_between_the_commit_and_the_removal_counts_nothing_twice(
    database: Database, used_policy: TimingPolicy, spool_path: Path
) -> None:
    for number in range(3):
        spool_use(spool_path, use_of(used_policy, number))
    lines, url = spool_path.read_bytes(), database.url
    database.close()

    def work() -> None:
        Path.unlink = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        with open_database(url, create=False) as own:
            take_in(own, spool_path)

    _killed(work)
    assert spool_path.read_bytes() == lines
    assert ids(database) == ["use-0", "use-1", "use-2"]
    assert take_in(database, spool_path) == TakenIn(known=3)
    assert not spool_path.exists()
    assert ids(database) == ["use-0", "use-1", "use-2"]


def test_whoever_is_killed_while_it_replaces_the_file_loses_nothing(
    database: Database, used_policy: TimingPolicy, spool_path: Path
) -> None:
    spool_use(spool_path, use_of(used_policy, 0))
    spool_use(spool_path, use_of(replace(used_policy, study="elsewhere"), 1))
    database.close()

    def work() -> None:
        os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        with open_database(database.url, create=False) as own:
            take_in(own, spool_path)

    _killed(work)
    taken = take_in(database, spool_path)
    assert (taken.known, len(taken.kept), ids(database)) == (1, 1, ["use-0"])
    assert os.listdir(spool_path.parent).count(spool_path.name) == 1


@both_databases
def test_all_at_once_lose_nothing_and_count_nothing_twice(
    database: Database,
    used_policy: TimingPolicy,
    spool_path: Path,
    at_once: Callable[[Callable[[int], Any], int], list[Any]],
) -> None:
    url = database.url
    database.close()

    def work(number: int) -> None:
        for count in range(3):
            spool_use(spool_path, use_of(used_policy, 10 * number + count))
            with open_database(url, create=False) as own:
                take_in(own, spool_path)

    at_once(work, 3)
    assert sorted(ids(database)) == sorted(f"use-{10 * n + c}" for n in range(3) for c in range(3))
    assert not spool_path.exists()


def test_uses_stay_while_the_server_has_no_such_database(
    new_postgresql: Callable[[], str], administrator: Engine, spool_path: Path
) -> None:
    url = new_postgresql()
    with open_database(url, create=True) as database:
        spool_use(spool_path, use_of(POLICY))
        before = spool_path.read_bytes()
        with administrator.connect() as connection:
            connection.execute(text(f"DROP DATABASE {make_url(url).database} WITH (FORCE)"))
        with pytest.raises(RetryableError, match="was lost"):
            take_in(database, spool_path, patience_seconds=0)
    assert spool_path.read_bytes() == before


def test_a_spool_that_cannot_be_written_says_so(folder: Path) -> None:
    with pytest.raises(UserError, match=r"cannot write the file .*missing/x\.uses\.jsonl: No such"):
        spool_use(folder / "missing" / "x.uses.jsonl", use_of(POLICY))


def test_who_is_stopped_at_work_on_a_spool_keeps_nobody_waiting_for_ever(
    database: Database, used_policy: TimingPolicy, spool_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool_use(spool_path, use_of(used_policy))
    monkeypatch.setattr(spool, "_LOCK_SECONDS", 0.1)
    with spool_path.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process has been at work on it for too long"):
            spool_use(spool_path, use_of(used_policy, 1))
        with pytest.raises(UserError, match="for too long; they stay in it"):
            take_in(database, spool_path)
    assert take_in(database, spool_path) == TakenIn(recorded=1)


def test_a_pipe_is_no_spool(database: Database, spool_path: Path) -> None:
    os.mkfifo(spool_path)
    with pytest.raises(UserError, match="it is no plain file; they stay in it"):
        take_in(database, spool_path)
    assert stat.S_ISFIFO(spool_path.stat().st_mode)


def test_a_line_is_plain_json(spool_path: Path) -> None:
    spool_use(spool_path, use_of(POLICY))
    line = json.loads(spool_path.read_text())
    assert (line["use_id"], line["study"], line["version"]) == ("use-0", "digits-1", 1)
    assert line["record"]["converged_accuracy"] == 0.89
