"""Versions of policies: aliases, `rollback`, `diff`, and from one database to another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Invoke, database_file, elsewhere, error_line, export

from syncswitch.storage.policies.file import read_policy_file
from syncswitch.storage.policies.schema import policy_schema
from tests.wording import Said


@pytest.mark.usefixtures("two_versions")
def test_a_version_is_no_file_of_this_name(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "1").touch()
    (tmp_path / "current").touch()
    for name, version in (("generated@1", 1), ("generated", 2)):
        assert json.loads(invoke("policy", "lookup", name, "--json").stdout)["version"] == version


@pytest.mark.usefixtures("two_versions")
def test_versions_aliases_rollback_and_export(invoke: Invoke, tmp_path: Path) -> None:
    listed = invoke.answer("policy", "list")
    assert [(p["version"], p["aliases"]) for p in listed] == [(2, ["current"]), (1, [])]
    header, *rows = invoke("policy", "list").stdout.splitlines()
    assert header.split()[-2:] == ["accuracy", "kept"]
    assert "12.5 %" in "\n".join(rows)

    moved = invoke.answer("policy", "alias", "generated", "current", "1")
    assert (moved["version"], moved["previous_version"]) == (1, 2)
    assert invoke.answer("policy", "lookup", "generated")["version"] == 1
    assert "9" in error_line(invoke("policy", "alias", "generated", "current", "9"))

    path = tmp_path / "policy.json"
    invoke.succeeds("policy", "export", "generated", "-o", str(path))
    assert read_policy_file(path).policy.version == 1
    path.write_text(invoke("policy", "export", "generated@2").stdout)
    assert read_policy_file(path).policy.version == 2
    assert "not the name of a file" in error_line(invoke("policy", "export", "generated", "-o", ""))

    invoke.succeeds("policy", "alias", "generated", "current", "2")
    result = invoke("policy", "rollback", "generated")
    assert result.stdout == "generated: current is version 1 (was version 2)\n"
    line = error_line(invoke("policy", "rollback", "generated"))
    assert "is version 1, the lowest one: there is none to roll back to" in line
    assert "no policy for 'nothing'" in error_line(invoke("policy", "rollback", "nothing"))


@pytest.mark.usefixtures("two_versions")
def test_diff_shows_what_differs_and_nothing_else(
    invoke: Invoke, tmp_path: Path, said: Said
) -> None:
    fingerprint = invoke.answer("policy", "list")[0]["fingerprint"]
    files = [
        str(export(invoke, tmp_path / f"{version}.json", version=version)) for version in ("1", "2")
    ]
    storage = ["--storage", elsewhere(tmp_path)]
    first, second = invoke("policy", "import", *files, *storage).stdout.splitlines()
    assert first.endswith("added as version 1 of generated (4 workers, bsp,asp); it is current")
    assert second.endswith("current is version 1, which policy alias can change")
    invoke("policy", "alias", "generated", "old", "1")
    contents = []
    for names in (
        ["generated@1", "generated"],
        ["generated@old", f"{fingerprint[:8]}@2"],
        files,
        [files[0], "generated@current"],
    ):
        content = invoke.answer("policy", "diff", *names)
        assert content.pop("before")["version"] == 1
        assert content.pop("after")["version"] == 2
        contents.append(content)
    assert contents == contents[:1] * len(contents)
    (content,) = contents[:1]
    assert not content["is_equal"]
    differences = {one["field"]: (one["before"], one["after"]) for one in content["differences"]}
    assert list(differences) == [
        *("switch_percent", "target_accuracy", "mean_accuracy", "training_seconds"),
        *("speed_up_low", "speed_up_high", "study", "evidence", "band", "speed_up"),
    ]
    assert differences["switch_percent"] == (12.5, 25.0)
    assert [len(runs) for runs in differences["evidence"]] == [8, 3]

    for other in ("generated@2", "generated@old"):
        said(invoke("policy", "diff", "generated@1", other).stdout)


@pytest.mark.usefixtures("two_clusters")
def test_what_diff_cannot_find_is_one_line(invoke: Invoke, folder: Path, said: Said) -> None:
    for names in (
        "generated@1 generated@9 --workers 4",
        f"generated@1 generated@{'9' * 30} --workers 4",
        "generated@1 generated@ --workers 4",
        "folder/mine.py:job@1 generated --workers 4",
        "generated@1 missing.json --workers 4",
        "generated@1 generated",
    ):
        said(error_line(invoke("policy", "diff", *names.split())))


@pytest.mark.usefixtures("one_version")
def test_a_policy_moves_to_another_database(invoke: Invoke, tmp_path: Path) -> None:
    file = export(invoke, tmp_path / "policy.json")
    storage = ["--storage", elsewhere(tmp_path)]
    result = invoke("policy", "import", str(file), *storage)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        f"{file}: added as version 1 of generated (4 workers, bsp,asp); it is current\n"
    )
    here = invoke.answer("policy", "lookup", "generated")
    there = invoke.answer("policy", "lookup", "generated", *storage)
    assert here == there
    assert "imported     20" in invoke("policy", "show", "generated", *storage).stdout
    assert "imported" not in invoke("policy", "show", "generated").stdout
    again = invoke.succeeds("policy", "import", str(file), *storage)
    assert "already there as version 1" in again.stdout
    assert export(invoke, tmp_path / "again.json", *storage).read_text() == file.read_text()
    (imported,) = invoke.answer("policy", "import", str(file), *storage)
    assert (imported["version"], imported["is_new"], imported["current_version"]) == (1, False, 1)
    assert imported["path"] == str(file)
    # What was imported is not what a search here has found.
    assert invoke.answer("status", *storage) == []


@pytest.mark.usefixtures("one_version")
def test_a_file_that_is_no_policy_is_one_line_and_writes_nothing(
    invoke: Invoke, tmp_path: Path
) -> None:
    good, bad = export(invoke, tmp_path / "good.json"), tmp_path / "bad.json"
    storage = elsewhere(tmp_path)
    for content in ("", "{}", '{"schema_version": 3}'):
        bad.write_text(content)
        result = invoke("policy", "import", str(good), str(bad), "--storage", storage)
        assert str(bad) in error_line(result)
    assert not database_file(storage).exists()
    assert json.loads(invoke("policy", "schema").stdout) == policy_schema()
