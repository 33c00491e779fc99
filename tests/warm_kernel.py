"""Kernels of notebooks that need not import TensorFlow first: forks, as in `warm_program.py`."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from jupyter_client.provisioning.factory import KernelProvisionerFactory
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from tests.warm_program import WarmProcess

NAME = "warm"
CODE = """
import os, tempfile
os.environ.update({environment!r})
tempfile.tempdir = None  # the fork server's, where it was asked for
from ipykernel.kernelapp import launch_new_instance
launch_new_instance()
"""


class WarmKernel(WarmProcess):
    """A kernel as a fork, with the rest of what is asked of a `subprocess.Popen`."""

    stdin = None

    def terminate(self) -> None:
        self.kill()


class WarmProvisioner(LocalProvisioner):  # type: ignore[misc]
    """Starts a kernel so."""

    async def launch_kernel(self, cmd: list[str], **options: Any) -> Any:
        connection_file = cmd[cmd.index("-f") + 1]
        code = CODE.format(environment=dict(options["env"]))
        self.process = WarmKernel(code, "-f", connection_file, folder=Path(options["cwd"]))
        self.pid = self.process.pid
        return self.connection_info


def use_warm_kernels(manager: Any) -> None:
    """Lets a kernel manager start its kernels so."""
    entry = EntryPoint(NAME, f"{__name__}:WarmProvisioner", KernelProvisionerFactory.GROUP_NAME)
    KernelProvisionerFactory.instance().provisioners[NAME] = entry
    manager.kernel_spec.metadata["kernel_provisioner"] = {"provisioner_name": NAME}
