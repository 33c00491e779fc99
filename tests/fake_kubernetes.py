"""An API server of Kubernetes with one node: containers are processes of this machine.

It knows Jobs, Secrets, pods and their logs, as far as a launcher needs them, and refuses fields
that it does not know.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.manifests import fields

NAMESPACE = "default"
_ADDRESS = "127.0.0.1"
_POD = "spec.template.spec"
_CONTAINER = f"{_POD}.containers[]"
_JOB = {
    *("metadata.name", "spec.backoffLimit", "spec.ttlSecondsAfterFinished"),
    *(f"{_POD}.restartPolicy", f"{_CONTAINER}.name", f"{_CONTAINER}.image"),
    *(f"{_CONTAINER}.command[]", f"{_CONTAINER}.resources.requests.cpu"),
    *(f"{_CONTAINER}.env[].name", f"{_CONTAINER}.env[].value"),
    f"{_CONTAINER}.env[].valueFrom.fieldRef.fieldPath",
    *(f"{_CONTAINER}.env[].valueFrom.secretKeyRef.{name}" for name in ("name", "key")),
}


class FakeKubernetes:
    """The state of the cluster, and its server; to be used in a `with` statement.

    Attributes:
        created: The manifests of all Jobs so far.
        secrets: The secrets that there are.
        pods: The processes of the Jobs that there are, by the Job's name.
        python: What is Python in the image.
    """

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.secrets: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, subprocess.Popen[bytes]] = {}
        self.python = sys.executable
        self._logs = tempfile.TemporaryDirectory()
        self._changing = threading.Lock()

    def __enter__(self) -> FakeKubernetes:
        handler = type("Handler", (_Handler,), {"cluster": self})
        self._server = ThreadingHTTPServer((_ADDRESS, 0), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        for name in list(self.pods):
            self.delete_job(name)
        self._logs.cleanup()

    def configuration(self, folder: Path) -> Path:
        """Writes a KUBECONFIG for it."""
        host, port = self._server.server_address[:2]
        context = {"cluster": "fake", "user": "fake", "namespace": NAMESPACE}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "contexts": [{"name": "fake", "context": context}],
            "clusters": [{"name": "fake", "cluster": {"server": f"http://{host!s}:{port}"}}],
            "users": [{"name": "fake", "user": {}}],
        }
        path = folder / "kubeconfig"
        path.write_text(json.dumps(content))
        return path

    def create_job(self, manifest: dict[str, Any]) -> int:
        """Starts the pod of a Job; returns the status of the answer."""
        if not {name for name, _ in fields(manifest)} <= _JOB:
            return 422
        name = manifest["metadata"]["name"]
        (container,) = manifest["spec"]["template"]["spec"]["containers"]
        environment = {one["name"]: self._value(one) for one in container["env"]}
        command = [
            re.sub(r"\$\((\w+)\)", lambda found: environment[found[1]], word)
            for word in container["command"]
        ]
        assert command[0] == "python"
        with self._changing, self._log(name).open("wb") as log:
            self.created.append(manifest)
            self.pods[name] = subprocess.Popen(
                [self.python, *command[1:]],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return 201

    def delete_job(self, name: str) -> int:
        """Ends the pod of a Job."""
        with self._changing:
            process = self.pods.pop(name, None)
        if process is None:
            return 404
        process.kill()
        process.wait()
        for secret, content in list(self.secrets.items()):
            owners = [one["uid"] for one in content["metadata"].get("ownerReferences", ())]
            if owners and not {*owners} & self.pods.keys():
                del self.secrets[secret]
        return 200

    def expire(self) -> None:
        """Deletes Jobs whose pods have ended, as Kubernetes does some time after."""
        for name, process in list(self.pods.items()):
            if process.poll() is not None:
                self.delete_job(name)

    def pods_of(self, name: str) -> list[dict[str, Any]]:
        """The pod of a Job, if there is one."""
        if name not in self.pods:
            return []
        code = self.pods[name].poll()
        phase = "Running" if code is None else "Failed" if code else "Succeeded"
        return [{"metadata": {"name": name}, "status": {"phase": phase}}]

    def log(self, name: str, lines: int) -> str:
        """The last lines of a pod's log."""
        return "\n".join(self._log(name).read_text(errors="replace").splitlines()[-lines:])

    def _log(self, name: str) -> Path:
        return Path(self._logs.name, name)

    def _value(self, variable: dict[str, Any]) -> str:
        if "value" in variable:
            return str(variable["value"])
        source = variable["valueFrom"]
        if "fieldRef" in source:
            assert source["fieldRef"] == {"fieldPath": "status.podIP"}
            return _ADDRESS
        wanted = source["secretKeyRef"]
        return base64.b64decode(self.secrets[wanted["name"]]["data"][wanted["key"]]).decode()


class _Handler(BaseHTTPRequestHandler):
    cluster: FakeKubernetes

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if found := re.fullmatch(rf"/api/v1/namespaces/{NAMESPACE}/pods", url.path):
            job = query["labelSelector"].removeprefix("batch.kubernetes.io/job-name=")
            self._answer(200, {"items": self.cluster.pods_of(job)})
        elif found := re.fullmatch(rf"/api/v1/namespaces/{NAMESPACE}/pods/([^/]+)/log", url.path):
            self._answer(200, self.cluster.log(found[1], int(query["tailLines"])))
        else:
            self._answer(404, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.startswith(f"/api/v1/namespaces/{NAMESPACE}/secrets"):
            self.cluster.secrets[body["metadata"]["name"]] = body
            self._answer(201, body)
        elif self.path.startswith(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"):
            status = self.cluster.create_job(body)
            body["metadata"]["uid"] = body["metadata"]["name"]
            self._answer(status, body)
        else:
            self._answer(404, {})

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = urlsplit(self.path).path.removeprefix(f"/api/v1/namespaces/{NAMESPACE}/secrets/")
        secret = self.cluster.secrets.get(name)
        if secret is not None:
            secret["metadata"] |= body["metadata"]
        self._answer(404 if secret is None else 200, secret or {})

    def do_DELETE(self) -> None:
        path = urlsplit(self.path).path
        name = path.rpartition("/")[2]
        if path == f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}":
            self._answer(404 if self.cluster.secrets.pop(name, None) is None else 200, {})
        elif path == f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{name}":
            self._answer(self.cluster.delete_job(name), {})
        else:
            self._answer(404, {})

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def _answer(self, status: int, content: dict[str, Any] | str) -> None:
        is_text = isinstance(content, str)
        body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
        with suppress(ConnectionError):  # who asked may be gone
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if is_text else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
