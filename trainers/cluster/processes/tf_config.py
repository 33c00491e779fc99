"""The cluster that the environment variable TF_CONFIG describes; pure.

Kubernetes' TFJob, and users of batch systems, start the same command once for each part of a
cluster. TF_CONFIG tells each process where all parts are, and which of them it is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from syncswitch.storage.errors import UserError

TF_CONFIG = "TF_CONFIG"

_USAGE = (
    'it has to look like {"cluster": {"chief": ["a:2222"], "ps": ["b:2222"], "worker": ["c:2222",'
    ' "d:2222"]}, "task": {"type": "worker", "index": 0}}'
)
_WITHOUT = "or unset it, or use another --launcher, to train without this cluster"
_OLD_NAMES = {"master": "chief"}
_JOBS = ("chief", "ps", "worker", "evaluator")
_ADDRESS = re.compile(
    r"(?:(?P<host>[A-Za-z0-9_.-]+)|\[(?P<ipv6>[0-9A-Fa-f:.]+)\]):(?P<port>[0-9]{1,5})"
)
_LAST_PORT = 65535


class _Task(msgspec.Struct):
    type: str
    index: int = 0


class _Content(msgspec.Struct):
    cluster: dict[str, list[str]]
    task: _Task


@dataclass(frozen=True)
class TfConfig:
    """A cluster and the role of this process in it.

    Attributes:
        addresses: The addresses by job, each `host:port`: one `chief`, and each `ps` and `worker`
            in the order of their numbers.
        job: The job of this process: one of these, or `evaluator`, which has nothing to do.
        task: The number of this process in its job.
    """

    addresses: Mapping[str, tuple[str, ...]]
    job: str
    task: int

    @property
    def workers(self) -> int:
        """The number of workers."""
        return len(self.addresses["worker"])

    @property
    def servers(self) -> int:
        """The number of parameter servers."""
        return len(self.addresses["ps"])

    @property
    def chief(self) -> str:
        """The address of the chief."""
        return self.addresses["chief"][0]

    @property
    def own(self) -> str:
        """The address of this process."""
        return self.addresses[self.job][self.task]

    @property
    def name(self) -> str:
        """The name of this process, for people, such as `worker 2`."""
        is_one_of_many = self.job == "worker" or (self.job == "ps" and self.servers > 1)
        return f"{self.job} {self.task}" if is_one_of_many else self.job


def read_tf_config(environment: Mapping[str, str]) -> TfConfig:
    """Reads the cluster from an environment."""
    if TF_CONFIG not in environment:
        raise UserError(f"{TF_CONFIG} is not set, and --launcher tf-config needs it: {_USAGE}")
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
    """Splits an address such as `host:2222` or `[::1]:2222`.

    Raises:
        ValueError: It is not such an address.
    """
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
    return UserError(f"{TF_CONFIG} {problem}; {_USAGE}, {_WITHOUT}")
