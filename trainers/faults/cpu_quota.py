"""Limits a process to a share of one CPU, by a Linux control group."""

from __future__ import annotations

import os
import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from syncswitch.storage.errors import UserError

__all__ = ["CpuQuota", "check_cpu_quota"]

_PERIOD_MICROSECONDS = 10_000  # short against a worker-step, so that all of them are slow
_LEAST_MICROSECONDS = 1_000  # the kernel allows no shorter quota
_SECONDS_TO_EMPTY = 5.0


@dataclass(frozen=True, slots=True)
class _Controller:
    """Where the `cpu` controller's groups are: `root`, and the folder of a process below it."""

    root: Path
    group: Path
    is_version_2: bool


class CpuQuota:
    """A process, its threads and later children get no more than a share of one CPU.

    A context manager; the end of it, or `close`, lifts the limit.

    Args:
        process_id: Of the process.
        percent: Of one CPU; 1 to 100.

    Raises:
        UserError: This system lets this user make no control groups.
    """

    def __init__(self, process_id: int, percent: float) -> None:
        self._home: Path | None = None
        try:
            controller = _controller_of(process_id)
            self._group = _make_group(controller, percent)
            self._home = controller.group
        except OSError as error:
            raise _no_quota(error) from error
        try:
            (self._group / "cgroup.procs").write_text(str(process_id))
        except OSError as error:
            self.close()
            raise _no_quota(error) from error

    def close(self) -> None:
        """Moves what is in the group back to where it was, and removes the group."""
        home, self._home = self._home, None
        if home is None:
            return
        deadline = time.monotonic() + _SECONDS_TO_EMPTY
        while True:
            for process_id in (self._group / "cgroup.procs").read_text().split():
                _move(process_id, home)
            try:
                self._group.rmdir()
                return
            except OSError:
                # A process that has just died counts until the kernel has cleared it away.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def __enter__(self) -> CpuQuota:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def check_cpu_quota() -> None:
    """Finds out whether a quota can be had, before a run depends on it.

    Raises:
        UserError: It cannot.
    """
    try:
        _make_group(_controller_of(os.getpid()), 100.0).rmdir()
    except OSError as error:
        raise _no_quota(error) from error


def _controller_of(process_id: int) -> _Controller:
    """Where the group of a process is. Raises OSError where there is none to be seen."""
    for line in Path(f"/proc/{process_id}/cgroup").read_text().splitlines():
        number, names, path = line.split(":", 2)
        is_version_2 = number == "0" and not names
        if "cpu" not in names.split(",") and not is_version_2:
            continue
        root = _mounted("cgroup2" if is_version_2 else "cgroup", is_version_2)
        if root is None or (is_version_2 and not _offers_cpu(root)):
            continue
        group = root / path.lstrip("/")
        # Inside a container the path may be that of its host.
        return _Controller(root, group if group.is_dir() else root, is_version_2)
    raise OSError("there is no cpu controller")


def _mounted(kind: str, is_version_2: bool) -> Path | None:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, mounted, options, *_ = line.split()
        if mounted == kind and (is_version_2 or "cpu" in options.split(",")):
            return Path(place)
    return None


def _offers_cpu(root: Path) -> bool:
    controllers = root / "cgroup.controllers"
    return controllers.is_file() and "cpu" in controllers.read_text().split()


def _make_group(controller: _Controller, percent: float) -> Path:
    """A new group with a quota, and nothing in it. Raises OSError."""
    share = percent / 100
    period = max(_PERIOD_MICROSECONDS, round(_LEAST_MICROSECONDS / share))
    quota = max(_LEAST_MICROSECONDS, round(period * share))
    parent = controller.group
    if controller.is_version_2 and "cpu" not in _subtree_controllers(parent):
        try:
            (parent / "cgroup.subtree_control").write_text("+cpu")
        except OSError:
            # A group with processes of its own cannot pass the controller on; the root's can.
            parent = controller.root
            if "cpu" not in _subtree_controllers(parent):
                raise
    group = parent / f"syncswitch-{secrets.token_hex(8)}"
    group.mkdir()
    try:
        if controller.is_version_2:
            (group / "cpu.max").write_text(f"{quota} {period}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(period))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
    except OSError:
        group.rmdir()
        raise
    return group


def _subtree_controllers(group: Path) -> list[str]:
    return (group / "cgroup.subtree_control").read_text().split()


def _move(process_id: str, home: Path) -> None:
    with suppress(ProcessLookupError):  # it has ended meanwhile
        (home / "cgroup.procs").write_text(process_id)


def _no_quota(error: OSError) -> UserError:
    where = f" at {error.filename}" if error.filename else ""
    return UserError(
        f"by=cpu: no control group with a CPU quota can be made here"
        f" ({error.strerror or error}{where}); use by=thread or by=proxy, or run as root"
    )
