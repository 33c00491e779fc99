"""The launcher on a cluster that TF_CONFIG describes, whose processes a platform starts.

Kubernetes' TFJob, and users of batch systems, start the same command once for each part of a
cluster. TF_CONFIG tells each process where all parts are, and which of them it is.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from typing_extensions import override

from syncswitch.storage.errors import OptionHint, RetryableError, UserError
from syncswitch.trainers.cluster.members.launcher import (
    Launcher,
    ProcessState,
    ProcessStatus,
    error_text,
)
from syncswitch.trainers.cluster.processes.this_machine import GROWTH, NO_GPU

if TYPE_CHECKING:
    from syncswitch.trainers.cluster.exchange.security import Address, Part

_LOG = logging.getLogger(__name__)

TF_CONFIG = "TF_CONFIG"

_USAGE = (
    'it has to look like {"cluster": {"chief": ["a:2222"], "ps": ["b:2222"], "worker": ["c:2222",'
    ' "d:2222"]}, "task": {"type": "worker", "index": 0}}'
)
_WITHOUT = "or unset it, or use another launcher, to train without this cluster"
_OLD_NAMES = {"master": "chief"}
_JOBS = ("chief", "ps", "worker", "evaluator")
_ADDRESS = re.compile(
    r"(?:(?P<host>[A-Za-z0-9_.-]+)|\[(?P<ipv6>[0-9A-Fa-f:.]+)\]):(?P<port>[0-9]{1,5})"
)
_LAST_PORT = 65535
_PAUSE_SECONDS = 0.25
_ANOTHER_ADDRESS = f"give it an address of this machine in {TF_CONFIG}"
_CANNOT_LISTEN = {
    errno.EADDRINUSE: f"end what listens there, or give it another port in {TF_CONFIG}",
    errno.EACCES: f"give it a port from 1024 on in {TF_CONFIG}, or the right to this one",
}
_LEAST_SECRET_BYTES = 16


class _Task(msgspec.Struct):
    type: str
    index: int = 0


class _Content(msgspec.Struct):
    cluster: dict[str, list[str]]
    task: _Task


@dataclass(frozen=True)
class TfConfig:
    """A cluster and the role of this process in it."""

    # The addresses by job, each `host:port`: one `chief`, and each `ps` and `worker` in the order
    # of their numbers.
    addresses: Mapping[str, tuple[str, ...]]
    job: str  # the job of this process: one of these, or `evaluator`, which has nothing to do
    task: int  # the number of this process in its job

    @property
    def workers(self) -> int:
        return len(self.addresses["worker"])

    @property
    def servers(self) -> int:
        return len(self.addresses["ps"])

    @property
    def chief(self) -> str:
        return self.addresses["chief"][0]

    @property
    def own(self) -> str:
        return self.addresses[self.job][self.task]

    @property
    def name(self) -> str:
        """The name of this process, for people, such as `worker 2`."""
        is_one_of_many = self.job == "worker" or (self.job == "ps" and self.servers > 1)
        return f"{self.job} {self.task}" if is_one_of_many else self.job


def read_tf_config(environment: Mapping[str, str]) -> TfConfig:
    """Reads the cluster from an environment."""
    if TF_CONFIG not in environment:
        raise UserError(
            f"{TF_CONFIG} is not set, and the launcher tf-config needs it: {_USAGE}",
            code="cluster-unusable",
        )
    return parse_tf_config(environment[TF_CONFIG])


def parse_tf_config(text: str) -> TfConfig:
    """Parses the value of TF_CONFIG; an index may be a string, as shell scripts write it."""
    try:
        content = msgspec.json.decode(text, type=_Content, strict=False)
    except (ValueError, RecursionError) as error:
        raise _bad(f"cannot be used ({error})") from error
    addresses = _addresses(content.cluster)
    job, task = _job(content.task.type), content.task.index
    if job is None:
        raise _bad(f"has the task type {content.task.type!r}; known are {', '.join(_JOBS)}")
    # Platforms leave the evaluator out of the cluster.
    if job != "evaluator" and not 0 <= task < len(addresses[job]):
        raise _bad(
            f"says that this process is {job} {task}, and the cluster has {len(addresses[job])}"
            " of them, numbered from 0"
        )
    return TfConfig({name: addresses[name] for name in _JOBS[:3]}, job, task)


def host_and_port(address: str) -> tuple[str, int]:
    """Splits an address such as `host:2222` or `[::1]:2222`; raises ValueError for any other."""
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match["port"]) <= _LAST_PORT:
        raise ValueError(address)
    return match["host"] or match["ipv6"], int(match["port"])


def _job(written: str) -> str | None:
    job = _OLD_NAMES.get(written, written)
    return job if job in _JOBS else None


def _addresses(cluster: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for written, addresses in cluster.items():
        job = _job(written)
        if job is None:
            raise _bad(f"has a job {written!r} in its cluster; known are {', '.join(_JOBS)}")
        if job in found:
            raise _bad("has both a chief and a master, which is the chief's old name")
        found[job] = tuple(addresses)
    for job in _JOBS[:3]:
        if not found.get(job):
            raise _bad(f"has no {job} in its cluster")
    if len(found["chief"]) > 1:
        raise _bad(f"has {len(found['chief'])} addresses for chief, and only one is supported")
    counts = Counter(one for each in found.values() for one in each)
    for address, count in counts.items():
        try:
            host_and_port(address)
        except ValueError as error:
            raise _bad(f"has the address {address!r}, which is not host:port") from error
        if count > 1:
            raise _bad(f"has the address {address!r} twice")
    return found


def _bad(problem: str) -> UserError:
    return UserError(f"{TF_CONFIG} {problem}; {_USAGE}, {_WITHOUT}", code="cluster-unusable")


class TfConfigLauncher(Launcher):
    """Starts and ends nothing: parts dial their chief, and their platform restarts them.

    A part may take `limit_seconds` to connect, at first and after a loss.
    """

    kind = "tf-config"
    waits_aloud = True

    def __init__(
        self,
        config: TfConfig,
        limit_seconds: float,
        secret: bytes | None,
        *,
        has_gpus: bool = False,
    ) -> None:
        self.config = config
        self.start_seconds = limit_seconds
        # A run may have nothing to do but wait for a part.
        self.least_patience_seconds = limit_seconds + Launcher.least_patience_seconds
        self.servers = config.servers
        self.secret = secret
        self.has_gpus = has_gpus
        self.listen = host_and_port(config.chief)

    @override
    def open(self, reference: str | None, workers: int, folder: Path) -> None:
        # A new pod may start before its own name is known.
        host, deadline = host_and_port(self.config.chief)[0], time.monotonic() + self.start_seconds
        while True:
            try:
                socket.getaddrinfo(host, None)
            except socket.gaierror as error:
                if time.monotonic() > deadline:
                    raise UserError(
                        f"{TF_CONFIG} says that the chief is at {host}, a name that is not known"
                        f" here ({error.strerror}); give it an address of this machine",
                        code="cluster-unusable",
                    ) from error
                time.sleep(_PAUSE_SECONDS)
            else:
                return

    @override
    def cannot_listen(self, error: OSError) -> UserError:
        return _cannot_listen(self.config, error)

    @override
    def start(self, part: Part, chief: Address) -> None:
        """Does nothing: a part that was given up dials again."""

    @override
    def status(self, part: Part) -> ProcessStatus:
        return ProcessStatus(
            ProcessState.RUNNING,
            f"it is {self.config.addresses[part[0]][part[1]]} in TF_CONFIG; check that it was"
            " started and can be reached, or give it more time",
        )

    @override
    def signal(self, part: Part, number: int) -> None:
        _LOG.warning(
            "%s %d at %s does not answer; only your platform can end and restart it",
            *part,
            self.config.addresses[part[0]][part[1]],
        )


def cluster_secret(*, is_open: bool) -> bytes | None:
    """Reads the secret by which the parts of a cluster recognize each other.

    With `is_open` there is none, and no encryption; otherwise a missing or short one is refused.
    """
    from syncswitch.trainers.cluster.exchange.parts import SECRET

    if is_open:
        return None
    secret = os.environ.get(SECRET, "").encode()
    if len(secret) < _LEAST_SECRET_BYTES:
        problem = f"has {len(secret)} characters, too few" if secret else "is not set"
        raise UserError(
            f"{SECRET} {problem}: anyone who reaches a part of the cluster could run any"
            f" computation on it. Set it to the same {_LEAST_SECRET_BYTES} characters or more in"
            " the environment of each part, such as the output of `openssl rand -hex 32`",
            remedy=OptionHint(
                "open_network",
                True,
                "if only people you trust can reach or listen to these machines, give each part",
            ),
            code="cluster-unusable",
        )
    return secret


def check_address(config: TfConfig) -> None:
    """Raises UserError if this part cannot listen at its address.

    A name that is not known may become so, see `TfConfigLauncher.open`.
    """
    host, port = host_and_port(config.own)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except socket.gaierror:
        return
    except OSError as error:
        raise _cannot_listen(config, error) from error


def _cannot_listen(config: TfConfig, error: OSError) -> UserError:
    remedy = _CANNOT_LISTEN.get(error.errno or 0, _ANOTHER_ADDRESS)
    return UserError(
        f"{config.name} cannot listen at {config.own} ({error_text(error)}); {remedy}",
        code="cluster-unusable",
    )


def serve_until_chief_is_gone(
    launcher: TfConfigLauncher,
    grace_seconds: float,
    say: Callable[[str], None],
    gpus_per_worker: float = 0.0,
    reference: str | None = None,
) -> None:
    """Runs the part that TF_CONFIG names until its chief has gone.

    A chief that has gone may be started again within `grace_seconds`; `say` is called with lines
    for the user.

    Raises:
        UserError: It cannot listen at its address.
        RetryableError: No chief came.
    """
    from syncswitch.trainers.cluster.exchange.parts import SECRET, PartConfig, serve_chief

    config = launcher.config
    is_worker_with_gpu = config.job == "worker" and gpus_per_worker > 0
    os.environ.update(GROWTH if is_worker_with_gpu else NO_GPU)
    chief, listen = host_and_port(config.chief), host_and_port(config.own)
    own = PartConfig((config.job, config.task), chief, listen, launcher.secret, reference)
    was_there, why, deadline = False, "", time.monotonic() + launcher.start_seconds
    say(f"{config.name} at {config.own} waits for its chief at {config.chief}")
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))
    while time.monotonic() < deadline:
        try:
            check_address(config)
            serve_chief(own)
            # A chief that died may be restarted by its platform, and needs its parts then.
            was_there, deadline = True, time.monotonic() + grace_seconds
        except OSError as error:
            why = error.strerror or str(error)
        time.sleep(_PAUSE_SECONDS)
    if not was_there:
        raise RetryableError(
            f"no chief was at {config.chief} within {launcher.start_seconds:g} s ({why}); start it,"
            f" and this part again, with the same {SECRET}, addresses and openness",
            remedy=OptionHint("cluster_timeout", verb="give it more time with"),
            code="cluster-lost",
        )
    say(f"the chief at {config.chief} has been gone for {grace_seconds:g} s: {config.name} ends")
