"""`syncswitch-search policy export`, `import` and `schema`: from one database to another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import QUICK, Invoke, database_file, elsewhere, error_line, export
from sqlalchemy import text

from syncswitch.storage.database.engine import open_database
from syncswitch.storage.policies.registry import PolicyRegistry
from syncswitch.storage.policies.schema import policy_schema


@pytest.mark.usefixtures("one_version")
def test_export_to_no_file_is_one_line(invoke: Invoke) -> None:
    result = invoke("policy", "export", "generated", "-o", "")
    assert result.exit_code == 2
    assert "not the name of a file" in error_line(result)


@pytest.mark.usefixtures("one_version")
def test_a_policy_moves_to_another_database(invoke: Invoke, tmp_path: Path) -> None:
    file = export(invoke, tmp_path / "policy.json")
    storage = ["--storage", elsewhere(tmp_path)]
    result = invoke("policy", "import", str(file), *storage)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        f"{file}: added as version 1 of generated (4 workers, bsp,asp); it is current\n"
    )
    here = json.loads(invoke("policy", "lookup", "generated", "--json").stdout)
    there = json.loads(invoke("policy", "lookup", "generated", "--json", *storage).stdout)
    assert here == there
    assert "imported     20" in invoke("policy", "show", "generated", *storage).stdout
    assert "imported" not in invoke("policy", "show", "generated").stdout
    again = invoke("policy", "import", str(file), *storage)
    assert again.exit_code == 0
    assert "already there as version 1" in again.stdout
    assert export(invoke, tmp_path / "again.json", *storage).read_text() == file.read_text()
    # What was imported is not what a search here has found.
    assert json.loads(invoke("status", "--json", *storage).stdout) == []


@pytest.mark.usefixtures("two_versions")
def test_an_import_leaves_current_where_it_is(invoke: Invoke, tmp_path: Path) -> None:
    files = [str(export(invoke, tmp_path / f"{n}.json", version=str(n))) for n in (1, 2)]
    storage = ["--storage", elsewhere(tmp_path)]
    first, second = invoke("policy", "import", *files, *storage).stdout.splitlines()
    assert first.endswith("added as version 1 of generated (4 workers, bsp,asp); it is current")
    assert second.endswith("current is version 1, which policy alias can change")
    (imported,) = json.loads(invoke("policy", "import", files[1], "--json", *storage).stdout)
    assert (imported["version"], imported["is_new"], imported["current_version"]) == (2, False, 1)
    assert imported["path"] == files[1]


@pytest.mark.parametrize("content", ["", "{}", '{"schema_version": 3}'])
@pytest.mark.usefixtures("one_version")
def test_a_file_that_is_no_policy_is_one_line_and_writes_nothing(
    invoke: Invoke, tmp_path: Path, content: str
) -> None:
    good = export(invoke, tmp_path / "good.json")
    bad = tmp_path / "bad.json"
    bad.write_text(content)
    storage = elsewhere(tmp_path)
    result = invoke("policy", "import", str(good), str(bad), "--storage", storage)
    assert result.exit_code == 2
    assert str(bad) in error_line(result)
    assert not database_file(storage).exists()


def test_nothing_to_import_is_one_line(invoke: Invoke) -> None:
    result = invoke("policy", "import")
    assert result.exit_code == 2
    assert "Missing argument 'FILE...'" in error_line(result)


@pytest.mark.usefixtures("one_version")
def test_an_imported_policy_is_not_the_state_of_a_search_here(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search of the same name and workload, which has not ended."""
    file = export(invoke, tmp_path / "policy.json")
    storage = ["--storage", elsewhere(tmp_path)]
    monkeypatch.setenv("GENERATED_FAILURES", "100")
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert invoke("run", "generated", *QUICK, *storage).exit_code == 1
    invoke("policy", "import", str(file), *storage)
    (search,) = json.loads(invoke("status", "--json", *storage).stdout)
    assert search["state"] == "stopped"
    assert search["policy_version"] is None
    # When it ends, it publishes its own.
    monkeypatch.setenv("GENERATED_FAILURES", "0")
    result = json.loads(invoke("run", "generated", *QUICK, "--json", *storage).stdout)
    assert result["policy"]["version"] == 2
    with open_database(elsewhere(tmp_path), create=False) as database:
        assert len(PolicyRegistry(database).policies()) == 2


def test_the_schema_is_printed_without_a_database(invoke: Invoke, url: str) -> None:
    result = invoke("policy", "schema")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == policy_schema()
    assert not database_file(url).exists()


@pytest.mark.usefixtures("one_version")
def test_the_names_of_an_imported_policy_do_not_steer_the_terminal(
    invoke: Invoke, url: str
) -> None:
    with open_database(url, create=False) as database, database.transaction() as connection:
        for table, column in (("policies", "workload"), ("workloads", "name")):
            connection.execute(
                text(f"UPDATE syncswitch_{table} SET {column} = 'x' || char(27) || ']0;evil'")
            )
    name = "x\x1b]0;evil"
    for words in (
        ["policy", "list"],
        ["policy", "lookup", name],
        ["policy", "show", name],
        ["policy", "lookup", f"{name}-2"],
        ["trials"],
        ["switch-points", name],
        ["status"],
        ["db", "check"],
    ):
        result = invoke(*words)
        assert "\x1b" not in result.output, words
