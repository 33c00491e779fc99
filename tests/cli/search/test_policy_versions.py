"""`syncswitch-search policy alias`, `rollback` and `diff`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Invoke, error_line, export

from syncswitch.storage.policies.file import read_policy_file


@pytest.mark.usefixtures("one_version")
def test_an_alias_that_nobody_set_is_named(invoke: Invoke) -> None:
    invoke("policy", "alias", "generated", "pinned", "1")
    result = invoke("policy", "lookup", "generated@nope")
    assert result.exit_code == 1
    assert error_line(result) == (
        "error: 'generated' has no policy 'nope'; its versions and aliases are: 1, current, pinned"
    )
    assert invoke("policy", "lookup", "generated@pinned").exit_code == 0


@pytest.mark.usefixtures("two_versions")
def test_versions_aliases_and_export(invoke: Invoke, tmp_path: Path) -> None:
    listed = json.loads(invoke("policy", "list", "--json").stdout)
    assert [(p["version"], p["aliases"]) for p in listed] == [(2, ["current"]), (1, [])]
    header, *_ = text = invoke("policy", "list").stdout.splitlines()
    assert header.split()[-2:] == ["accuracy", "kept"]
    assert "12.5 %" in "\n".join(text)

    moved = json.loads(invoke("policy", "alias", "generated", "current", "1", "--json").stdout)
    assert (moved["version"], moved["previous_version"]) == (1, 2)
    assert json.loads(invoke("policy", "lookup", "generated", "--json").stdout)["version"] == 1
    result = invoke("policy", "alias", "generated", "current", "9")
    assert result.exit_code == 2
    assert "9" in error_line(result)

    path = tmp_path / "policy.json"
    assert invoke("policy", "export", "generated", "-o", str(path)).exit_code == 0
    assert read_policy_file(path).policy.version == 1
    printed = invoke("policy", "export", "generated@2").stdout
    path.write_text(printed)
    assert read_policy_file(path).policy.version == 2
    result = invoke("policy", "export", "generated@9")
    assert "'generated' has no policy '9'; its versions and aliases are: 1, 2, current" in (
        error_line(result)
    )
    assert "replicate" in invoke("policy", "show", "generated").stdout


@pytest.mark.usefixtures("two_versions")
def test_rollback_moves_an_alias_to_the_version_before(invoke: Invoke) -> None:
    result = invoke("policy", "rollback", "generated")
    assert result.stdout == "generated: current is version 1 (was version 2)\n"
    assert json.loads(invoke("policy", "lookup", "generated", "--json").stdout)["version"] == 1
    result = invoke("policy", "rollback", "generated")
    assert result.exit_code == 2
    assert "is version 1, the lowest one: there is none to roll back to" in error_line(result)
    assert "no policy for 'nothing'" in error_line(invoke("policy", "rollback", "nothing"))


@pytest.mark.usefixtures("two_versions")
def test_diff_shows_what_differs_and_nothing_else(invoke: Invoke, tmp_path: Path) -> None:
    fingerprint = json.loads(invoke("policy", "list", "--json").stdout)[0]["fingerprint"]
    files = [
        str(export(invoke, tmp_path / f"{version}.json", version=version)) for version in ("1", "2")
    ]
    invoke("policy", "alias", "generated", "old", "1")
    contents = []
    for names in (
        ["generated@1", "generated"],
        ["generated@old", f"{fingerprint[:8]}@2"],
        files,
        [files[0], "generated@current"],
    ):
        result = invoke("policy", "diff", *names, "--json")
        assert result.exit_code == 0, result.stderr
        content = json.loads(result.stdout)
        assert content.pop("before")["version"] == 1
        assert content.pop("after")["version"] == 2
        contents.append(content)
    assert contents == contents[:1] * len(contents)
    (content,) = contents[:1]
    assert not content["is_equal"]
    differences = {one["field"]: (one["before"], one["after"]) for one in content["differences"]}
    assert list(differences) == [
        "switch_percent",
        "target_accuracy",
        "mean_accuracy",
        "training_seconds",
        "study",
        "evidence",
        "speed_up_low",
        "speed_up_high",
        "band",
        "speed_up",
    ]
    assert differences["switch_percent"] == (12.5, 25.0)
    assert [len(runs) for runs in differences["evidence"]] == [8, 3]

    header, *rows = invoke("policy", "diff", "generated@1", "generated@2").stdout.splitlines()
    assert header.split() == ["field", "generated@1", "generated@2"]
    cells = {name.strip(): " ".join(row) for name, *row in (line.split("  ") for line in rows)}
    assert cells["switch percent"].split() == ["12.5", "%", "25", "%"]
    assert "8 runs, 0 of them in both" in cells["evidence"]
    assert "threshold" not in cells
    text = invoke("policy", "diff", "generated@1", "generated@old").stdout
    assert text == "generated@1 and generated@old are equal (generated, 4 workers, bsp,asp)\n"


@pytest.mark.usefixtures("two_clusters")
def test_diff_compares_the_policies_of_two_jobs(invoke: Invoke) -> None:
    small, large = (
        json.loads(invoke("policy", "lookup", "generated", "--workers", n, "--json").stdout)
        for n in ("4", "8")
    )
    names = [f"{policy['fingerprint'][:8]}@1" for policy in (small, large)]
    rows = [line.split() for line in invoke("policy", "diff", *names).stdout.splitlines()]
    assert ["workers", "4", "8"] in rows
    assert ["fingerprint", small["fingerprint"][:12], large["fingerprint"][:12]] in rows
    result = invoke("policy", "diff", "generated@1", "generated")
    assert result.exit_code == 2
    assert "choose with --workers" in error_line(result)
    result = invoke("policy", "diff", "generated@1", "generated", "--workers", "8")
    assert "are equal" in result.stdout


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["generated@1"], "Missing argument 'B'"),
        (["generated@1", "generated@9"], "'generated' has no policy '9'; its versions and aliases"),
        (["generated@1", "generated@" + "9" * 30], "has no policy '9999"),
        (["generated@1", "generated@nope"], "'generated' has no policy 'nope'"),
        (["generated@1", "generated@"], "no policy for 'generated@'"),
        (["folder/mine.py:job@1", "generated"], "no policy for 'folder/mine.py:job'"),
        (["generated@1", "missing.json"], "cannot read the policy file missing.json"),
    ],
)
@pytest.mark.usefixtures("one_version")
def test_what_diff_cannot_find_is_one_line(invoke: Invoke, names: list[str], said: str) -> None:
    result = invoke("policy", "diff", *names)
    assert result.exit_code == 2
    assert said in error_line(result)
