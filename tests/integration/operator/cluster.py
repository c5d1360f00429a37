"""What the operator's tests on a real API server create: a namespace, and the objects in it."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from fencepost_operator.adapters.kubernetes.api_server import CONFIG_MAPS, NAMESPACES, ApiServer, Resource
from fencepost_operator.api import GROUP, KIND, PLURAL, VERSION, ObjectKey
from fencepost_operator.errors import FencepostError
from harness.waiting import eventually_async

REPOSITORY: Final = Path(__file__).parents[3]
CHART: Final = REPOSITORY / "charts" / "spark-cluster"
PIPELINES: Final = Resource(prefix=f"/apis/{GROUP}/{VERSION}", plural=PLURAL)
SERVICE_ACCOUNTS: Final = Resource(prefix="/api/v1", plural="serviceaccounts")


@contextlib.asynccontextmanager
async def own_namespace(api: ApiServer) -> AsyncIterator[str]:
    """Yield the name of a namespace that enforces Pod Security's strictest level, ready for pods.

    The API server refuses a pod while its namespace has no default ServiceAccount, which a controller creates.
    """
    name = f"test-{uuid.uuid4().hex[:8]}"
    marks = {"pod-security.kubernetes.io/enforce": "restricted"}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": marks}}
    await api._call("POST", "create", NAMESPACES, body=body)
    try:
        await eventually_async(lambda: api.get(SERVICE_ACCOUNTS, namespace=name, name="default"), pause=0.1)
        yield name
    finally:
        freed: dict[str, Any] = {"metadata": {"finalizers": []}}
        for item in await api.list(PIPELINES, namespace=name):
            with contextlib.suppress(FencepostError):
                await api.merge(PIPELINES, namespace=name, name=item["metadata"]["name"], body=freed)
        await api._call("DELETE", "delete", NAMESPACES, name=name, body={"propagationPolicy": "Background"})


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
