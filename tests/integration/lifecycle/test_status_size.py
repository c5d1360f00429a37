"""The largest status that docs/operations.md allows, in a real API server and its etcd."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from fakes.large_status import full
from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.adapters.kubernetes.api_server import NAMESPACES, ApiServer
from fencepost_operator.adapters.kubernetes.events import EventRecorder
from fencepost_operator.adapters.kubernetes.pipelines import KubernetesPipelines
from fencepost_operator.api import ObjectKey
from integration.lifecycle.operators import Installed
from integration.operator.cluster import PIPELINES, pipeline_manifest
from present import present

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")  # half a millisecond of the event loop
async def test_a_status_with_five_thousand_partitions_is_stored_again_and_again(installed: Installed) -> None:
    """With all that it may hold, and metadata of whoever wrote it."""
    now, key = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), ObjectKey("large", "departures")
    api = await ApiServer.connect(installed.plane.kubeconfig)
    try:
        await api._call("POST", "create", NAMESPACES, body={"metadata": {"name": key.namespace}})
        await api.create(PIPELINES, namespace=key.namespace, body=pipeline_manifest(key))
        pipelines = KubernetesPipelines(api, EventRecorder(api=api, clock=SystemClock(), instance="test"))
        for _ in range(2):
            found = present(await pipelines.read(key))
            written = await pipelines.write_status(found, full(found.status, now=now))
            assert written.status == full(found.status, now=now)
        await api._call("DELETE", "delete", NAMESPACES, name=key.namespace, body={})
    finally:
        await api.close()
