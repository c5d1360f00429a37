"""The testbed's cluster, Kafka and Cassandra, and a namespace of its own for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.adapters.kubernetes.api_server import ApiServer
from fencepost_operator.adapters.kubernetes.events import EventRecorder
from fencepost_operator.adapters.kubernetes.pipelines import KubernetesPipelines
from fencepost_operator.api import ObjectKey
from integration.operator.cluster import PIPELINES, own_namespace, pipeline_manifest
from testbed.environment import Environment, NotUpError, load


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
    """A namespace of the test's own."""
    async with own_namespace(api) as name:
        yield name


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
