"""The password of a database's URL is in no output."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from command_line import LEAST
from search_program import generated_job

from syncswitch.cli.search.main import main
from syncswitch.searcher.backends.local import LocalTrainer


def test_no_command_shows_the_password_of_its_database(
    postgresql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNCSWITCH_CHECKPOINTS", str(tmp_path / "checkpoints"))
    monkeypatch.setattr(LocalTrainer, "job", generated_job)
    mark = "&" if "?" in postgresql_url else "?"
    url = f"{postgresql_url}{mark}password=hunter2&sslpassword=hunter2"
    page = tmp_path / "report.html"
    shown = ""
    for words in (
        ["policy", "lookup", "generated"],
        ["run", "generated", *LEAST],
        ["run", "generated", *LEAST, "--json"],
        ["status"],
        ["policy", "show", "generated"],
        ["policy", "lookup", "other"],
        ["report", "generated", "-o", str(page)],
        ["db", "check"],
        ["db", "upgrade"],
        ["run", "generated", "--trainer", "replay", "--recordings", url],
    ):
        done = CliRunner().invoke(main, [*words, "--storage", url], prog_name="syncswitch-search")
        shown += done.stdout + done.stderr
    assert "password=***" in shown
    assert "hunter2" not in shown
    assert "hunter2" not in page.read_text()
