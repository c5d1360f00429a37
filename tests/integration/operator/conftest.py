"""The testbed's cluster, Kafka and Cassandra, and a namespace of its own for each test."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from fencepost_operator.adapters.api_server import NAMESPACES, ApiServer, Resource
from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.adapters.events import EventRecorder
from fencepost_operator.adapters.pipelines import KubernetesPipelines
from fencepost_operator.api import ObjectKey
from fencepost_operator.errors import FencepostError
from harness.waiting import eventually_async
from integration.operator.cluster import PIPELINES, pipeline_manifest
from testbed.environment import Environment, NotUpError, load

SERVICE_ACCOUNTS: Final = Resource(prefix="/api/v1", plural="serviceaccounts")


@pytest.fixture(scope="session")
def testbed() -> Environment:
    try:
        return load()
    except NotUpError as error:
        pytest.skip(str(error))


@pytest.fixture
async def api(testbed: Environment) -> AsyncIterator[ApiServer]:
    client = await ApiServer.connect(testbed.kubeconfig)
    yield client
    await client.close()


@pytest.fixture
async def namespace(api: ApiServer) -> AsyncIterator[str]:
    """A namespace that enforces Pod Security's strictest level, ready for pods.

    The API server refuses a pod while its namespace has no default ServiceAccount, which a controller creates.
    """
    name = f"test-{uuid.uuid4().hex[:8]}"
    marks = {"pod-security.kubernetes.io/enforce": "restricted"}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": marks}}
    await api._call("POST", "create", NAMESPACES, body=body)
    await eventually_async(lambda: api.get(SERVICE_ACCOUNTS, namespace=name, name="default"), pause=0.1)
    yield name
    for item in await api.list(PIPELINES, namespace=name):
        freed: dict[str, Any] = {"metadata": {"finalizers": []}}
        with contextlib.suppress(FencepostError):
            await api.merge(PIPELINES, namespace=name, name=item["metadata"]["name"], body=freed)
    await api._call("DELETE", "delete", NAMESPACES, name=name, body={"propagationPolicy": "Background"})


@pytest.fixture
def pipelines(api: ApiServer) -> KubernetesPipelines:
    clock = SystemClock()
    return KubernetesPipelines(api, EventRecorder(api=api, clock=clock, instance="test"))


@pytest.fixture
async def key(api: ApiServer, namespace: str) -> ObjectKey:
    """A pipeline object that is suspended, so that an operator that runs changes little."""
    place = ObjectKey(namespace, "departures")
    await api.create(PIPELINES, namespace=namespace, body=pipeline_manifest(place))
    return place
