"""Makes the pictures of this folder: `python docs/make_pictures.py`, a minute on two cores.

A real search is made in a temporary folder. Its programs run on a terminal of their own, and what
they print there becomes an SVG; the report becomes a PNG, photographed by a headless Chromium.
"""

from __future__ import annotations

import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

PICTURES = Path(__file__).parent / "pictures"

PROGRAMS = {
    "syncswitch-search": "syncswitch.cli.search.main",
    "syncswitch-run": "syncswitch.cli.run.main",
}
JOB = "digits --trainer simulated --workers 8 --halvings 4"
SEARCH = f"syncswitch-search run {JOB}"
STATUS = "syncswitch-search status digits --once"
LOOKUP = "syncswitch-search policy lookup digits"
REPORT = "syncswitch-search report digits -o report.html"

# The browser's own fonts do, so that the picture needs no network.
_WEB_FONTS = re.compile(r"\s*@font-face \{.*?\n\s*\}", re.DOTALL)
_TALLEST_PIXELS = 1_640
COLUMNS = 100
RUNS_BEFORE_STATUS = 1
SECONDS_BEFORE_STATUS = 2  # into the next run


def main() -> None:
    """Makes all pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draw(STATUS, search(folder), "status.svg")
        draw(LOOKUP, on_terminal(LOOKUP, folder), "lookup.svg")
        on_terminal(REPORT, folder)
        with browser(folder) as driver:
            for width in (1280, 390):
                photograph(driver, folder / "report.html", width, f"report-{width}.png")


def search(folder: Path) -> str:
    """Makes and draws a search; gives what `status` said of it after some runs."""
    with Program(SEARCH, folder) as running:
        told = [running.line() for _ in range(RUNS_BEFORE_STATUS)]
        time.sleep(SECONDS_BEFORE_STATUS)
        with running.paused():
            status = on_terminal(STATUS, folder)
        output = running.rest()
    draw(SEARCH, "".join(told) + output, "search.svg")
    return status


def on_terminal(command: str, folder: Path) -> str:
    """What a program writes."""
    with Program(command, folder) as running:
        return running.rest()


class Program:
    """One of ours, on a terminal of its own: what it writes, colours included.

    Its progress goes into a pipe: bars move about, and a picture stands still.
    """

    def __init__(self, command: str, folder: Path) -> None:
        program, *words = shlex.split(command)
        self._command = command
        self._terminal, theirs = pty.openpty()
        size = {"COLUMNS": str(COLUMNS), "LINES": "50", "TERM": "xterm-256color"}
        environment = {**os.environ, **size}
        environment.pop("SYNCSWITCH_STORAGE", None)
        code = f"from {PROGRAMS[program]} import main; main(prog_name={program!r})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, *words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.PIPE,
            text=True,
        )
        os.close(theirs)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.__exit__(None, None, None)
        os.close(self._terminal)

    def line(self) -> str:
        """The next line of its progress."""
        assert self._process.stderr is not None
        return self._process.stderr.readline()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """It stands still meanwhile, so that a slow machine makes the same picture."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def rest(self) -> str:
        """All that it still writes.

        Raises:
            RuntimeError: It fails.
        """
        with ThreadPoolExecutor() as readers:
            written = readers.submit(lambda: b"".join(self._chunks()))
            _, progress = self._process.communicate()
        if self._process.returncode:
            raise RuntimeError(f"{self._command}: {progress}")
        return str(progress) + written.result().decode().replace("\r\n", "\n")

    def _chunks(self) -> Iterator[bytes]:
        while True:
            try:
                chunk = os.read(self._terminal, 65_536)
            except OSError:  # what Linux says where the other end is closed
                return
            if not chunk:
                return
            yield chunk


def draw(command: str, output: str, name: str) -> None:
    """A picture of a terminal with a command and its output."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text(f"$ {command}", style="bold"))
    console.print(Text.from_ansi(output.rstrip()), "")  # without room the last line is cut
    svg = _WEB_FONTS.sub("", console.export_svg(title="", unique_id=Path(name).stem))
    (PICTURES / name).write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n")


@contextmanager
def browser(folder: Path) -> Iterator[Any]:
    """A headless Chromium with a profile of its own."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "no-first-run"):
        options.add_argument(f"--{argument}")
    options.add_argument(f"--user-data-dir={folder / 'profile'}")
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield driver
    finally:
        driver.quit()


def photograph(driver: Any, page: Path, width: int, name: str) -> None:
    """The beginning of a page, on a screen that is so wide."""
    size = {"width": width, "height": 1_000, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    driver.get(page.as_uri())
    tall = driver.execute_script("return document.documentElement.scrollHeight")
    size["height"] = min(tall, _TALLEST_PIXELS)
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.save_screenshot(str(PICTURES / name))


if __name__ == "__main__":
    main()
