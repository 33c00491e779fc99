"""The option `--cpu-durations N`: which tests, and which modules of them, take a processor longest.

Counts this process, all that it has started and what those have started, also while they go on,
and what has left its parent, like a database's server, but not the counting, which looks at all
processes of the machine: other than the time on the wall it hardly depends on what else that does.
"""

from __future__ import annotations

import ctypes
import resource
import sys
import time
from collections import Counter
from collections.abc import Generator
from typing import Any

import psutil
import pytest

_PR_SET_CHILD_SUBREAPER = 36


def add_option(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-durations",
        type=int,
        default=0,
        metavar="N",
        help="show the N tests, and the N modules, that take the most processor seconds",
    )


class CpuSeconds:
    """Notes the seconds in the report of each phase of a test; sums them up in the end."""

    def __init__(self, shown: int) -> None:
        self._shown = shown
        if sys.platform.startswith("linux"):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._counting = 0.0
        self._before = self._now()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        report = yield
        now = self._now()
        report.cpu_seconds = now - self._before
        self._before = now
        return report

    def _now(self) -> float:
        began = time.thread_time()
        used = _cpu_seconds() - self._counting
        self._counting += time.thread_time() - began
        return used

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        tests: Counter[str] = Counter()
        modules: Counter[str] = Counter()
        for reports in terminalreporter.stats.values():
            for report in reports:
                seconds = getattr(report, "cpu_seconds", 0.0)
                if seconds:
                    tests[f"{report.when:8} {report.nodeid}"] += seconds
                    modules[report.nodeid.partition("::")[0]] += seconds
        terminalreporter.section(f"processor seconds: {modules.total():.0f}")
        for counted in (tests, modules):
            for name, seconds in counted.most_common(self._shown):
                terminalreporter.write_line(f"{seconds:7.1f} {name}")
            terminalreporter.write_line("")


def _cpu_seconds() -> float:
    """Of this process and its children, those that have ended and those that run."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    total = sum(one.ru_utime + one.ru_stime for one in used)
    for child in psutil.Process().children(recursive=True):
        try:
            total += sum(child.cpu_times()[:4])
        except psutil.Error:
            continue  # it ends just now
    return total
