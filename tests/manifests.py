"""What Kubernetes takes of our manifests: the fields that they use, and no others.

So a field that is misspelt, or in the wrong place, is found; Kubernetes would leave it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

POD = {
    *("volumes[].name", "volumes[].persistentVolumeClaim.claimName"),
    *("containers[].name", "containers[].image", "containers[].command[]"),
    *("containers[].volumeMounts[].name", "containers[].volumeMounts[].mountPath"),
    *("containers[].ports[].name", "containers[].ports[].containerPort"),
    *("containers[].resources.requests.cpu", "containers[].resources.requests.memory"),
    "containers[].resources.limits.memory",
    "containers[].env[].name",
    *(f"containers[].env[].valueFrom.secretKeyRef.{name}" for name in ("name", "key")),
}
GROUP = {"rayStartParams.num-cpus", *(f"template.spec.{field}" for field in POD)}
REPLICAS = {"replicas", "restartPolicy", *(f"template.spec.{field}" for field in POD)}
WORKERS = {"groupName", "replicas", "minReplicas", "maxReplicas", *GROUP}
FIELDS = {
    ("v1", "PersistentVolumeClaim"): {"accessModes[]", "resources.requests.storage"},
    ("kubeflow.org/v1", "TFJob"): {
        *("runPolicy.cleanPodPolicy", "runPolicy.ttlSecondsAfterFinished"),
        *(f"tfReplicaSpecs.{r}.{field}" for r in ("Chief", "PS", "Worker") for field in REPLICAS),
    },
    ("ray.io/v1", "RayJob"): {
        *("entrypoint", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished", "backoffLimit"),
        "rayClusterSpec.rayVersion",
        *(f"rayClusterSpec.headGroupSpec.{field}" for field in GROUP),
        *(f"rayClusterSpec.workerGroupSpecs[].{field}" for field in WORKERS),
    },
}
CHOICES = {
    "accessModes[]": {"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"},
    "cleanPodPolicy": {"All", "Running", "None"},
    "restartPolicy": {"Always", "OnFailure", "Never", "ExitCode"},
}


def read_manifests(path: Path) -> dict[str, Any]:
    """The specs in a file by their kinds; fails if Kubernetes would not take one as it is meant."""
    found = {}
    for one in yaml.safe_load_all(path.read_text()):
        kind, spec = (one["apiVersion"], one["kind"]), one["spec"]
        found_fields = list(fields(spec))
        assert {name for name, _ in found_fields} <= FIELDS[kind]
        for name, value in found_fields:
            last = name.rpartition(".")[2]
            assert value in CHOICES.get(last, {value}), name
        _check_names(spec)
        found[kind[1]] = {**spec, "name": one["metadata"]["name"]}
    return found


def fields(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The path and value of each field, such as `containers[].name`."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from fields(one, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for one in value:
            yield from fields(one, f"{path}[]")
    else:
        yield path, value


def _check_names(value: Any) -> None:
    """What is mounted is there."""
    if isinstance(value, dict) and "containers" in value:
        volumes = {one["name"] for one in value["volumes"]}
        for container in value["containers"]:
            assert {one["name"] for one in container["volumeMounts"]} <= volumes
    for one in value.values() if isinstance(value, dict) else ():
        for part in one if isinstance(one, list) else (one,):
            _check_names(part)


def tf_configs_of(job: Mapping[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    """TF_CONFIG as the training operator gives it to each part of a job, by role and number."""
    roles = {role.lower(): spec for role, spec in job["tfReplicaSpecs"].items()}
    cluster = {}
    for role, spec in roles.items():
        (container,) = spec["template"]["spec"]["containers"]
        assert container["name"] == "tensorflow", "the operator looks for it by this name"
        (port,) = (p["containerPort"] for p in container["ports"] if p["name"] == "tfjob-port")
        cluster[role] = [
            f"{job['name']}-{role}-{number}.default.svc:{port}"
            for number in range(spec["replicas"])
        ]
    return {
        (role, number): {
            "cluster": cluster,
            "task": {"type": role, "index": number},
            "environment": "cloud",
        }
        for role, addresses in cluster.items()
        for number in range(len(addresses))
    }
