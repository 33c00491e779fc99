"""A pool of servers on a Ray cluster: places, replaces and stops them."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from syncswitch.storage.errors import FatalError, RetryableError
from syncswitch.trainers.cluster.processes.placement import NO_GPU, gpu_worker_environment
from syncswitch.trainers.cluster.ray.actor import DEAD, RUNNING, STOPPED, ServerActor, Start
from syncswitch.trainers.cluster.ray.options import RayOptions
from syncswitch.trainers.cluster.servers.pool import Server, ServerPool, ServerState

_LOG = logging.getLogger(__name__)

# An actor that does nothing else answers within milliseconds.
_ANSWER_SECONDS = 2.0
_LONGEST_ANSWER_SECONDS = 15.0
# To be placed, perhaps on another node, and to import TensorFlow beside others that do.
_START_SECONDS = 120.0
_LONGEST_CAUSE = 160
_CAUSE = re.compile(r"\bactor (?:is dead|died) because\b|^[\w.]+(?:Error|Exception): ")


@dataclass
class _KnownServer:
    """A server as this process knows it.

    Attributes:
        actor: Keeps it.
        bundle: Its place in the placement group.
        generation: How often it was replaced.
        start: What `ServerActor.start` is to return; None once it has.
        is_given_up: Whether nothing is expected of its actor any more.
    """

    actor: Any
    bundle: int
    generation: int = 0
    start: Any = None
    is_given_up: bool = False


class RayPool(ServerPool):
    """The servers of one placement group; they end with this process.

    A server may come back elsewhere. Dead ones are left to those who miss them: a chief without
    streaming calls (see `chief.py`) waits for none.

    Args:
        group: Placement group: the parameter server's bundle first, then the workers'.
        options: What each is to have.
        workers: n.

    Attributes:
        addresses: By job, as they are now; known when a server listens.
    """

    def __init__(self, group: Any, options: RayOptions, workers: int) -> None:
        self.addresses: dict[str, list[str]] = {"ps": [""], "worker": [""] * workers}
        self._group = group
        self._options = options
        self._renewing = threading.Lock()
        servers = [("ps", 0), *(("worker", worker) for worker in range(workers))]
        self._held = {
            server: _KnownServer(self._new_actor(server, bundle), bundle)
            for bundle, server in enumerate(servers)
        }
        for held in self._held.values():
            held.start = held.actor.start.remote()

    @override
    def await_all(self) -> None:
        with self._renewing:
            self._await(list(self._held))

    @override
    def states(self) -> Mapping[Server, ServerState]:
        # Whoever does not answer counts as stopped.
        asked = {
            server: held.actor.state.remote()
            for server, held in self._held.items()
            if held.start is None and not held.is_given_up
        }
        answers = dict.fromkeys(asked, STOPPED) | _answers(asked)
        return {
            # Those that start have not been asked.
            server: _state(held, answers.get(server, RUNNING))
            for server, held in self._held.items()
        }

    @override
    def renew(self, servers: Iterable[Server]) -> None:
        servers = list(servers)
        with self._renewing:
            held = {server: self._held[server] for server in servers}
            asked = {one: each.actor.state.remote() for one, each in held.items()}
            answers = _answers(asked)
            for server, each in held.items():
                each.generation += 1
                answer = answers.get(server)
                if not isinstance(answer, str):
                    self._replace_actor(server, each, answer)
                each.is_given_up = False
                each.start = each.actor.start.remote()
            self._await(servers)

    @override
    def renew_dead(self) -> bool:
        # Whoever misses one asks for another.
        return False

    @override
    def signal(self, server: Server, number: int) -> None:
        import ray

        held = self._held[server]
        if held.start is not None or held.is_given_up:
            return
        try:
            ray.get(held.actor.signal.remote(number), timeout=_LONGEST_ANSWER_SECONDS)
        except ray.exceptions.GetTimeoutError:
            _end_this_process(server)
        except ray.exceptions.RayActorError:
            pass  # it is dead

    @override
    def delay(self, worker: int, seconds: float) -> None:
        raise FatalError("workers on a Ray cluster are behind no proxy")

    def _new_actor(self, server: Server, bundle: int) -> Any:
        import ray
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        job, task = server
        options = self._options
        is_worker = job == "worker"
        gpus = options.gpus_per_worker if is_worker else 0.0
        cpus = options.cpus_per_worker if is_worker else options.cpus_per_ps
        environment = {"TF_NUM_INTRAOP_THREADS": str(max(1, int(cpus)))}
        environment |= gpu_worker_environment(gpus) if gpus else NO_GPU
        place = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)
        actor_class = ray.remote(ServerActor).options(
            num_cpus=cpus, num_gpus=gpus, scheduling_strategy=place
        )
        return actor_class.remote(job, task, environment)

    def _replace_actor(self, server: Server, held: _KnownServer, error: Exception | None) -> None:
        import ray

        how = "its node does not answer" if error is None else cause_of_death(str(error))
        _LOG.warning("%s %d of the Ray cluster is lost: %s", *server, how)
        ray.kill(held.actor)
        held.actor = self._new_actor(server, held.bundle)

    def _await(self, servers: Sequence[Server]) -> None:
        """Waits for the servers that start."""
        starts = {one: self._held[one].start for one in servers if self._held[one].start}
        answers = _answers(starts, _START_SECONDS)
        problems = []
        for server in starts:
            held, answer = self._held[server], answers.get(server)
            held.start = None
            job, task = server
            if isinstance(answer, Start) and answer.address is not None:
                self.addresses[job][task] = answer.address
                if answer.problem is not None:
                    _LOG.warning("%s %d on %s %s", job, task, answer.host, answer.problem)
                continue
            held.is_given_up = True
            problems.append(f"{job} {task} {_problem(answer)}")
        if problems:
            raise RetryableError(f"a server does not start on the Ray cluster: {problems[0]}")


def _state(held: _KnownServer, answer: Any) -> ServerState:
    is_dead = held.is_given_up or answer == DEAD or isinstance(answer, Exception)
    return ServerState(not is_dead, not is_dead and answer == STOPPED, held.generation)


def _answers(
    asked: Mapping[Server, Any], limit_seconds: float = _ANSWER_SECONDS
) -> dict[Server, Any]:
    """The answers of actors that come in time, or the errors of dead ones."""
    import ray

    if not asked:
        return {}
    ready, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=limit_seconds)
    found: dict[Server, Any] = {}
    for server, reference in asked.items():
        if reference in ready:
            try:
                found[server] = ray.get(reference)
            except ray.exceptions.RayError as error:
                found[server] = error
    return found


def _problem(answer: Any) -> str:
    if isinstance(answer, Start):
        return f"on {answer.host} {answer.problem}"
    if isinstance(answer, Exception):
        hint = "; pip install 'syncswitch[ray]' on each node" if is_not_installed(answer) else ""
        return f"is lost: {cause_of_death(str(answer))}{hint}"
    return (
        f"has found no place, or has not got ready, within {_START_SECONDS:.0f} s; look at"
        " `ray status`"
    )


def cause_of_death(text: str) -> str:
    """The cause in Ray's page-long report on a dead actor."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it says nothing"]
    # What the last one names has led to the others.
    line = next((line for line in reversed(lines) if _CAUSE.search(line)), lines[0])
    return line.split(". ")[0].rstrip(".")[:_LONGEST_CAUSE]


def is_not_installed(error: Exception) -> bool:
    """Whether an actor's node misses a package."""
    text = str(error)
    return "ModuleNotFoundError" in text or "failed to import" in text


def _end_this_process(server: Server) -> None:
    """Ends this process: TensorFlow's calls to an unreachable node never return."""
    print(
        f"error: the node of {server[0]} {server[1]} does not answer", file=sys.stderr, flush=True
    )
    os._exit(1)
