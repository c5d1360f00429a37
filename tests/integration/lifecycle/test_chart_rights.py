"""The rights that the chart grants, on a real API server with RBAC, as the chart's own ServiceAccount."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fakes.manifests import spec
from fencepost_operator.adapters.clock import SystemClock
from fencepost_operator.adapters.kubernetes.api_server import CONFIG_MAPS, ApiServer, Resource
from fencepost_operator.adapters.kubernetes.events import EventRecorder
from fencepost_operator.adapters.kubernetes.pipelines import KubernetesPipelines
from fencepost_operator.adapters.kubernetes.revisions import KEPT, KubernetesRevisions
from fencepost_operator.api import GROUP, KIND, VERSION, ObjectKey, Pipeline, Revision
from fencepost_operator.desired.identity.revision import controller_revision
from fencepost_operator.errors import Denied
from harness.kubernetes.kubectl import KubectlError
from integration.lifecycle.operators import HOME, RELEASE, Installed
from present import present

pytestmark = pytest.mark.integration

ROLES = Resource(prefix="/apis/rbac.authorization.k8s.io/v1", plural="roles")
KEY = ObjectKey("rights", "orders")
ACCOUNT = f"--as=system:serviceaccount:{HOME}:{RELEASE}"


@pytest.fixture
async def api(installed: Installed) -> AsyncIterator[ApiServer]:
    """The operator's client with the operator's token."""
    client = await ApiServer.connect(installed.plane.kubeconfig_of(RELEASE, HOME))
    yield client
    await client.close()


@pytest.fixture
async def pipeline(installed: Installed, api: ApiServer) -> Pipeline:
    kubectl = installed.plane.kubectl(KEY.namespace)
    kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": KEY.namespace}})
    body: dict[str, Any] = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": {"name": KEY.name}}
    kubectl.apply({**body, "spec": spec(suspend=True)})
    pipelines = KubernetesPipelines(api, EventRecorder(api=api, clock=SystemClock(), instance="test"))
    return present(await pipelines.read(KEY))


async def test_the_operator_stores_finds_and_prunes_specs(api: ApiServer, pipeline: Pipeline) -> None:
    """One more than are kept; the first one is needed, so the second one goes."""
    revisions, names = KubernetesRevisions(api), list[str]()
    for number in range(KEPT + 1):
        revision = Revision.of(KEY.name, {**pipeline.written, "batchInterval": f"{number + 1}s"}, {})
        names.append(revision.name)
        await revisions.store(KEY, controller_revision(pipeline, revision), (names[0],))
    for name in (names[0], names[-1]):
        found = present(await revisions.find(KEY, pipeline.uid, name))
        assert found.name == name


async def test_the_operator_has_no_rights_that_it_does_not_need(api: ApiServer, installed: Installed) -> None:
    kubectl = installed.plane.kubectl("default")
    for words in ("create pods", "get pods/exec", "create clusterroles", "delete namespaces", "delete nodes"):
        with pytest.raises(KubectlError):
            kubectl.run("auth", "can-i", *words.split(), ACCOUNT)
    assert kubectl.run("auth", "can-i", "create", "controllerrevisions.apps", ACCOUNT).strip() == "yes"
    body = {"metadata": {"name": "mine"}, "rules": []}
    with pytest.raises(Denied):
        await api.create(ROLES, namespace="default", body=body)
    assert await api.get(CONFIG_MAPS, namespace="default", name="absent") is None
