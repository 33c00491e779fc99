"""Entry points of other packages that do not load."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from syncswitch.storage.errors import UserError
from syncswitch.trainers import extensions
from syncswitch.trainers.extensions import registered
from syncswitch.trainers.protocols import SyncProtocol

Register = Callable[[str], None]


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Register:
    """Makes a module with this source the only entry point."""
    monkeypatch.syspath_prepend(tmp_path)

    def make(source: str) -> None:
        name = f"ep_{abs(hash(source))}"
        (tmp_path / f"{name}.py").write_text(source)
        points = EntryPoints([EntryPoint("other", f"{name}:One", "syncswitch.protocols")])
        monkeypatch.setattr(extensions, "_in_group", lambda _: points)

    return make


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("import sys; sys.exit()", "SystemExit"),
        ("import sys; sys.exit('needs the package x')", "SystemExit: needs the package x"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("class Own(BaseException): pass\nraise Own('x')", "Own: x"),
        ("raise ImportError('needs x')", "ImportError: needs x"),
    ],
)
def test_whatever_a_module_raises_is_one_line(register: Register, source: str, reason: str) -> None:
    register(source)
    before = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
    (found,) = registered("syncswitch.protocols", SyncProtocol)  # type: ignore[type-abstract]
    assert isinstance(found, UserError)
    assert f" failed with {reason}; mend or uninstall the package" in str(found)
    assert "\n" not in str(found)
    assert before == [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]


def test_a_real_interrupt_is_one(register: Register) -> None:
    register("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)")
    with pytest.raises(KeyboardInterrupt):
        list(registered("syncswitch.protocols", SyncProtocol))  # type: ignore[type-abstract]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_program_goes_on_without_such_a_package(tmp_path: Path) -> None:
    folder = tmp_path / "ep-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: ep\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[syncswitch.trainers]\nother = ep_module:Trainer\n")
    (tmp_path / "ep_module.py").write_text("raise SystemExit(0)")
    code = "from syncswitch.cli.program import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", code, "no-such-file.py:workload"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    told, error = done.stderr.strip().splitlines()
    assert "trainer 'other': loading ep_module:Trainer failed with SystemExit: 0" in told
    assert "there is no file no-such-file.py" in error
    assert done.returncode == 2
