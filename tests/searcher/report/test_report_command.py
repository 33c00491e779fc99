"""`syncswitch-search report`: where the page goes, and what is said when it cannot."""

from __future__ import annotations

import json
import os
from pathlib import Path

import matplotlib
import pytest
from click.testing import CliRunner, Result
from command_line import error_line
from generated_trainer import identity
from stored import FINISHED, STUDY, add_search, publish, search_info

from syncswitch.cli.search.main import main
from syncswitch.cli.words import OPTION_WORDS
from syncswitch.searcher.command_lines import search_command, use_command
from syncswitch.searcher.report import load_report
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.records.job import RunConditions, WorkloadIdentity

JOB = identity()
LARGE = identity(workers=8)
SIMULATED = identity(simulated_cluster="5" * 64)


@pytest.fixture
def filled_url(sqlite_url: str, our_tables: None) -> str:
    with open_database(sqlite_url, create=False) as database:
        publish(database, add_search(database))
    return sqlite_url


def report(url: str, *arguments: str | Path) -> Result:
    command = ["report", *map(str, arguments), "--storage", url]
    return CliRunner().invoke(main, command, prog_name="syncswitch-search")


def test_no_settings_of_the_user_end_a_report(
    filled_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = report(filled_url, "generated", "-o", "-").stdout
    with monkeypatch.context() as patch:
        for name, value in {"text.usetex": True, "axes.xmargin": 3.0, "font.size": 99}.items():
            patch.setitem(matplotlib.rcParams, name, value)
        again = report(filled_url, "generated", "-o", "-").stdout
    # Their footers say when they were made.
    assert again.partition("<footer>")[0] == printed.partition("<footer>")[0]


def test_the_page_is_written_and_said_where(filled_url: str, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("<!DOCTYPE html>\nmy page")
    assert report(filled_url, "generated", "-o", path).exit_code == 2
    assert path.read_text().endswith("my page")
    path.unlink()
    report(filled_url, "generated", "-o", path)
    result = report(filled_url, "generated", "-o", path)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"report of generated written to {path}; open it in a browser\n"
    assert path.read_text().startswith("<!DOCTYPE html>")
    assert os.listdir(tmp_path) == ["report.html"]
    said = json.loads(report(filled_url, "generated", "-o", path, "--json").stdout)
    assert said == {
        "path": str(path),
        "bytes": path.stat().st_size,
        "workload": "generated",
        "fingerprint": JOB.fingerprint,
        "policy_version": 1,
        "study": STUDY,
        "runs": len(FINISHED),
    }
    printed = report(filled_url, "generated", "-o", "-").stdout
    assert printed.startswith("<!DOCTYPE html>")
    assert printed.endswith("</html>\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["other"], "no workload 'other' in "),
        (["generated", "--workers", "5"], "'generated' has no runs on such a cluster; there is: 4"),
        (["generated", "--study", "x"], "no search 'x' of this job; there is: generated-1"),
        (["generated@nope"], "no policy"),
        (["generated", "--protocols", "bsp"], "--protocols is 'bsp'"),
    ],
)
def test_a_mistake_gets_one_line(filled_url: str, arguments: list[str], words: str) -> None:
    result = report(filled_url, *arguments)
    assert result.exit_code == 2
    assert words in error_line(result)


def test_a_real_job_is_shown_before_a_simulated_one_of_its_name(filled_url: str) -> None:
    with open_database(filled_url, create=False) as database:
        add_search(database, job=SIMULATED, study="simulated-1")
    real, chosen = (
        report(filled_url, "generated", "-o", "-", *chosen)
        for chosen in ([], ["--cluster", "simulated"])
    )
    (notice,) = real.stderr.splitlines()
    assert "the report is of the real job, on 4 workers, bsp,asp; of the same name: 4 sim" in notice
    assert notice.endswith("show it with --cluster simulated or the fingerprint")
    assert chosen.stderr == ""
    found = load_report(filled_url, "generated", cluster="simulated")
    assert (found.identity, found.namesakes) == (SIMULATED, ())
    assert load_report(filled_url, "generated").namesakes == (SIMULATED,)


@pytest.mark.parametrize(
    ("changes", "conditions", "words"),
    [
        (
            {"options": {"share_prefix": True, "baseline_runs": 3}, "base_seed": 5},
            RunConditions(online="elastic"),
            "syncswitch-search run jobs.py:it --trainer local --workers 4 --protocols bsp,asp"
            " --strategy paper --halvings 2 --runs 2 --threshold 0.01 --seed 5 --share-prefix"
            " --baseline-runs 3 --online elastic",
        ),
        (
            {"pairs": ["bsp,asp", "bsp,ssp:3"]},
            RunConditions(),
            "--workers 4 --protocols bsp,asp --protocols bsp,ssp:3 --strategy paper",
        ),
        ({"trainer": "local/threads, 1 GPU"}, RunConditions(), " --trainer local --workers"),
        (
            {
                "strategy": "adaptive",
                "options": {
                    "guarded": False,
                    "min_kept_share": 0.9,
                    "expected_runs": 100,
                    "budget": None,
                },
            },
            RunConditions(),
            "--no-guard --min-kept-share 0.9 --expected-runs 100",
        ),
        ({"options": {"threshold_runs": 5}}, RunConditions(), "--runs 2 --threshold-runs 5 --seed"),
    ],
)
def test_a_search_is_made_again_with_what_it_was_made_with(
    changes: dict[str, object], conditions: RunConditions, words: str
) -> None:
    said = search_command(JOB, "jobs.py:it", search_info(JOB, **changes), conditions)
    assert words in OPTION_WORDS.command(said)


@pytest.mark.parametrize(
    ("job", "loaded_from", "profile", "words"),
    [
        (JOB, "digits", None, "syncswitch-run digits --policy 2"),
        (LARGE, None, None, "syncswitch-run called --policy 2 --workers 8"),
        (JOB, "no/file.py:it", None, f"syncswitch-search policy export {JOB.fingerprint[:12]}@2"),
        (SIMULATED, None, None, "syncswitch-search sweep called --policy "),
        (SIMULATED, None, "my.json", "syncswitch-run called --trainer simulated --profile my.json"),
    ],
)
def test_a_policy_is_used_where_it_can_be(
    job: WorkloadIdentity, loaded_from: str | None, profile: str | None, words: str
) -> None:
    said = use_command(job, loaded_from, "called", 2, RunConditions(), profile)
    assert OPTION_WORDS.command(said).startswith(words)
