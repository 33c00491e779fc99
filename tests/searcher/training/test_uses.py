"""Where the use of a policy goes when its run is over."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from syncswitch.searcher.training.uses import RunRecorder
from syncswitch.storage.database.engine import Database, open_database
from syncswitch.storage.policies.unmeasured import unmeasured_policy
from syncswitch.storage.records.job import LARGEST_SEED
from syncswitch.storage.records.policy import TimingPolicy
from syncswitch.storage.records.trial import TrialRecord
from syncswitch.storage.uses.store import uses_of
from tests.records import changed
from tests.searcher.policies import published
from tests.storage.conftest import IDENTITY, POLICY, RECORD

RUN = replace(RECORD, stopped_early=False)


def recorder(url: str) -> RunRecorder:
    return RunRecorder(url, lambda line: print(line, file=sys.stderr))


def record(
    url: str,
    choice: str,
    model: Path,
    *,
    policy: TimingPolicy | None = POLICY,
    use_id: str = "a",
    run: TrialRecord = RUN,
) -> None:
    recorder(url).record(policy, use_id, run, choice=choice, model=model)


def publish(url: str) -> str:
    published(url, study=POLICY.study)
    return url


def count(url: str) -> int:
    with open_database(url, create=False) as database:
        return uses_of(database, POLICY).uses


def lines(folder: Path) -> dict[str, int]:
    return {p.name: len(p.read_text().splitlines()) for p in folder.glob("*.uses.jsonl")}


def test_it_goes_into_the_database_once(
    sqlite_url: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = (publish(sqlite_url), "current", folder / "digits.keras")
    record(*place, policy=None)  # a switch point of the user's own
    record(*place, run=replace(RUN, stopped_early=True))
    assert (count(sqlite_url), lines(folder)) == (0, {})
    for _ in range(2):
        record(*place)
    assert (count(sqlite_url), lines(folder)) == (1, {})
    assert capsys.readouterr() == ("", "")


def test_it_waits_beside_the_policy_file_until_a_run_finds_a_database(
    sqlite_url: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = folder / "policies"
    policies.mkdir()
    place = (sqlite_url, str(policies / "job.json"), folder / "digits.keras")
    record(*place)
    record(*place, use_id="b")
    assert lines(policies) == {"job.uses.jsonl": 2}
    assert not (folder / "syncswitch.db").exists()
    path = policies / "job.uses.jsonl"
    first, _ = capsys.readouterr().err.splitlines()
    assert f"this run waits in {path} to be recorded (there is no database sqlite:" in first
    assert first.endswith(f"imports it, or import it with: take_in({str(path)!r})")
    publish(sqlite_url)
    record(*place, use_id="c")
    assert (count(sqlite_url), lines(policies)) == (3, {})
    assert f"earlier runs imported from {path}: 2" in capsys.readouterr().err


def test_where_that_cannot_be_written_it_waits_beside_the_model(
    sqlite_url: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = folder / "gone"
    record(sqlite_url, str(gone / "job.json"), folder / "digits.keras")
    assert lines(folder) == {"digits.uses.jsonl": 1}
    record(sqlite_url, str(gone / "job.json"), gone / "m.keras")
    assert "cannot be counted for its policy" in capsys.readouterr().err


def test_a_policy_that_the_database_does_not_have_keeps_it_waiting(
    sqlite_url: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = (publish(sqlite_url), str(folder / "job.json"), folder / "digits.keras")
    record(*place, policy=replace(POLICY, study="elsewhere"))
    assert (count(sqlite_url), lines(folder)) == (0, {"job.uses.jsonl": 1})
    assert "import the policy first" in capsys.readouterr().err


def test_what_cannot_be_does_not_wait(
    sqlite_url: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = (sqlite_url, str(folder / "job.json"), folder / "digits.keras")
    record(*place, run=replace(RUN, training_seconds=1e308))
    assert lines(folder) == {}
    assert capsys.readouterr().err == (
        "error: could not record this run: training_seconds is 1e+308; allowed: from 1e-09 to"
        " 1e+10\n"
    )


def test_a_run_that_waits_without_a_policy_counts_for_the_first_one_of_its_job(
    sqlite_url: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = (sqlite_url, "current", folder / "digits.keras")
    nobodys = unmeasured_policy(IDENTITY)
    record(*place, policy=nobodys)
    with open_database(sqlite_url, create=True):
        pass
    record(*place, policy=nobodys, use_id="b")
    assert "no run of digits on 4 workers is in this database" in capsys.readouterr().err
    publish(sqlite_url)
    record(*place, use_id="c")
    assert (count(sqlite_url), lines(folder)) == (3, {})


def test_each_run_has_a_seed_of_its_own(sqlite_url: str, folder: Path) -> None:
    drawn = {recorder(sqlite_url).own_seed(IDENTITY) for _ in range(3)}
    assert len(drawn) == 3
    assert all(0 <= seed <= LARGEST_SEED for seed in drawn)
    assert not list(folder.iterdir())
    publish(sqlite_url)
    assert [recorder(sqlite_url).own_seed(IDENTITY) for _ in range(3)] == [0, 1, 2]
    stranger = changed(IDENTITY, workers=7)
    assert recorder(sqlite_url).own_seed(stranger) != recorder(sqlite_url).own_seed(stranger)
    assert [recorder(sqlite_url).own_seed(stranger, "digits") for _ in range(2)] == [0, 1]


def test_an_unexpected_error_is_no_missing_database(sqlite_url: str) -> None:
    publish(sqlite_url)
    said: list[object] = []

    def question(_: Database) -> int:
        raise KeyError("a fault of ours")

    for is_quiet in (False, True):
        assert RunRecorder(sqlite_url, said.append).asked(question, 3, is_quiet=is_quiet) == 3
    (line,) = set(said)
    told = "what the database knows of this job is left out: KeyError: 'a fault of ours'"
    assert (line, len(said)) == (told, 2)


def test_what_is_no_database_costs_nothing(
    path: Path, sqlite_url: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_bytes(b"SQLite format 3\0" + b"nothing of the kind " * 500)
    assert recorder(sqlite_url).own_seed(IDENTITY) != recorder(sqlite_url).own_seed(IDENTITY)
    record(sqlite_url, "current", folder / "digits.keras")
    assert lines(folder) == {"digits.uses.jsonl": 1}
    (line,) = capsys.readouterr().err.splitlines()
    assert "this run waits in" in line
