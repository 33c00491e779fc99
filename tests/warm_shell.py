"""Commands for shells whose programs need not import TensorFlow first.

A shell finds scripts in a folder. Each asks this process for a fork (see `warm_server.py`) with its
own arguments, folder, environment and standard streams, and ends as that does.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.warm_program import Fork

_SCRIPT = """#!{python} -IS
import json, os, socket, sys
words = [{name!r}, *sys.argv[1:]]
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({address!r})
    socket.send_fds(asked, [b"?"], [0, 1, 2])
    with asked.makefile("rw") as lines:
        print(json.dumps([words, os.getcwd(), dict(os.environ)]), file=lines, flush=True)
        code = int(lines.readline())
sys.exit(code)
"""


class WarmShell:
    """The folder, as long as it is open.

    Args:
        folder: An empty one.
        programs: What each script runs, by its name.
    """

    def __init__(self, folder: Path, programs: Mapping[str, str]) -> None:
        self._programs = programs
        address = str(folder / "socket")
        self._asked = socket.socket(socket.AF_UNIX)
        self._asked.bind(address)
        self._asked.listen()
        for name in programs:
            script = folder / name
            script.write_text(_SCRIPT.format(python=sys.executable, name=name, address=address))
            script.chmod(0o755)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Nobody is answered any more."""
        self._asked.shutdown(socket.SHUT_RDWR)
        self._asked.close()

    def _serve(self) -> None:
        while True:
            try:
                script, _ = self._asked.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(script,), daemon=True).start()

    def _answer(self, script: socket.socket) -> None:
        _, standard, _, _ = socket.recv_fds(script, 1, 3)
        with script, script.makefile("rw") as lines:
            words, folder, environment = json.loads(lines.readline())
            fork = Fork(self._programs[words[0]], words, Path(folder), environment, tuple(standard))
            print(fork.wait() & 0xFF, file=lines, flush=True)
