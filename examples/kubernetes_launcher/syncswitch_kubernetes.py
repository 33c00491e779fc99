"""`--trainer kubernetes`: each parameter server and worker is a Kubernetes Job.

The command itself runs where pods reach it, in a pod of the cluster for instance, with the rights
to create and delete Jobs and Secrets and to read pods and their logs.
"""

from __future__ import annotations

import base64
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from syncswitch import RetryableError, UserError
from syncswitch.plugins import (
    NO_GPU,
    SECRET,
    Launcher,
    OptionHint,
    PartConfig,
    ProcessesChoice,
    ProcessState,
    ProcessStatus,
    last_output,
    option,
    program,
    thread_limits,
)

if TYPE_CHECKING:
    from syncswitch import Workload
    from syncswitch.plugins import Address, Part, Trainer

_KEY = "secret"
_OWN_ADDRESS = "POD_IP"
# Chiefs are killed, and then nobody deletes anything: a part ends by itself, Kubernetes deletes its
# Job so long after, and with the last Job the Secret.
_KEPT_SECONDS = 600
_FAILED = "Failed", "Succeeded"


@dataclass
class KubernetesLauncher(Launcher):
    """Makes a Job for each part, which is never restarted: a lost part gets a new one.

    Attributes:
        image: The image of all parts, with the version of syncswitch that runs the command.
        namespace: Where the Jobs are made.
        chief_address: Where pods reach this process.
        cpus: The CPUs of each part.
        servers: The number of parameter servers.
    """

    kind = "kubernetes"
    waits_aloud = True
    least_patience_seconds = 300.0
    start_seconds = 600.0
    has_gpus = False

    image: str
    namespace: str
    chief_address: str
    cpus: float
    servers: int

    @override
    def open(self, reference: str | None, workers: int, folder: Path) -> None:
        # Slow to import, and each command of syncswitch imports this module.
        from kubernetes import client, config

        try:
            config.load_config()
        except config.ConfigException as error:
            raise UserError(
                f"no Kubernetes cluster is known ({error}): run this in a pod, or name a"
                " configuration in KUBECONFIG"
            ) from error
        self._batch, self._core = client.BatchV1Api(), client.CoreV1Api()
        self._reference = reference
        self._cluster = f"syncswitch-{secrets.token_hex(4)}"
        self._jobs: dict[Part, str] = {}
        self._owners: dict[Part, dict[str, str]] = {}
        self._started = 0
        self.secret = secrets.token_bytes(32)
        self.listen = self.chief_address, 0
        value = base64.b64encode(self.secret.hex().encode()).decode()
        self._call(
            f"create Secret {self._cluster}",
            self._core.create_namespaced_secret,
            self.namespace,
            {"metadata": {"name": self._cluster}, "data": {_KEY: value}},
        )

    @override
    def start(self, part: Part, chief: Address) -> None:
        self._end(part)
        self._started += 1
        role, number = part
        # Of each start a name of its own: a Job that is being deleted holds its name for a while.
        name = f"{self._cluster}-{role}-{number}-{self._started}"
        config = PartConfig(part, chief, (f"$({_OWN_ADDRESS})", 0), self.secret, self._reference)
        made = self._call(
            f"create Job {name}",
            self._batch.create_namespaced_job,
            self.namespace,
            self._job(name, program(config)[0]),
        )
        self._jobs[part] = name
        self._owners[part] = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": name,
            "uid": made.metadata.uid,
        }
        self._call(
            f"change Secret {self._cluster}",
            self._core.patch_namespaced_secret,
            self._cluster,
            self.namespace,
            {"metadata": {"ownerReferences": list(self._owners.values())}},
        )

    @override
    def status(self, part: Part) -> ProcessStatus:
        from kubernetes.client import ApiException

        if part not in self._jobs:
            return ProcessStatus(ProcessState.DEAD, "it was killed")
        name = self._jobs[part]
        try:
            pods = self._core.list_namespaced_pod(
                self.namespace, label_selector=f"batch.kubernetes.io/job-name={name}"
            ).items
            if not pods:
                return ProcessStatus(ProcessState.RUNNING, f"Job {name} has no pod yet")
            (pod,) = pods
            if pod.status.phase not in _FAILED:
                return ProcessStatus(
                    ProcessState.RUNNING, f"pod {pod.metadata.name}: {pod.status.phase}"
                )
            log = self._core.read_namespaced_pod_log(
                pod.metadata.name, self.namespace, tail_lines=5
            )
        except ApiException as error:
            return ProcessStatus(ProcessState.RUNNING, f"the API server says {error.reason}")
        return ProcessStatus(
            ProcessState.DEAD, f"pod {pod.metadata.name} ended; {last_output(log)}"
        )

    @override
    def signal(self, part: Part, number: int) -> None:
        """Ends a part: SIGKILL is the only signal that is ever sent to one of other launchers."""
        self._end(part)

    @override
    def close(self) -> None:
        for part in list(self._jobs):
            self._end(part)
        self._call(
            f"delete Secret {self._cluster}",
            self._core.delete_namespaced_secret,
            self._cluster,
            self.namespace,
        )

    def _job(self, name: str, arguments: list[str]) -> dict[str, Any]:
        environment = [
            {"name": name, "value": value}
            for name, value in {**thread_limits(int(self.cpus)), **NO_GPU}.items()
        ]
        own = {"fieldRef": {"fieldPath": "status.podIP"}}
        secret = {"secretKeyRef": {"name": self._cluster, "key": _KEY}}
        container = {
            "name": "part",
            "image": self.image,
            "command": ["python", *arguments],
            "env": [
                *environment,
                {"name": _OWN_ADDRESS, "valueFrom": own},
                {"name": SECRET, "valueFrom": secret},
            ],
            "resources": {"requests": {"cpu": f"{self.cpus:g}"}},
        }
        pod = {"restartPolicy": "Never", "containers": [container]}
        return {
            "metadata": {"name": name},
            "spec": {
                "backoffLimit": 0,
                "ttlSecondsAfterFinished": _KEPT_SECONDS,
                "template": {"spec": pod},
            },
        }

    def _end(self, part: Part) -> None:
        if name := self._jobs.pop(part, None):
            self._call(
                f"delete Job {name}",
                self._batch.delete_namespaced_job,
                name,
                self.namespace,
                grace_period_seconds=0,
                propagation_policy="Background",
            )

    def _call(self, what: str, call: Any, *arguments: Any, **options: Any) -> Any:
        from kubernetes.client import ApiException

        try:
            return call(*arguments, **options)
        except ApiException as error:
            if what.startswith("delete") and error.status == 404:
                return None
            # 4xx: it is not allowed, or is not there.
            kind = UserError if 400 <= error.status < 500 else RetryableError
            problem = f"cannot {what} in namespace {self.namespace}"
            raise kind(f"{problem}: {error.status} {error.reason}") from error


@dataclass(frozen=True)
class KubernetesCluster(ProcessesChoice):
    """The options of `KubernetesLauncher`."""

    name = "kubernetes"
    summary = "Kubernetes Jobs"
    other_process = "the trainer kubernetes"

    kubernetes_image: str | None = option("Image of all parts, with this version of syncswitch.")
    kubernetes_namespace: str = option("Where the Jobs are made.", default="default")
    chief_address: str | None = option(
        "Where pods reach this process.  [default: this host's address]"
    )
    kubernetes_cpus: float = option("CPUs of each part.", float, default=1.0, least=0.1)

    @override
    def check_capacity(self, workers: int) -> None:
        if self.kubernetes_image is None:
            raise UserError(
                "the trainer kubernetes needs an image",
                remedy=OptionHint("kubernetes_image", "registry/job:1"),
            )
        if self.gpus_per_worker:
            raise UserError(
                "is not for the trainer kubernetes",
                parameter="gpus_per_worker",
                remedy="leave it out",
            )

    @override
    def open(self, workload: Workload, reference: str, workers: int) -> Trainer:
        from syncswitch.plugins import ProcessTrainer

        assert self.kubernetes_image is not None
        launcher = KubernetesLauncher(
            self.kubernetes_image,
            self.kubernetes_namespace,
            self.chief_address or socket.gethostbyname(socket.gethostname()),
            self.kubernetes_cpus,
            self.servers,
        )
        return ProcessTrainer(reference, workers, launcher)
