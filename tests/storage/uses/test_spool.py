"""Uses that wait in a file: none is lost, and none is counted twice."""

from __future__ import annotations

import fcntl
import json
import math
import os
import random
import signal
import stat
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest
from sqlalchemy import Engine, make_url, text

from syncswitch.storage import frames
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.records.guard import FailedSwitch, GuardOutcome
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import Evaluation, RunEvent
from syncswitch.storage.uses import spool
from syncswitch.storage.uses.spool import TakenIn, spool_use, take_in
from syncswitch.storage.uses.store import uses as stored_uses
from tests.failing import fails
from tests.processes import exit_code_of
from tests.storage.conftest import IDENTITY, POLICY, AtOnce, both_databases, use_of


@pytest.fixture
def spool_path(folder: Path) -> Path:
    return folder / "digits.uses.jsonl"


def ids(database: Database) -> list[str]:
    return list(frames.uses(database)["use_id"])


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
    assert list(stored.failed) == expected
    assert list(frames.evaluations(database)["accuracy"]) == [0.8, 0.9] * 2
    assert list(frames.events(database)["reason"]) == ["it said ?\n"]
    assert take_in(database, spool_path) == TakenIn()


def test_runs_that_waited_when_the_protocols_were_part_of_the_job_come_in(
    database: Database, used_policy: TimingPolicy, spool_path: Path
) -> None:
    spool_use(spool_path, use_of(used_policy))
    use = json.loads(spool_path.read_text())
    spec = use["record"]["spec"]
    spec["identity"] = {**spec["identity"]["job"], **spec["identity"]["protocols"]}
    del spec["identity"]["momentum_after_switch"]  # what the first runs left unsaid
    spool_path.write_text(json.dumps(use) + "\n")
    assert take_in(database, spool_path) == TakenIn(recorded=1)
    (stored,) = stored_uses(database, IDENTITY.fingerprint)
    assert (stored.job.second_protocol, stored.job.momentum_after_switch) == ("asp", "same")


GOLDEN = Path(__file__).with_name("golden_uses_1.jsonl")


def changed_lines(change: Callable[[dict[str, Any]], Any]) -> str:
    """The lines of the first version, each changed."""
    lines = []
    for line in GOLDEN.read_text().splitlines():
        use = json.loads(line)
        change(use)
        lines.append(json.dumps(use) + "\n")
    return "".join(lines)


def add_fields(value: Any, name: str = "") -> None:
    """As a later version may, in each part of a use."""
    if isinstance(value, list):
        for one in value:
            add_fields(one)
    elif isinstance(value, dict) and name not in ("software", "checkpoints"):  # versions, paths
        for part, one in value.items():
            add_fields(one, part)
        value["later"] = {"one": [1, None]}


@pytest.mark.parametrize(
    "change",
    [lambda use: None, lambda use: use.pop("schema_version"), add_fields],
    ids=["as it was", "without a version", "with fields of later versions"],
)
def test_what_the_first_version_has_written_comes_in(
    database: Database,
    used_policy: TimingPolicy,
    spool_path: Path,
    change: Callable[[dict[str, Any]], Any],
) -> None:
    spool_path.write_text(changed_lines(change))
    assert take_in(database, spool_path) == TakenIn(recorded=2)
    trials = frames.trials(database)
    assert list(trials["use_id"]) == ["use-0", "use-1"]
    assert list(trials["guard"]) == ["off", "alarmed"]
    (_, use) = stored_uses(database, IDENTITY.fingerprint)
    alarm = "below the band"
    assert list(use.failed) == [FailedSwitch(12.5, alarm, 700, 2.5, 1.25, 0.8)]
    assert list(frames.evaluations(database)["accuracy"])[-2:] == [0.8, 0.9]
    assert used_policy.job.fingerprint == IDENTITY.fingerprint


def missing(known: Any, written: Any, place: str = "") -> list[str]:
    """The fields of one JSON value that another one lacks."""
    if not isinstance(known, dict) or place == ".record.software":
        return []
    lost = [f"{place}.{name}" for name in known if name not in written]
    both = [name for name in known if name in written]
    return lost + [
        one for name in both for one in missing(known[name], written[name], f"{place}.{name}")
    ]


def test_what_is_written_has_all_fields_that_the_first_version_wrote(tmp_path: Path) -> None:
    for line in GOLDEN.read_bytes().splitlines():
        spool_use(tmp_path / "again", spool._parsed(line))
    again = (tmp_path / "again").read_text().splitlines()
    for known, written in zip(GOLDEN.read_text().splitlines(), again, strict=True):
        assert missing(json.loads(known), json.loads(written)) == []


def test_what_a_newer_version_has_written_stays_and_nothing_is_lost(
    database: Database, used_policy: TimingPolicy, spool_path: Path
) -> None:
    newer = changed_lines(lambda use: use.update(schema_version=2))
    spool_path.write_text(newer)
    taken = take_in(database, spool_path)
    assert taken.kept == tuple(
        f"line {number} of {spool_path} stays there: it was written by a newer syncswitch: its"
        " schema version is 2; allowed: 1; update syncswitch"
        for number in (1, 2)
    )
    assert (taken.recorded, spool_path.read_text()) == (0, newer)
    spool_use(spool_path, use_of(used_policy, 3))
    taken = take_in(database, spool_path)
    assert (taken.recorded, len(taken.kept), spool_path.read_text()) == (1, 2, newer)


def refused(spool_path: Path) -> list[bytes]:
    """Lines that were set aside."""
    return spool_path.with_name("digits.refused.jsonl").read_bytes().splitlines()


def test_a_line_that_is_not_whole_is_set_aside_with_a_word(
    database: Database, used_policy: TimingPolicy, spool_path: Path
) -> None:
    spool_use(spool_path, use_of(used_policy, 0))
    whole = spool_path.read_bytes()
    spool_path.write_bytes(whole + whole[:200])  # whoever wrote the second was killed
    spool_use(spool_path, use_of(used_policy, 1))  # begins on a line of its own
    taken = take_in(database, spool_path)
    aside = f"{spool_path.parent}/digits.refused.jsonl"
    assert taken.set_aside == (
        f"line 2 of {spool_path} is not a valid run (it is torn or altered); it is now in {aside}",
    )
    assert (taken.recorded, ids(database)) == (2, ["use-0", "use-1"])
    assert (refused(spool_path), spool_path.exists()) == ([whole[:200]], False)


@pytest.mark.parametrize(
    "content", [b"x", b"a,b\r\n1,2", b"{}\n", b"SQLite format 3\0\n\xff\r\xfe", b"[1]\n" * 9]
)
def test_a_file_that_holds_no_use_stays_as_it_is(
    database: Database, spool_path: Path, content: bytes
) -> None:
    spool_path.write_bytes(content)
    with fails("file-unusable", r"has no run with a policy .* is left as it is"):
        take_in(database, spool_path)
    assert spool_path.read_bytes() == content
    assert list(spool_path.parent.glob("*.jsonl")) == [spool_path]


def test_what_is_refused_is_kept_byte_for_byte(
    database: Database, used_policy: TimingPolicy, spool_path: Path
) -> None:
    odd = [b"\xff\xfe\r\x0bx\0", b"  {}  ", b"no end"]
    target = spool_path.with_name("target")
    spool_use(target, use_of(used_policy))
    target.write_bytes(target.read_bytes() + b"\n".join(odd))
    spool_path.symlink_to(target.name)
    aside = spool_path.with_name("digits.refused.jsonl")
    aside.write_bytes(b"from an earlier one\n")
    assert take_in(database, spool_path).recorded == 1
    assert aside.read_bytes() == b"\n".join([b"from an earlier one", *odd, b""])
    assert (target.exists(), spool_path.is_symlink()) == (False, True)


# Where a line has a value that no run can have, and the start of the reason.
IMPOSSIBLE: list[tuple[str, Any, str]] = [
    ("use_id", "", "use_id is ''"),
    ("use_id", "x" * 65, "use_id is 'xxx"),
    ("version", 0, "version is 0; allowed: from 1"),
    ("version", 99, "version is 99; allowed: from 1 to 1"),
    ("record.spec.seed", -1, "seed is -1"),
    ("record.spec.replicate", -1, "replicate is -1"),
    ("record.spec.switch_percent", 140.0, "switch_percent is 140"),
    ("record.converged_accuracy", 1.5, "accuracy is 1.5, which is not from 0 to 1"),
    ("record.converged_accuracy", -0.5, "accuracy is -0.5"),
    ("record.evaluations.0.accuracy", 1.5, "accuracy is 1.5"),
    ("record.evaluations.0.worker_step", -1, "worker_step of an evaluation is -1"),
    ("record.evaluations.1.worker_step", 500, "an evaluation at worker-step 500 comes after 500"),
    ("record.evaluations.1.worker_step", 1001, "worker_step of an evaluation is 1001"),
    ("record.evaluations.1.worker_step", 100000, "worker_step of an evaluation is 100000"),
    ("record.evaluations.1.elapsed_seconds", 100.0, "elapsed_seconds of the evaluation at 1000"),
    ("record.evaluations", [], "it has no evaluation"),
    ("record.phases", [], "it has no phase"),
    ("record.phases.0.seconds", -1.0, "seconds of a phase is -1"),
    ("record.phases.1.end_worker_step", 1001, "end_worker_step of a phase is 1001"),
    ("record.phases.1.end_worker_step", 400, "end_worker_step of a phase is 400"),
    ("record.phases.1.protocol", "ssp", "a phase has the protocol 'ssp'; allowed: bsp,asp"),
    ("record.phases.1.max_staleness", -1, "staleness of a phase is -1"),
    ("record.worker_steps", 500, "worker_steps is 500; allowed: 1000"),
    ("record.worker_steps", 999, "worker_step of an evaluation is 1000"),
    ("record.worker_steps", 10000, "worker_steps is 10000"),
    ("record.worker_steps", 2**53 + 1, "worker_steps is 9007199254740993"),
    ("record.stopped_early", True, "it ended at worker-step 1000 of 1000"),
    ("record.training_seconds", 0.0, "training_seconds is 0"),
    ("record.training_seconds", -1.0, "training_seconds is -1"),
    ("record.training_seconds", 1e308, "training_seconds is 1e+308"),
    ("record.training_seconds", math.nan, "training_seconds is nan"),
    ("record.inherited_seconds", 4.0, "inherited_seconds is 4; allowed: from 0 to 3"),
    ("record.switch_overhead_seconds", 1e300, "switch_overhead_seconds is 1e+300"),
    ("record.converged_evaluations", 0, "converged_evaluations is 0"),
    ("record.ended_at", "1900-01-01T00:00:00+00:00", "it ended at 1900-01-01"),
]


def test_a_run_that_cannot_be_is_set_aside(
    database: Database, used_policy: TimingPolicy, spool_path: Path
) -> None:
    spool_use(spool_path, use_of(used_policy))
    whole = json.loads(spool_path.read_text())
    lines = []
    for place, value, _ in IMPOSSIBLE:
        line = json.loads(spool_path.read_text())
        *path, last = [int(key) if key.isdigit() else key for key in place.split(".")]
        part = line
        for key in path:
            part = part[key]
        part[last] = value
        lines.append(json.dumps(line))
    spool_path.write_text("\n".join([*lines, json.dumps(whole)]))
    taken = take_in(database, spool_path)
    whys = [line.partition("not a valid run (")[2] for line in taken.set_aside]
    assert [
        (place, why)
        for (place, _, said), why in zip(IMPOSSIBLE, whys, strict=True)
        if not why.startswith(said)
    ] == []
    assert (taken.recorded, ids(database)) == (1, ["use-0"])
    assert refused(spool_path) == [line.encode() for line in lines]


NASTY = (
    *(10**30, 2**63, -(2**63), 2**31, -1, 0.5, 1e999, math.nan, None, True, "x", "\0\ud800"),
    *("9" * 400, "0001-01-01T00:00:00+14:00", "2026-01-01", [], [[]], {}, {"": "\0"}),
)


def altered(value: Any) -> Iterator[Any]:
    """Copies of a JSON value, each with one part of it replaced."""
    yield from NASTY
    parts = value.items() if isinstance(value, dict) else ()
    for key, one in enumerate(value) if isinstance(value, list) else parts:
        for other in altered(one):
            copy = value.copy()
            copy[key] = other
            yield copy
    if isinstance(value, dict):
        for key in value:
            yield {name: one for name, one in value.items() if name != key}


@both_databases
def test_no_line_keeps_another_one_out(
    database: Database, used_policy: TimingPolicy, spool_path: Path
) -> None:
    events = (RunEvent("alarmed", 700, 2.5, "it said", 1, 0.5),)
    evaluations = (Evaluation(500, 1.5, 0.8, 0.3, (("loss", 0.5),)),)
    guard = GuardOutcome(50.0, (FailedSwitch(12.5, "below the band", 700, 2.0, 1.25, None),))
    use = use_of(used_policy, 0, evaluations=evaluations, events=events, guard=guard)
    spool_use(spool_path, use)
    others = list(altered(json.loads(spool_path.read_text())))
    with spool_path.open("a") as file:
        for number, line in enumerate(random.Random(0).sample(others, 200)):
            if isinstance(line, dict) and line.get("use_id") == use.use_id:
                line = {**line, "use_id": f"altered-{number}"}
            file.write(f"{json.dumps(line)}\n")
        file.write("\0\n" + "[" * 100_000 + "\n")
    lines = len(spool_path.read_bytes().splitlines())
    spool_use(spool_path, use_of(used_policy, 1))
    taken = take_in(database, spool_path)
    assert {"use-0", "use-1"} <= set(ids(database))
    assert len(taken.set_aside) == len(refused(spool_path)) > lines / 2
    assert taken.recorded + taken.known + len(taken.kept) + len(taken.set_aside) == lines + 1


def test_a_use_of_a_policy_that_is_not_here_stays_until_it_is(
    database: Database, used_policy: TimingPolicy, spool_path: Path
) -> None:
    other = replace(used_policy, study="elsewhere")
    spool_use(spool_path, use_of(other, 0))
    spool_use(spool_path, use_of(used_policy, 1))
    taken = take_in(database, spool_path)
    assert taken.recorded == 1
    assert "study 'elsewhere'" in taken.kept[0]
    assert "import the policy first" in taken.kept[0]
    assert (spool_path.read_bytes().count(b"\n"), ids(database)) == (1, ["use-1"])


@both_databases
@pytest.mark.parametrize("elsewhere", [0, 1])
def test_whoever_is_killed_after_the_commit_loses_nothing_and_counts_nothing_twice(
    database: Database, used_policy: TimingPolicy, spool_path: Path, elsewhere: int
) -> None:
    """The file is removed, or replaced if it has a use of a policy that is not here."""
    for number in range(3):
        spool_use(spool_path, use_of(used_policy, number))
    for _ in range(elsewhere):
        spool_use(spool_path, use_of(replace(used_policy, study="elsewhere"), 9))
    lines, url = spool_path.read_bytes(), database.url
    database.close()

    def work() -> None:
        Path.unlink = os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore
        with open_database(url, create=False) as own:
            take_in(own, spool_path)

    assert exit_code_of(work) == -signal.SIGKILL
    assert spool_path.read_bytes() == lines
    for known in (3, 0):
        assert ids(database) == ["use-0", "use-1", "use-2"]
        taken = take_in(database, spool_path)
        assert (taken.recorded, taken.known, len(taken.kept)) == (0, known, elsewhere)
    assert spool_path.exists() == bool(elsewhere)


@both_databases
def test_all_at_once_lose_nothing_and_count_nothing_twice(
    database: Database, used_policy: TimingPolicy, spool_path: Path, at_once: AtOnce
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
        with fails("database-away"):
            take_in(database, spool_path, patience_seconds=0)
    assert spool_path.read_bytes() == before


def test_what_can_be_no_spool_is_refused(database: Database, spool_path: Path) -> None:
    with fails("file-unusable", r"cannot write the file .*missing/x\.uses\.jsonl: No such"):
        spool_use(spool_path.parent / "missing" / "x.uses.jsonl", use_of(POLICY))
    os.mkfifo(spool_path)
    with fails("file-unusable", "it is not a regular file; they stay in it"):
        take_in(database, spool_path)
    assert stat.S_ISFIFO(spool_path.stat().st_mode)


def test_who_is_stopped_at_work_on_a_spool_keeps_nobody_waiting_for_ever(
    database: Database, used_policy: TimingPolicy, spool_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool_use(spool_path, use_of(used_policy))
    monkeypatch.setattr(spool, "_LOCK_SECONDS", 0.1)
    with spool_path.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with fails("file-unusable", "another process has kept it locked for too long"):
            spool_use(spool_path, use_of(used_policy, 1))
        with fails("file-unusable", "for too long; they stay in it"):
            take_in(database, spool_path)
    assert take_in(database, spool_path) == TakenIn(recorded=1)


def test_a_line_is_written_to_the_file_that_is_there_once_it_is_locked(
    used_policy: TimingPolicy, spool_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock

    def replaced_meanwhile(file: IO[bytes], how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        spool_path.with_name("new").touch()
        spool_path.with_name("new").rename(spool_path)
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", replaced_meanwhile)
    spool_use(spool_path, use_of(used_policy))
    assert len(spool_path.read_bytes().splitlines()) == 1
