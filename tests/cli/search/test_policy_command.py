"""`syncswitch-search policy`: what people and scripts get, also of versions and files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import LEAST, QUICK, Invoke, database_file, elsewhere, error_line, export

from syncswitch.storage.database.engine import open_database
from syncswitch.storage.policies.file import read_policy_file, write_policy
from syncswitch.storage.policies.schema import policy_schema
from syncswitch.storage.queries.search_costs import study_costs
from tests.records import changed
from tests.searcher.policies import published
from tests.storage.conftest import IDENTITY
from tests.wording import Said

GOLDEN = Path(__file__).parents[2] / "storage" / "policies" / "golden_policy_2.json"


def test_lookup_without_a_database_or_a_policy(invoke: Invoke, url: str, said: Said) -> None:
    def absent(*words: str) -> None:
        result = invoke("policy", "lookup", *words)
        assert result.exit_code == 1
        as_json = invoke("policy", "lookup", *words, "--json")
        assert (as_json.exit_code, as_json.stderr) == (1, result.stderr)
        document = json.loads(as_json.stdout)
        error = document["error"]
        assert document == {"policy": None, "error": error}
        assert (error["code"], error["parameters"]) == ("policy-not-found", [])
        assert error_line(result) == f"error: {error['message']}"
        said(error_line(result))

    absent("digits", "--workers", "8")
    assert not database_file(url).exists()
    database_file(url).touch()
    absent("digits", "--workers", "8")
    assert database_file(url).stat().st_size == 0
    invoke("run", "generated", *LEAST)
    invoke("policy", "alias", "generated", "pinned", "1")
    absent("other")
    absent("generated@nope")
    absent("generated", "--workers", "17")
    absent("generated", "--protocols", "asp,bsp")
    said(invoke("policy", "list", "nope").stdout)


def test_lookup_by_name_reference_and_fingerprint(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    run = invoke.answer("run", f"{file}:job", *QUICK)
    fingerprint = run["policy"]["fingerprint"]
    # The file does not exist: a lookup never opens it.
    for reference in ("generated", f"{file}:job", "mine.py:job", fingerprint, fingerprint[:8]):
        found = invoke.answer("policy", "lookup", reference)
        assert found == {**run["policy"], "momentum_after_switch": "same"}
    assert run["policy"]["switch_percent"] == 12.5
    assert "Train generated with BSP" in invoke("policy", "lookup", "generated").stdout


@pytest.mark.usefixtures("two_clusters")
def test_what_is_to_be_used_is_never_guessed(invoke: Invoke, tmp_path: Path) -> None:
    listed = invoke.answer("policy", "list")
    path = tmp_path / "policy.json"
    for command in (["alias", "generated", "x", "1"], ["export", "generated", "-o", str(path)]):
        line = error_line(invoke("policy", *command))
        for words in ("8 workers, bsp,asp", "4 workers, bsp,asp"):
            assert words in line
        assert all(policy["fingerprint"][:12] in line for policy in listed)
        assert "choose with --workers, or --protocols, or --cluster, or the fingerprint" in line
    assert not path.exists()
    assert invoke.answer("policy", "list") == listed
    invoke.succeeds("policy", "alias", "generated", "pinned", "1", "--workers", "4")
    invoke.succeeds("policy", "export", listed[0]["fingerprint"], "-o", str(path))
    assert read_policy_file(path).policy.job.workers == listed[0]["workers"]
    # What is only shown may be guessed, and that is said.
    for command in (["lookup"], ["show"]):
        result = invoke("policy", *command, "generated", "--json")
        assert json.loads(result.stdout)["workers"] == 8
        assert "this is the newest of 2 policies, for 8 workers" in result.stderr
        result = invoke("policy", *command, "generated", "--json", "--workers", "4")
        assert (json.loads(result.stdout)["workers"], result.stderr) == (4, "")


def test_policies_that_differ_in_the_momentum_after_the_switch_are_told_apart(
    invoke: Invoke, url: str
) -> None:
    for rule in ("same", "own"):
        published(url, changed(IDENTITY, momentum_after_switch=rule))
    rows = [line.split() for line in invoke("policy", "list").stdout.splitlines()]
    assert rows[0][3] == "momentum"
    found = [{"own", "same"} & {*row} for row in rows if row and row[0] == "digits"]
    assert found == [{"own"}, {"same"}]
    rows = [line.split() for line in invoke("status").stdout.splitlines()]
    assert rows[0][1] == "momentum"
    assert {row[1] for row in rows[2:] if row} == {"own", "same"}
    own, same = "each worker keeps its own momentum [", "all workers share one momentum ["
    line = error_line(invoke("policy", "export", "digits", "--protocols", "bsp,asp"))
    assert own in line, line
    assert same in line
    assert invoke.answer("policy", "show", "digits")["version"] == 2
    assert {one["momentum_after_switch"] for one in invoke.answer("status")} == {"own", "same"}
    with open_database(url, create=False) as database:
        found = {cost.job.momentum_after_switch for cost in study_costs(database)}
    assert found == {"own", "same"}


@pytest.mark.usefixtures("one_version")
def test_show_says_which_runs_are_in_the_database(invoke: Invoke, tmp_path: Path, url: str) -> None:
    content = invoke.answer("policy", "show", "generated")
    listed = invoke.answer("trials", "generated")
    trials = {trial["trial_number"]: trial for trial in listed}
    assert len(content["evidence"]) == 8
    for run in content["evidence"]:
        assert run["agrees"]
        assert run["trial_id"] == trials[run["trial_number"]]["trial_id"]
    text = invoke("policy", "show", "generated").stdout
    assert text.endswith("8 of 8 runs are in this database.\n")

    file = export(invoke, tmp_path / "policy.json")
    storage = ["--storage", elsewhere(tmp_path)]
    invoke("policy", "import", str(file), *storage)
    content = invoke.answer("policy", "show", "generated", *storage)
    assert {run["trial_id"] for run in content["evidence"]} == {None}
    text = invoke("policy", "show", "generated", *storage).stdout
    assert text.endswith("0 of 8 runs are in this database.\n")

    change = "UPDATE syncswitch_trials SET converged_accuracy = 0.5 WHERE trial_number = 3"
    with open_database(url, create=False) as database, database.transaction() as connection:
        connection.exec_driver_sql(change)
    text = invoke("policy", "show", "generated").stdout
    assert " differs\n" in text
    assert text.endswith("8 of 8 runs are in this database, 1 of them with other results.\n")


@pytest.mark.usefixtures("one_version")
def test_show_says_why(invoke: Invoke, tmp_path: Path) -> None:
    text = invoke("policy", "show", "generated", "--why").stdout
    assert text.splitlines()[-2:] == [
        "- This strategy decides by the mean of a fixed number of runs, without probabilities.",
        "- Never tried: 37.5 %, 62.5 %, 75 % and 87.5 %: later than the answer, so a switch there"
        " saves less.",
    ]

    # Where the search is not, what its runs lead to believe.
    file = export(invoke, tmp_path / "policy.json")
    storage = ["--storage", elsewhere(tmp_path)]
    invoke("policy", "import", str(file), *storage)
    text = invoke("policy", "show", "generated", "--why", *storage).stdout
    asked = "The probability after each run that a switch there keeps the accuracy often enough."
    assert asked in text.splitlines()
    content = invoke.answer("policy", "show", "generated", "--why", *storage)
    runs = content["why"]["runs"]
    assert [run["trial_number"] for run in runs] == list(range(8))
    last = {one["switch_percent"]: one for one in runs[-1]["beliefs"]}
    shown = next(line for line in text.splitlines() if line.startswith("8  "))
    assert f"{100 * last[25.0]['good_probability']:.0f} %" in shown
    assert "why" not in invoke.answer("policy", "show", "generated")


def test_show_says_how_sure_a_policy_is(invoke: Invoke, tmp_path: Path) -> None:
    file, found = tmp_path / "policy.json", read_policy_file(GOLDEN)
    for confidence, shown in ((None, []), (0.97, ["confidence   97 %"])):
        storage = ["--storage", f"sqlite:///{tmp_path}/{confidence}.db"]
        write_policy(file, changed(found.policy, confidence=confidence), found.workload)
        invoke("policy", "import", str(file), *storage)
        lines = invoke("policy", "show", "digits", *storage).stdout.splitlines()
        assert [line for line in lines if line.startswith("confidence")] == shown
        (gain,) = (line for line in lines if line.startswith("speed-up"))
        assert gain.endswith("(1.50 to 2.50)")


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
