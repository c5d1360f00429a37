"""A run's ConfigMap: created before its Job, never another owner's, and deleted with the run."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fakes.clock import Clock
from fakes.manifests import body
from fencepost_operator.adapters.kubernetes.api_server import CONFIG_MAPS, JOBS, AlreadyExists, ApiServer, Resource
from fencepost_operator.adapters.kubernetes.kubelets import Kubelets
from fencepost_operator.adapters.kubernetes.runs import KubernetesRuns
from fencepost_operator.api import ObjectKey, Pipeline, ReconcileConfig, Spec, read_pipeline
from fencepost_operator.desired.jobs.driver_config import driver_config
from fencepost_operator.desired.jobs.run_config import run_config
from fencepost_operator.desired.jobs.run_job import run_job
from fencepost_operator.errors import Rejected

KEY, NAME = ObjectKey("shop", "orders"), "orders-run-5"


class Stored(ApiServer):
    """An API server that stores objects by kind and name, and records the order of creations and deletions."""

    def __init__(self) -> None:
        self.objects: dict[tuple[Resource, str], dict[str, Any]] = {}
        self.calls: list[tuple[str, str]] = []
        self._uids = itertools.count()

    async def create(self, resource: Resource, *, namespace: str, body: Mapping[str, Any]) -> dict[str, Any]:
        place = resource, body["metadata"]["name"]
        if place in self.objects:
            raise AlreadyExists(f"{place} in {namespace}")
        self.calls.append(("create", resource.plural))
        stored = copy.deepcopy(dict(body))
        stored["metadata"]["uid"] = f"uid-{next(self._uids)}"
        self.objects[place] = stored
        return stored

    async def get(self, resource: Resource, *, name: str, namespace: str | None = None) -> dict[str, Any] | None:
        del namespace
        return self.objects.get((resource, name))

    async def delete(
        self, resource: Resource, *, namespace: str, name: str, propagation: str = "", uid: str | None = None
    ) -> None:
        del namespace, propagation
        found = self.objects.get((resource, name))
        if found is not None and uid in {None, found["metadata"]["uid"]}:
            self.calls.append(("delete", resource.plural))
            del self.objects[resource, name]


@pytest.fixture
def api() -> Stored:
    return Stored()


@pytest.fixture
def runs(api: Stored) -> KubernetesRuns:
    return KubernetesRuns(api=api, clock=Clock(), kubelets=Kubelets(api=api))


def manifests(*, args: tuple[str, ...] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    pipeline: Pipeline = read_pipeline(body())
    assert isinstance(pipeline.spec, Spec)
    spec = replace(pipeline.spec, job=replace(pipeline.spec.job, args=args))
    settings = ReconcileConfig(cluster_uid="c")
    config = driver_config(key=KEY, spec=spec, references={}, config=settings, epoch=5, generation=1)
    job = run_job(pipeline=pipeline, spec=spec, config=config, generation=1, spec_hash="h")
    return job, run_config(pipeline=pipeline, config=config)


async def test_the_config_map_exists_before_the_job_that_mounts_it(api: Stored, runs: KubernetesRuns) -> None:
    await runs.start(KEY, *manifests())
    assert api.calls == [("create", "configmaps"), ("create", "jobs")]


async def test_a_config_map_of_another_owner_is_refused_and_no_job_mounts_it(api: Stored, runs: KubernetesRuns) -> None:
    theirs = {"metadata": {"name": NAME}, "data": {"config.json": "{}"}}
    await api.create(CONFIG_MAPS, namespace="shop", body=theirs)
    with pytest.raises(Rejected, match=f"ConfigMap shop/{NAME}") as caught:
        await runs.start(KEY, *manifests())
    assert f"kubectl delete configmap {NAME}" in caught.value.remedy
    assert (JOBS, NAME) not in api.objects


async def test_a_config_map_of_ours_that_was_left_for_the_epoch_is_replaced(api: Stored, runs: KubernetesRuns) -> None:
    """Injected: the operator ended between the ConfigMap and the Job, and the spec changed meanwhile."""
    await api.create(CONFIG_MAPS, namespace="shop", body=manifests()[1])
    job, wanted = manifests(args=("--new",))
    await runs.start(KEY, job, wanted)
    assert api.objects[CONFIG_MAPS, NAME]["data"] == wanted["data"]


async def test_a_config_map_that_a_finalizer_keeps_is_refused_by_name(api: Stored, runs: KubernetesRuns) -> None:
    """Whoever may write ConfigMaps can add a finalizer, and the delete before the replacement never ends."""
    stuck = manifests()[1]
    stuck["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["tenant/keep"]}
    job, wanted = manifests(args=("--new",))
    await api.create(CONFIG_MAPS, namespace="shop", body=stuck)
    with pytest.raises(Rejected, match=f"ConfigMap shop/{NAME} .*tenant/keep") as caught:
        await runs.start(KEY, job, wanted)
    assert f"kubectl patch configmap {NAME} --namespace shop" in caught.value.remedy
    assert (JOBS, NAME) not in api.objects


async def test_the_same_config_map_is_kept(api: Stored, runs: KubernetesRuns) -> None:
    job, wanted = manifests()
    await api.create(CONFIG_MAPS, namespace="shop", body=wanted)
    await runs.start(KEY, job, wanted)
    assert api.calls == [("create", "configmaps"), ("create", "jobs")]


async def test_the_config_map_goes_with_the_run(api: Stored, runs: KubernetesRuns) -> None:
    await runs.start(KEY, *manifests())
    await runs.stop(KEY, NAME)
    await runs.stop(KEY, NAME)
    assert api.objects == {}
    assert api.calls[2:] == [("delete", "configmaps"), ("delete", "jobs")]


async def test_a_config_map_of_the_users_by_that_name_stays(api: Stored, runs: KubernetesRuns) -> None:
    await api.create(CONFIG_MAPS, namespace="shop", body={"metadata": {"name": NAME}, "data": {"mine": "yes"}})
    await runs.stop(KEY, NAME)
    assert (CONFIG_MAPS, NAME) in api.objects
