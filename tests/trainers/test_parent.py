from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

PROGRAM = """
import os, signal, time
from syncswitch.trainers.parent import die_with_parent
child = os.fork()
if child == 0:
    die_with_parent()
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(1000)
time.sleep(1000)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux's kernel offers it")
@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_child_dies_with_its_parent_even_when_that_is_killed(is_stopped: bool) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        if is_stopped:
            child.suspend()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        _, alive = psutil.wait_procs([child], timeout=30)
    assert not alive


def test_a_child_whose_parent_is_gone_already_dies_at_once() -> None:
    program = "from syncswitch.trainers.parent import die_with_parent; {}; print('alive')"
    for call, expected in (
        ("import os; die_with_parent(os.getppid())", (0, "alive\n")),
        ("die_with_parent(2**22 + 1)", (-signal.SIGKILL, "")),
    ):
        command = [sys.executable, "-c", program.format(call)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == expected
