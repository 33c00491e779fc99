"""What shells offer when somebody presses Tab."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from command_line import Invoke
from terminal import Terminal

from syncswitch.cli.run.main import main as run_main
from syncswitch.cli.search.main import main
from syncswitch.trainers.job.loading import BUILT_IN
from tests.program import for_shells

pytestmark = pytest.mark.usefixtures("one_version")


def offered(words: str, incomplete: str, *, program: str = "syncswitch-search") -> list[str]:
    """As click's script for bash asks, the word under the cursor last; `file` for any file."""
    variable = f"_{program.replace('-', '_').upper()}_COMPLETE"
    typed = [program, *words.split(), incomplete]
    environment = {
        variable: "bash_complete",
        "COMP_WORDS": " ".join(typed),
        "COMP_CWORD": str(len(typed) - 1),
    }
    command = main if program == "syncswitch-search" else run_main
    result = CliRunner().invoke(command, prog_name=program, env=environment)
    assert result.stderr == ""
    found = [line.split(",", 1) for line in result.stdout.splitlines() if line]
    return [kind if kind == "file" else name for kind, name in found]


def test_what_is_built_in_and_what_the_database_has_is_offered(invoke: Invoke) -> None:
    assert offered("run", "") == sorted([*BUILT_IN, "generated"])
    for command in ("status", "trials", "policy lookup", "sweep --policy"):
        assert offered(command, "gen") == ["generated"]
    assert offered("", "digi", program="syncswitch-run") == ["digits"]
    assert offered("run", "my_") == ["file"]

    assert offered("sweep --policy", "generated@") == ["generated@current", "generated@1"]
    assert offered("generated --policy", "", program="syncswitch-run") == ["current", "1"]
    assert offered("policy alias generated", "cur") == ["current"]
    assert offered("policy alias generated current", "") == ["1"]
    assert offered("policy diff", "gen") == ["generated"]
    assert offered("policy diff generated@1", "generated@c") == ["generated@current"]
    assert offered("report", "gen") == ["generated"]
    assert offered("report generated --study", "gen") == offered("trials --study", "gen")
    (study,) = offered("trials --study", "gen")
    assert study.startswith("generated-")
    assert offered("profile show", "uni") == ["uniform"]
    assert offered("run digits --profile", "het") == ["heterogeneous"]
    assert offered("run digits --protocols", "bsp,a") == ["bsp,asp"]


def test_a_database_that_cannot_be_read_offers_nothing(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And pressing Tab makes neither a database nor a folder."""
    assert offered(f"trials --storage sqlite:///{tmp_path}/none.db --study", "") == []
    assert offered(f"run --tensorboard {tmp_path}/logs", "digi") == ["digits"]
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "damaged.db").write_text("a shopping list, long enough to look like a file")
    for url in (f"sqlite:///{tmp_path}/damaged.db", "nonsense"):
        monkeypatch.setenv("SYNCSWITCH_STORAGE", url)
        assert offered("run", "d") == ["digits"]
        assert offered("trials --study", "") == []


ASK = {
    "zsh": """
eval "$(syncswitch-search completion zsh)"
print -- ${_comps[syncswitch-run]}
export COMP_WORDS="syncswitch-search status gen" COMP_CWORD=2
_SYNCSWITCH_SEARCH_COMPLETE=zsh_complete syncswitch-search | sed -n 2p
""",
    "fish": """
syncswitch-search completion fish | source
complete -C "syncswitch-run di"
complete -C "syncswitch-search status gen"
""",
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A search path that begins with both programs."""
    return f"{for_shells(tmp_path / 'programs')}:{os.environ['PATH']}"


@pytest.mark.parametrize("shell", list(ASK))
def test_in_a_real_shell(invoke: Invoke, tmp_path: Path, path: str, shell: str) -> None:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"no {shell} here; on Debian: apt-get install {shell}")
    script = tmp_path / "ask"
    script.write_text(ASK[shell])
    done = subprocess.run(
        [found, str(script)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": path, "HOME": str(tmp_path)},
    )
    assert done.stderr == ""
    registered, reply = done.stdout.splitlines()
    assert registered in {"_syncswitch_run_completion", "digits"}
    assert reply == "generated"


def test_in_a_bash_at_which_somebody_types(invoke: Invoke, tmp_path: Path, path: str) -> None:
    (tmp_path / "rc").write_text("PS1='ready> '\neval \"$(syncswitch-search completion bash)\"\n")
    (tmp_path / "my_job.py").touch()
    words = ["bash", "--noprofile", "--rcfile", str(tmp_path / "rc"), "-i"]
    become_bash = f"import os; os.execvp('bash', {words})"
    surroundings = {"PATH": path, "HOME": str(tmp_path), "INPUTRC": "/dev/null"}
    bash = Terminal(become_bash, columns=200, **surroundings)
    bash.wait_for("ready> ")
    bash.type(f"cd {tmp_path}\n")
    for typed, rest in (
        ("syncswitch-search status gen", "erated "),
        ("syncswitch-search policy alias generated cur", "rent "),
        ("syncswitch-search run digits --protocols bsp,a", "sp "),
        ("syncswitch-run my_", "job.py "),
    ):
        bash.text = ""
        bash.type(f"{typed}\t")
        bash.wait_for(f"{typed}{rest}")
        bash.type("\x15")  # forgets the line
    bash.type("exit\n")
    bash.end()
