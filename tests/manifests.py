"""What Kubernetes takes of our manifests: the fields that they use, and no others.

So a field that is misspelt, or in the wrong place, is found; Kubernetes would leave it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import yaml

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
COUNT: Schema = {"type": "integer", "minimum": 0}
NAME: Schema = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}


def fields(required: Mapping[str, Schema], **optional: Schema) -> Schema:
    """An object with these fields alone."""
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
        "additionalProperties": False,
    }


def items(schema: Schema) -> Schema:
    return {"type": "array", "items": schema, "minItems": 1}


def one_of(*values: str) -> Schema:
    return {"enum": list(values)}


AMOUNTS = fields(
    {}, cpu={"type": "string", "pattern": r"^\d+m?$"}, memory={"type": "string", "pattern": "Gi$"}
)
CONTAINER = fields(
    {"name": NAME, "image": TEXT},
    command=items(TEXT),
    env=items(
        fields(
            {
                "name": TEXT,
                "valueFrom": fields({"secretKeyRef": fields({"name": NAME, "key": TEXT})}),
            }
        )
    ),
    ports=items(fields({"name": NAME, "containerPort": COUNT})),
    resources=fields({"requests": AMOUNTS, "limits": AMOUNTS}),
    volumeMounts=items(fields({"name": NAME, "mountPath": {"type": "string", "pattern": "^/"}})),
)
VOLUME = fields({"name": NAME, "persistentVolumeClaim": fields({"claimName": NAME})})
TEMPLATE = fields({"spec": fields({"containers": items(CONTAINER)}, volumes=items(VOLUME))})
CLAIM_SPEC = fields(
    {
        "accessModes": items(one_of("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany")),
        "resources": fields({"requests": fields({"storage": TEXT})}),
    }
)
REPLICAS = fields(
    {
        "replicas": {"type": "integer", "minimum": 1},
        "restartPolicy": one_of("Always", "OnFailure", "Never", "ExitCode"),
        "template": TEMPLATE,
    }
)
TF_JOB_SPEC = fields(
    {"tfReplicaSpecs": fields({"Chief": REPLICAS, "PS": REPLICAS, "Worker": REPLICAS})},
    runPolicy=fields(
        {},
        cleanPodPolicy=one_of("All", "Running", "None"),
        ttlSecondsAfterFinished=COUNT,
        backoffLimit=COUNT,
    ),
)
RAY_START: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
RAY_GROUP = {"rayStartParams": RAY_START, "template": TEMPLATE}
RAY_JOB_SPEC = fields(
    {
        "entrypoint": TEXT,
        "rayClusterSpec": fields(
            {
                "rayVersion": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
                "headGroupSpec": fields(RAY_GROUP),
                "workerGroupSpecs": items(
                    fields(
                        {"groupName": NAME, **RAY_GROUP},
                        replicas=COUNT,
                        minReplicas=COUNT,
                        maxReplicas=COUNT,
                    )
                ),
            }
        ),
    },
    shutdownAfterJobFinishes={"type": "boolean"},
    ttlSecondsAfterFinished=COUNT,
    backoffLimit=COUNT,
)
KINDS = {
    ("v1", "PersistentVolumeClaim"): CLAIM_SPEC,
    ("kubeflow.org/v1", "TFJob"): TF_JOB_SPEC,
    ("ray.io/v1", "RayJob"): RAY_JOB_SPEC,
}


def read_manifests(path: Path) -> dict[str, Any]:
    """The specs in a file by their kinds.

    Raises:
        jsonschema.ValidationError: Kubernetes would not take one of them as it is meant.
    """
    found = {}
    for one in yaml.safe_load_all(path.read_text()):
        kind = one["apiVersion"], one["kind"]
        form = fields(
            {
                "apiVersion": TEXT,
                "kind": TEXT,
                "metadata": fields({"name": NAME}),
                "spec": KINDS[kind],
            }
        )
        jsonschema.validate(one, form)
        _check_names(one["spec"])
        found[kind[1]] = {**one["spec"], "name": one["metadata"]["name"]}
    return found


def _check_names(spec: Any) -> None:
    """What is mounted is there."""
    for pod in _pods(spec):
        volumes = {one["name"] for one in pod.get("volumes", ())}
        for container in pod["containers"]:
            assert {one["name"] for one in container["volumeMounts"]} <= volumes


def _pods(spec: Any) -> Iterator[Any]:
    if isinstance(spec, dict):
        if "containers" in spec:
            yield spec
        for one in spec.values():
            yield from _pods(one)
    elif isinstance(spec, list):
        for one in spec:
            yield from _pods(one)


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
