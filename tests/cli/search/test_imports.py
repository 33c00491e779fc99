"""Commands import no more than they need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import elsewhere

from syncswitch.storage.database.defaults import ENVIRONMENT_VARIABLE

# In one process, as its start takes longest: what one has imported, those after it may.
EACH = """
import json, os, sys
sys.modules |= {"pandas": None, "pyarrow": None}
from syncswitch.cli.search.main import main
for words, environment, heavy, status in json.loads(sys.argv[1]):
    os.environ |= environment
    try:
        main(words, prog_name="syncswitch-search")
    except SystemExit as exit:
        found = [name for name in heavy.split() if sys.modules.get(name)]
        assert (exit.code, found) == (status, []), (words, exit.code, found)
    for name in environment:
        del os.environ[name]
"""
TAB = {
    "_SYNCSWITCH_SEARCH_COMPLETE": "bash_complete",
    "COMP_WORDS": "syncswitch-search trials gen",
    "COMP_CWORD": "2",
}
OFTEN = "alembic keras numpy optuna pandas psutil pydantic rich scipy sklearn tensorflow"
HELP = "tensorflow keras optuna alembic rich"
READS = "tensorflow keras optuna alembic sqlalchemy.orm sqlalchemy.dialects.postgresql"


@pytest.mark.usefixtures("one_version")
def test_commands_import_nothing_heavy(url: str, folder: Path) -> None:
    replay = ["run", "generated", "--trainer", "replay", "--recordings", url]
    replay += ["--storage", elsewhere(folder), "--strategy", "paper", "--halvings", "2"]
    commands = [
        (["--help"], {}, f"{OFTEN} sqlalchemy", 0),
        (["policy", "lookup", "generated"], {}, f"{OFTEN} {READS}", 0),
        (["run", "--help"], {}, HELP, 0),
        (["policy", "lookup", "--help"], {}, HELP, 0),
        ([], TAB, READS, 0),
        (["policy", "lookup", "other", "--workers", "8"], {}, READS, 1),
        (["trials"], {}, "tensorflow keras", 0),
        (["trials", "--json"], {}, "tensorflow keras", 0),
        (["trials", "--format", "csv"], {}, "tensorflow keras", 0),
        (["switch-points", "--json"], {}, "tensorflow keras", 0),
        # Nothing of the workload is loaded.
        ([*replay, "--runs", "1"], {}, "tensorflow keras", 0),
    ]
    done = subprocess.run(
        [sys.executable, "-c", EACH, json.dumps(commands)],
        capture_output=True,
        text=True,
        env={**os.environ, ENVIRONMENT_VARIABLE: url},
    )
    assert done.returncode == 0, done.stderr
    assert "plain,generated" in done.stdout.splitlines()
