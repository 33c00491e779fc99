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
from syncswitch.searcher.report.data import load_report
from syncswitch.storage.database.engine import open_database
from syncswitch.storage.records.job import RunConditions
from tests.wording import Said

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


def test_a_mistake_gets_one_line(filled_url: str, said: Said) -> None:
    for arguments in (
        ["other"],
        ["generated", "--workers", "5"],
        ["generated", "--study", "x"],
        ["generated@nope"],
        ["generated", "--protocols", "bsp"],
    ):
        result = report(filled_url, *arguments)
        assert result.exit_code == 2
        said(error_line(result))


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
    assert load_report(filled_url, "generated").namesakes == (SIMULATED.job,)


def test_a_search_is_made_again_with_what_it_was_made_with(said: Said) -> None:
    for changes, conditions in (
        (
            {"options": {"share_prefix": True, "baseline_runs": 3}, "base_seed": 5},
            RunConditions(online="elastic"),
        ),
        ({"pairs": ["bsp,asp", "bsp,ssp:3"]}, RunConditions()),
        ({"trainer": "local/threads, 1 GPU"}, RunConditions()),
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
        ),
        ({"options": {"threshold_runs": 5}}, RunConditions()),
    ):
        command = search_command(JOB, "jobs.py:it", search_info(JOB, **changes), conditions)
        said(OPTION_WORDS.command(command))


def test_a_policy_is_used_where_it_can_be(said: Said) -> None:
    for job, loaded_from, profile in (
        (JOB, "digits", None),
        (LARGE, None, None),
        (JOB, "no/file.py:it", None),
        (SIMULATED, None, None),
        (SIMULATED, None, "my.json"),
    ):
        command = use_command(job, loaded_from, "called", 2, RunConditions(), profile)
        said(OPTION_WORDS.command(command))
