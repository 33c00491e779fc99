"""Launchers: where the parameter server, the workers and the chief run."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping

from typing_extensions import override

from syncswitch.storage.errors import FatalError
from syncswitch.trainers.cluster.servers.placement import Devices
from syncswitch.trainers.model.tensorflow_api import is_initialized, tf

# One for the chief and one for the parameter server.
_BESIDES_WORKERS = 2
# Logical devices cost next to nothing, and cannot be added later in a process.
_LEAST_DEVICES = 33


class Casualty(enum.Enum):
    """What an error in a step shows to be lost."""

    WORKER = "worker"
    PARAMETER_SERVER = "parameter server"


class WorkerLostError(Exception):
    """A worker that is a thread of this process was told to be lost."""


class Launcher(ABC):
    """Starts a cluster, and replaces what is lost.

    Attributes:
        has_servers: Whether workers and parameter server are processes, which can be lost, stopped
            and disturbed one by one.
        kind: What can be disturbed there on purpose, as `check_injections` calls it.
    """

    has_servers: bool
    kind: str

    @abstractmethod
    def start(self, workers: int) -> Devices:
        """Starts a parameter server and `workers` workers.

        Raises:
            FatalError: This process or machine cannot run them.
        """

    @abstractmethod
    def close(self) -> None:
        """Stops what was started; may be called twice."""

    @abstractmethod
    def casualty(self, worker: int | None, error: BaseException) -> Casualty | None:
        """What an error shows to be lost.

        Args:
            worker: Whose step raised it; None for what only the parameter server takes part in.
            error: The error.

        Returns:
            None for an error of another kind.
        """

    @abstractmethod
    def revive(self, worker: int) -> None:
        """Gives a lost worker a new server, on which there is nothing yet."""

    @abstractmethod
    def rebuild(self) -> None:
        """Gives the parameter server and all workers new servers."""

    @abstractmethod
    def replace_dead(self) -> None:
        """Gives servers that are dead new ones, which are lost until they are revived.

        A call to a server that dies in the middle of it may wait for ever otherwise.
        """

    @abstractmethod
    def is_whole(self) -> bool:
        """Whether every server runs, and is the one on which the program is."""

    def living(self) -> Mapping[int | None, int]:
        """Workers with a server, and the parameter server (None); how often each was replaced."""
        raise self._impossible

    def is_stopped(self, worker: int | None) -> bool:
        """Whether the process of a worker, or of the parameter server (None), is stopped."""
        raise self._impossible

    def kill(self, worker: int | None, generation: int) -> None:
        """Kills the process of a worker, or of the parameter server (None), if it is still that."""
        raise self._impossible

    def signal(self, worker: int | None, number: int) -> None:
        """Sends a signal to the process of a worker, or of the parameter server (None)."""
        raise self._impossible

    def delay(self, worker: int, seconds: float) -> None:
        """Delays each message to and from the server of a worker; it must be behind a proxy."""
        raise self._impossible

    @property
    def _impossible(self) -> FatalError:
        return FatalError("workers without processes cannot be disturbed from outside")


class InProcessLauncher(Launcher):
    """Workers are threads of this process, each with a logical CPU device. No network at all.

    So none of them can be lost, but on purpose.
    """

    has_servers = False
    kind = "in-process"

    @override
    def start(self, workers: int) -> Devices:
        needed = workers + _BESIDES_WORKERS
        reserve_logical_devices(workers)
        names = [device.name for device in tf.config.list_logical_devices("CPU")]
        if len(names) < needed:
            raise FatalError(
                f"{workers} workers need {needed} logical devices, but TensorFlow was started in "
                f"this process with {len(names)}; use no TensorFlow before the training starts "
                "(build tensors inside the workload's functions) or another process"
            )
        of_workers = tuple(names[2:needed])
        return Devices(names[0], names[1], workers=of_workers, steps=of_workers)

    def close(self) -> None:
        """Nothing to stop: logical devices last as long as the process."""

    @override
    def casualty(self, worker: int | None, error: BaseException) -> Casualty | None:
        return Casualty.WORKER if isinstance(error, WorkerLostError) else None

    def revive(self, worker: int) -> None:
        """Nothing to do: the device is there."""

    def rebuild(self) -> None:
        """Nothing to do: the devices are there."""

    def replace_dead(self) -> None:
        """Nothing to do: nothing dies."""

    def is_whole(self) -> bool:
        """Always true."""
        return True


def reserve_logical_devices(workers: int) -> None:
    """Asks for enough logical CPU devices for `workers` workers in this process, and no GPUs.

    Does nothing once TensorFlow has fixed its devices, which its first operation does.
    """
    if is_initialized():
        return
    # Only servers use them; this process would take all their memory.
    tf.config.set_visible_devices([], "GPU")
    cpu = tf.config.list_physical_devices("CPU")[0]
    count = max(workers + _BESIDES_WORKERS, _LEAST_DEVICES)
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * count
    )
