"""A cluster as the environment variable TF_CONFIG describes it; pure.

Kubernetes' TFJob, and people with a batch system, start the same command once for each part of a
cluster and say in TF_CONFIG where all parts are and which one this process is.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from syncswitch.storage.errors import UserError

TF_CONFIG = "TF_CONFIG"

_USAGE = (
    'it is to be such as {"cluster": {"chief": ["a:2222"], "ps": ["b:2222"], "worker": ["c:2222",'
    ' "d:2222"]}, "task": {"type": "worker", "index": 0}}'
)
_WITHOUT = "or unset it, or use another --launcher, to train without this cluster"
_OLD_NAMES = {"master": "chief"}
_JOBS = ("chief", "ps", "worker", "evaluator")
_ADDRESS = re.compile(
    r"(?:(?P<host>[A-Za-z0-9_.-]+)|\[(?P<ipv6>[0-9A-Fa-f:.]+)\]):(?P<port>[0-9]{1,5})"
)
_LAST_PORT = 65535


@dataclass(frozen=True)
class TfConfig:
    """A cluster and the role of this process in it.

    Attributes:
        addresses: By job: one `chief`, and each `ps` and `worker` in the order of their numbers;
            each `host:port`.
        job: Job of this process: one of these, or `evaluator`, which has nothing to do.
        task: Number of this process in its job.
    """

    addresses: Mapping[str, tuple[str, ...]]
    job: str
    task: int

    @property
    def workers(self) -> int:
        """How many."""
        return len(self.addresses["worker"])

    @property
    def servers(self) -> int:
        """How many parameter servers."""
        return len(self.addresses["ps"])

    @property
    def chief(self) -> str:
        """Address of the chief."""
        return self.addresses["chief"][0]

    @property
    def name(self) -> str:
        """Name of this process, for people."""
        is_one_of_many = self.job == "worker" or (self.job == "ps" and self.servers > 1)
        return f"{self.job} {self.task}" if is_one_of_many else self.job


def read_tf_config(environment: Mapping[str, str]) -> TfConfig:
    """The cluster that an environment describes."""
    if TF_CONFIG not in environment:
        raise UserError(f"{TF_CONFIG} is not set, and --launcher tf-config needs it: {_USAGE}")
    return parse_tf_config(environment[TF_CONFIG])


def parse_tf_config(text: str) -> TfConfig:
    """Reads the value of TF_CONFIG."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _bad(f"is not JSON ({' '.join(str(error).split())})") from error
    if not isinstance(content, dict):
        raise _bad("is no JSON object")
    jobs = content.get("cluster")
    if not isinstance(jobs, dict) or not jobs:
        raise _bad("has no cluster")
    addresses = _addresses(jobs)
    job, task = _task(content.get("task"))
    # Platforms leave the evaluator out of the cluster.
    if job != "evaluator" and not 0 <= task < len(addresses[job]):
        raise _bad(
            f"says that this process is {job} {task}, and the cluster has {len(addresses[job])}"
            " of them, numbered from 0"
        )
    return TfConfig({name: addresses[name] for name in _JOBS[:3]}, job, task)


def host_and_port(address: str) -> tuple[str, int]:
    """Parts of an address such as `host:2222` or `[::1]:2222`."""
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match["port"]) <= _LAST_PORT:
        raise ValueError(address)
    return match["host"] or match["ipv6"], int(match["port"])


def _addresses(jobs: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for written, values in jobs.items():
        job = _OLD_NAMES.get(written, written)
        if job not in _JOBS:
            raise _bad(f"has a job {written!r} in its cluster; known are {', '.join(_JOBS)}")
        if job in found:
            raise _bad("has both a chief and a master, which is the chief's old name")
        if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
            raise _bad(f"has no list of addresses for {written!r}")
        found[job] = tuple(values)
    for job in ("chief", "ps", "worker"):
        if not found.get(job):
            raise _bad(f"has no {job} in its cluster")
    if len(found["chief"]) > 1:
        raise _bad(f"has {len(found['chief'])} addresses for chief, and only one is supported")
    everywhere = [one for each in found.values() for one in each]
    for address in everywhere:
        try:
            host_and_port(address)
        except ValueError as error:
            raise _bad(f"has the address {address!r}, which is not host:port") from error
    twice = [address for address, count in Counter(everywhere).items() if count > 1]
    if twice:
        raise _bad(f"has the address {twice[0]!r} twice")
    return found


def _task(task: Any) -> tuple[str, int]:
    if not isinstance(task, dict):
        raise _bad("has no task, so that this process does not know which part it is")
    written, index = task.get("type"), task.get("index", 0)
    job = _OLD_NAMES.get(written, written) if isinstance(written, str) else None
    if job not in _JOBS:
        raise _bad(f"has the task type {written!r}; known are {', '.join(_JOBS)}")
    # Whoever puts it together in a shell has it as text.
    if isinstance(index, str) and index.isascii() and index.isdigit() and len(index) < 10:
        index = int(index)
    if not isinstance(index, int) or isinstance(index, bool):
        raise _bad(f"has the task index {index!r}, which is no whole number")
    return job, index


def _bad(problem: str) -> UserError:
    return UserError(f"{TF_CONFIG} {problem}; {_USAGE}, {_WITHOUT}")
