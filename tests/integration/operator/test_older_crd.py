"""A CRD of another release, in a real API server: what it drops or refuses, and that the look finds it."""

from __future__ import annotations

import copy
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest
import yaml

from fencepost.contract.guidance import Severity
from fencepost_operator.adapters.kubernetes import crds as crds_adapter
from fencepost_operator.adapters.kubernetes import pipelines as pipelines_adapter
from fencepost_operator.adapters.kubernetes.api_server import ApiServer, Resource
from fencepost_operator.adapters.kubernetes.crds import KubernetesCrds
from fencepost_operator.adapters.kubernetes.pipelines import KubernetesPipelines
from fencepost_operator.api import PLURAL, VERSION, ObjectKey, Pipeline, State, Status
from fencepost_operator.api.crd_fields import KINDS
from fencepost_operator.api.page_status import PageStatus
from fencepost_operator.api.status import ClusterStatus, RunStatus
from fencepost_operator.errors import PortError
from fencepost_operator.runtime.pruned_status import PrunedStatuses
from harness.waiting import eventually_async
from integration.operator.cluster import REPOSITORY, pipeline_manifest

pytestmark = pytest.mark.integration

CRDS: Final = Resource(prefix="/apis/apiextensions.k8s.io/v1", plural="customresourcedefinitions")
NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PAGE: Final = PageStatus(
    reason="BadSpec", condition="Stalled", severity=Severity.WARNING, message="m", opened_at=NOW, quiet_since=NOW
)
RUN: Final = RunStatus(
    name="r-run-1", epoch=1, spec_hash="v2:a.b", cluster_generation=1, recorded_at=NOW, master_uid="master-1"
)
FULL: Final = Status(epoch=1, pages=(PAGE,), run=RUN)
DROPPED: Final = ("status.pages[].quietSince", "status.run.masterUid")
REFUSED: Final = ("status.cluster", "status.pages[].severity", "status.state")


@dataclass(frozen=True)
class Older:
    """The same kind in a group of its own, with a CRD that lacks fields and refuses values."""

    group: str
    resource: Resource

    async def created(self, api: ApiServer, pipelines: KubernetesPipelines, namespace: str) -> Pipeline:
        key = ObjectKey(namespace, "departures")
        body = copy.deepcopy(pipeline_manifest(key)) | {"apiVersion": f"{self.group}/{VERSION}"}

        async def once() -> Pipeline | None:
            try:
                await api.create(self.resource, namespace=namespace, body=body)
            except PortError:  # the API server does not serve the new kind yet
                return None
            return await pipelines.read(key)

        found = await eventually_async(once)
        assert found is not None
        return found


@pytest.fixture
async def older(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Older]:
    group = f"older-{uuid.uuid4().hex[:8]}.fencepost.dev"
    crd: dict[str, Any] = yaml.safe_load((REPOSITORY / f"crds/{PLURAL}.streaming.fencepost.dev.yaml").read_text())
    name = f"{PLURAL}.{group}"
    crd["metadata"] = {"name": name}
    crd["spec"] |= {"group": group}
    for names in ("shortNames", "categories"):
        crd["spec"]["names"].pop(names, None)
    status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    del status["pages"]["items"]["properties"]["quietSince"]
    del status["run"]["properties"]["masterUid"]
    status["state"]["enum"] = ["Pending"]
    status["cluster"]["required"] = ["readyAt"]
    status["pages"]["items"]["properties"]["severity"]["maxLength"] = len(PAGE.severity)
    await api._call("POST", "create", CRDS, body=crd)
    found = Older(group, Resource(prefix=f"/apis/{group}/{VERSION}", plural=PLURAL))
    for module in (crds_adapter, pipelines_adapter):
        monkeypatch.setattr(module, "GROUP", group)
    monkeypatch.setattr(pipelines_adapter, "_PIPELINES", found.resource)
    monkeypatch.setattr(pipelines_adapter, "_STATUS", replace(found.resource, subresource="status"))
    yield found
    await api._call("DELETE", "delete", CRDS, name=name)


@pytest.mark.parametrize("plural", KINDS)
async def test_the_crds_that_are_installed_lack_nothing(api: ApiServer, plural: str) -> None:
    assert await KubernetesCrds(api).missing(plural) == ()


async def test_what_an_older_crd_drops_is_found_and_remembered(
    api: ApiServer, older: Older, namespace: str, pipelines: KubernetesPipelines
) -> None:
    assert await KubernetesCrds(api).missing(PLURAL) == tuple(sorted((*DROPPED, *REFUSED)))
    found = await older.created(api, pipelines, namespace)
    pruned: PrunedStatuses[Pipeline] = PrunedStatuses()
    written = await pipelines.write_status(found, FULL)
    assert set(pruned.note(written, FULL, NOW)) == set(DROPPED)
    read = await pipelines.read(found.key)
    assert read is not None
    assert read.status != FULL
    assert pruned.restored(read).status == FULL
    again = await pipelines.write_status(read, FULL)
    assert pruned.note(again, FULL, NOW) == ()
    assert again.resource_version == read.resource_version, "the same written again changes nothing"
    assert pruned.as_kept(pruned.restored(again)).status == read.status


async def test_what_an_older_crd_refuses_is_left_out_and_remembered(
    api: ApiServer, older: Older, namespace: str, pipelines: KubernetesPipelines
) -> None:
    """A run must not wait for a word that an older release did not know: the rest is recorded."""
    found = await older.created(api, pipelines, namespace)
    cluster = ClusterStatus(release="r", generation=1, config_hash="h", requested_at=NOW)
    page = replace(PAGE, severity=Severity.CRITICAL, quiet_since=None)
    wanted = replace(FULL, state=State.RUNNING, cluster=cluster, pages=(page,), run=replace(RUN, master_uid=None))
    pruned: PrunedStatuses[Pipeline] = PrunedStatuses()
    written = await pipelines.write_status(found, wanted)
    assert written.status == replace(wanted, state=State.PENDING, cluster=None, pages=())
    assert set(pruned.note(written, wanted, NOW)) >= {"status.state", "status.cluster", "status.pages"}
    again = await pipelines.write_status(written, wanted)
    assert pruned.note(again, wanted, NOW) == ()
    assert again.resource_version == written.resource_version, "the same written again changes nothing"
