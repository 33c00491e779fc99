from __future__ import annotations

from pathlib import Path

from tests.warm_program import WarmProcess, run_code


def test_a_fork_has_imported_what_programs_need(tmp_path: Path) -> None:
    """What is missing in the fork server is said by nobody; each program imports it for itself."""
    names = {"keras", "optuna", "syncswitch.cli.search.main", "syncswitch.cli.run.main"}
    code = f"import sys; print(sorted({names!r} - sys.modules.keys()))"
    done = run_code(code, folder=tmp_path)
    assert done.stdout == "[]\n", done.stderr


def test_many_may_end_at_once(tmp_path: Path) -> None:
    for _ in range(4):
        started = [WarmProcess("", folder=tmp_path) for _ in range(8)]
        for process in started:
            process.communicate()
        assert [process.returncode for process in started] == [0] * 8
