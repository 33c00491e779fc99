"""Launchers: what starts and watches the processes of a cluster."""

from __future__ import annotations

import enum
import os
import signal
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from syncswitch.storage.errors import UserError
from syncswitch.storage.files import last_lines

if TYPE_CHECKING:
    from syncswitch.trainers.cluster.exchange.security import Address, Part


class ProcessState(enum.Enum):
    """Whether a process runs, as far as its launcher knows."""

    RUNNING = "running"
    STOPPED = "stopped"
    DEAD = "dead"


@dataclass(frozen=True)
class ProcessStatus:
    """The status of a process.

    `report` says how it ended, or why it may be late, for people; empty where that is not known.
    """

    state: ProcessState
    report: str = ""


class Launcher(ABC):
    """Starts a process for each part of a cluster.

    It is made where trials are requested, pickled and sent to the process of the chief, which
    opens it.

    Attributes:
        kind: The kind of launcher, by which `check_injections` knows what can be disturbed.
        waits_aloud: Whether to tell the user which part the chief waits for.
        least_patience_seconds: A chief reports several times a second while it trains; one that is
            silent so long hangs.
        servers: The number of parameter servers that share the state.
        has_gpus: Whether each worker has a GPU, or a share of one.
        start_seconds: How long a part may take to start and connect.
        listen: The address at which the chief listens; known once it is open.
        secret: The secret of the cluster, see `Identity`; known once it is open.
    """

    kind: ClassVar[str]
    waits_aloud: ClassVar[bool] = False
    least_patience_seconds: float = 30.0
    servers: int
    has_gpus: bool
    start_seconds: float
    listen: Address
    secret: bytes | None

    @abstractmethod
    def open(self, reference: str | None, workers: int, folder: Path) -> None:
        """Gets ready to start parts; called once, in the process of the chief.

        `folder` is for sockets and logs.

        Raises:
            UserError: There is no such cluster, or it is too small.
            RetryableError: The cluster is busy.
        """

    @abstractmethod
    def start(self, part: Part, chief: Address) -> None:
        """Ends the process of a part, if there is one, and starts another.

        Raises:
            RetryableError: It cannot be started now.
        """

    @abstractmethod
    def status(self, part: Part) -> ProcessStatus:
        """Returns the status of the process of a part."""

    @abstractmethod
    def signal(self, part: Part, number: int) -> None:
        """Sends a signal to the process of a part, if there is one."""

    def cannot_listen(self, error: OSError) -> UserError:
        """Returns what to raise where the chief cannot listen at its address."""
        place = self.listen if isinstance(self.listen, str) else "{}:{}".format(*self.listen)
        return UserError(
            f"the chief cannot listen at {place} ({error_text(error)}); end what listens there, or"
            " choose another place for it",
            code="cluster-unusable",
        )

    def close(self) -> None:  # noqa: B027 (one that started nothing has nothing to end)
        """Ends all processes; may be called twice."""


def error_text(error: OSError) -> str:
    """Returns the system's words for an error, without the address that Python adds to them."""
    return os.strerror(error.errno) if error.errno else str(error)


# A process with threads may be a zombie for a while before it can be waited for.
_STATES = {"stopped": ProcessState.STOPPED, "zombie": ProcessState.DEAD, "dead": ProcessState.DEAD}
_LINES = 5
_LONGEST_LINE = 200


def status_of(process_id: int, exit_code: int | None) -> ProcessStatus:
    """Returns the status of a child process.

    `exit_code` is as in `subprocess`: negative for a signal, None while it runs.
    """
    import psutil

    if exit_code is None:
        try:
            status = psutil.Process(process_id).status()
        except psutil.Error:
            return ProcessStatus(ProcessState.DEAD)
        return ProcessStatus(_STATES.get(status, ProcessState.RUNNING))
    with suppress(ValueError):
        return ProcessStatus(ProcessState.DEAD, f"died of {signal.Signals(-exit_code).name}")
    return ProcessStatus(ProcessState.DEAD, f"ended with status {exit_code}")


def with_last_output(status: ProcessStatus, log: Path) -> ProcessStatus:
    """Adds the last lines of its log to the report of a process, if that is dead."""
    if status.state is not ProcessState.DEAD:
        return status
    return replace(status, report=f"{status.report or 'died'}; {tail_of_log(log)}")


def tail_of_log(log: Path) -> str:
    """Returns the last lines of a log, shortened and on one line."""
    return last_output("\n".join(last_lines(log, _LINES)))


def last_output(text: str) -> str:
    """Returns the last lines of a log's text, shortened and on one line."""
    lines = text.strip().splitlines()
    tail = " | ".join(line.strip()[:_LONGEST_LINE] for line in lines[-_LINES:]) or "nothing"
    return f"its last output: {tail}"
