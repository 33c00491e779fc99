"""Where the use of a policy goes when its run is over."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from syncswitch.searcher.training.uses import UsesHome, own_seed
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.records.job import LARGEST_SEED
from syncswitch.storage.trials.store import TrialStore
from syncswitch.storage.uses.store import uses_of
from tests.storage.conftest import IDENTITY, POLICY, RECORD, SEARCH


def uses_home(url: str, choice: str, model: Path) -> UsesHome:
    return UsesHome(url, choice, model, lambda line: print(line, file=sys.stderr))


RUN = replace(RECORD, stopped_early=False)


def publish(url: str) -> str:
    with open_database(url, create=True) as database:
        TrialStore(database).register(IDENTITY, "digits", SEARCH)
        PolicyRegistry(database).publish(POLICY)
    return url


def count(url: str) -> int:
    with open_database(url, create=False) as database:
        return uses_of(database, POLICY).uses


def lines(folder: Path) -> dict[str, int]:
    return {p.name: len(p.read_text().splitlines()) for p in folder.glob("*.uses.jsonl")}


def test_it_goes_into_the_database_once(
    sqlite_url: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = uses_home(publish(sqlite_url), "current", folder / "digits.keras")
    home.record(None, "a", RUN)  # a switch point of the user's own
    home.record(POLICY, "a", replace(RUN, stopped_early=True))
    assert (count(sqlite_url), lines(folder)) == (0, {})
    for _ in range(2):
        home.record(POLICY, "a", RUN)
    assert (count(sqlite_url), lines(folder)) == (1, {})
    assert capsys.readouterr() == ("", "")


def test_it_waits_beside_the_policy_file_until_a_run_finds_a_database(
    sqlite_url: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policies = folder / "policies"
    policies.mkdir()
    home = uses_home(sqlite_url, str(policies / "job.json"), folder / "digits.keras")
    home.record(POLICY, "a", RUN)
    home.record(POLICY, "b", RUN)
    assert lines(policies) == {"job.uses.jsonl": 2}
    assert not (folder / "syncswitch.db").exists()
    path = policies / "job.uses.jsonl"
    first, _ = capsys.readouterr().err.splitlines()
    assert f"this run waits in {path} to be counted (there is no database sqlite:" in first
    assert first.endswith(f"syncswitch-search uses import {path}")
    publish(sqlite_url)
    home.record(POLICY, "c", RUN)
    assert (count(sqlite_url), lines(policies)) == (3, {})
    assert f"earlier runs taken in from {path}: 2" in capsys.readouterr().err


def test_where_that_cannot_be_written_it_waits_beside_the_model(
    sqlite_url: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = uses_home(sqlite_url, str(folder / "gone" / "job.json"), folder / "digits.keras")
    home.record(POLICY, "a", RUN)
    assert lines(folder) == {"digits.uses.jsonl": 1}
    home = uses_home(sqlite_url, str(folder / "gone" / "job.json"), folder / "gone" / "m.keras")
    home.record(POLICY, "a", RUN)
    assert "cannot be counted as a use of its policy" in capsys.readouterr().err


def test_a_policy_that_the_database_does_not_have_keeps_it_waiting(
    sqlite_url: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = uses_home(publish(sqlite_url), str(folder / "job.json"), folder / "digits.keras")
    home.record(replace(POLICY, study="elsewhere"), "a", RUN)
    assert (count(sqlite_url), lines(folder)) == (0, {"job.uses.jsonl": 1})
    assert "policy import FILE" in capsys.readouterr().err


def test_each_run_has_a_seed_of_its_own(sqlite_url: str, folder: Path) -> None:
    drawn = {own_seed(sqlite_url, IDENTITY) for _ in range(3)}
    assert len(drawn) == 3
    assert all(0 <= seed <= LARGEST_SEED for seed in drawn)
    assert not list(folder.iterdir())
    publish(sqlite_url)
    assert [own_seed(sqlite_url, IDENTITY) for _ in range(3)] == [0, 1, 2]
    stranger = replace(IDENTITY, workers=7)
    assert own_seed(sqlite_url, stranger) != own_seed(sqlite_url, stranger)
    assert [own_seed(sqlite_url, stranger, "digits") for _ in range(2)] == [0, 1]


def test_what_is_no_database_costs_nothing(
    path: Path, sqlite_url: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_bytes(b"SQLite format 3\0" + b"nothing of the kind " * 500)
    assert own_seed(sqlite_url, IDENTITY) != own_seed(sqlite_url, IDENTITY)
    uses_home(sqlite_url, "current", folder / "digits.keras").record(POLICY, "a", RUN)
    assert lines(folder) == {"digits.uses.jsonl": 1}
    (line,) = capsys.readouterr().err.splitlines()
    assert "this run waits in" in line
