"""Helpers of the operator's integration tests: objects to make, and waiting for what becomes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, TypeVar

from fencepost_operator.adapters.api_server import CONFIG_MAPS, ApiServer, Resource
from fencepost_operator.api import GROUP, KIND, PLURAL, VERSION, ObjectKey

T = TypeVar("T")

REPOSITORY: Final = Path(__file__).parents[3]
CHART: Final = REPOSITORY / "charts" / "spark-cluster"
PIPELINES: Final = Resource(prefix=f"/apis/{GROUP}/{VERSION}", plural=PLURAL)


def pipeline_manifest(key: ObjectKey) -> dict[str, Any]:
    """A pipeline that the API server takes; it is suspended, and nothing that it names exists."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"name": key.name, "namespace": key.namespace},
        "spec": {
            "suspend": True,
            "job": {"image": "fencepost.test/absent:1", "entrypoint": "departures:transform"},
            "source": {"kafka": {"bootstrapServers": "absent.fencepost.test:9092", "topics": ["absent"]}},
            "sinks": [{"name": "departures", "cassandra": {"keyspace": "absent", "table": "departures"}}],
            "checkpoint": {"cassandra": {"contactPoints": ["absent.fencepost.test"]}},
        },
    }


def job_manifest(key: ObjectKey, name: str, *, owner: str, command: str, pod: dict[str, Any]) -> dict[str, Any]:
    """A Job as the operator makes it, but for its owner, a ConfigMap: an operator that runs has no say in it."""
    marks = {f"{GROUP}/pipeline": key.name, f"{GROUP}/component": "driver"}
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": key.name, "uid": owner}
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "driver", "command": ["sh", "-c", command], "securityContext": security, **pod}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": marks,
            "annotations": {f"{GROUP}/spec-hash": "abc", f"{GROUP}/generation": "2"},
            "ownerReferences": [reference],
        },
        "spec": {
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "template": {
                "metadata": {"labels": marks},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 1,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": 10001,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [container],
                },
            },
        },
    }


async def owner_of_runs(api: ApiServer, key: ObjectKey) -> str:
    """Make what stands for the pipeline as the owner of Jobs; return its uid."""
    made = await api.create(CONFIG_MAPS, namespace=key.namespace, body={"metadata": {"name": key.name}})
    uid: str = made["metadata"]["uid"]
    return uid
