"""Where the parameter server, the workers and the chief run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from syncswitch.storage.errors import FatalError
from syncswitch.trainers.model.tensorflow_api import is_initialized, tf

__all__ = ["Devices", "InProcessLauncher", "Launcher", "reserve_logical_devices"]

# One for the chief and one for the parameter server.
_BESIDES_WORKERS = 2
# Logical devices cost next to nothing, and cannot be added later in a process.
_LEAST_DEVICES = 33


@dataclass(frozen=True)
class Devices:
    """TensorFlow's names of a cluster's devices.

    Attributes:
        chief: For evaluation and what else is not on the training path.
        parameter_server: Holds the parameters.
        workers: One for each worker, in the order of their numbers.
    """

    chief: str
    parameter_server: str
    workers: tuple[str, ...]


class Launcher(ABC):
    """Starts a cluster."""

    @abstractmethod
    def start(self, workers: int) -> Devices:
        """Starts a parameter server and `workers` workers.

        Raises:
            FatalError: This process or machine cannot run them.
        """

    @abstractmethod
    def close(self) -> None:
        """Stops what was started; may be called twice."""


class InProcessLauncher(Launcher):
    """Workers are threads of this process, each with a logical CPU device. No network at all."""

    def start(self, workers: int) -> Devices:
        """See `Launcher.start`."""
        needed = workers + _BESIDES_WORKERS
        reserve_logical_devices(workers)
        names = [device.name for device in tf.config.list_logical_devices("CPU")]
        if len(names) < needed:
            raise FatalError(
                f"{workers} workers need {needed} logical devices, but TensorFlow was started in "
                f"this process with {len(names)}; use no TensorFlow before the training starts "
                "(build tensors inside the workload's functions) or another process"
            )
        return Devices(names[0], names[1], tuple(names[2:needed]))

    def close(self) -> None:
        """Nothing to stop: logical devices last as long as the process."""


def reserve_logical_devices(workers: int) -> None:
    """Asks for enough logical CPU devices for `workers` workers in this process.

    Does nothing once TensorFlow has fixed its devices, which its first operation does.
    """
    if is_initialized():
        return
    cpu = tf.config.list_physical_devices("CPU")[0]
    count = max(workers + _BESIDES_WORKERS, _LEAST_DEVICES)
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * count
    )
